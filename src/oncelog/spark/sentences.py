"""Failures that are a sentence for the user: shown as that sentence, without the frames of our code.

PySpark passes a failure on as Python shows it, or, where a variable says so, its words alone. The worker in which that
happens ends with it, so there the variable may be set for it.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, Final, TypeVar

T = TypeVar("T")

WORDS_ALONE: Final = "SPARK_HIDE_TRACEBACK"
_OURS: Final = "oncelog."
_WORKERS: Final = "pyspark."


@contextmanager
def told() -> Iterator[None]:
    """Anything else that fails inside is a defect, and keeps its frames."""
    try:
        yield
    except Exception as failure:
        if type(failure).__module__.startswith(_OURS) and _is_worker():
            os.environ[WORDS_ALONE] = "yes"
        raise


def in_sentences(kind: type[T]) -> type[T]:
    """A class whose methods Spark calls."""
    for name, method in list(vars(kind).items()):
        if callable(method) and not name.startswith("_"):
            setattr(kind, name, _telling(method))
    return kind


def _telling(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def called(*arguments: Any, **named: Any) -> Any:
        with told():
            return method(*arguments, **named)

    return called


def _is_worker() -> bool:
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name.startswith(_WORKERS)
