"""Names that are imported when they are first used: a program that only produces does not pay for the rest."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def lazily(module: str, homes: Mapping[str, str]) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` of a module that has these names from these modules of the client."""
    home_of = {name: home for home, names in homes.items() for name in names.split()}

    def get(name: str) -> object:
        if name not in home_of:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        return getattr(import_module(f"oncelog.client.{home_of[name]}"), name)

    return get, lambda: sorted({*vars(sys.modules[module]), *home_of}), [*home_of]
