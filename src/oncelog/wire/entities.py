"""The types of one API in one version: Kafka's, which kio has in a module for each version, or our own.

kio makes one dataclass per message, nested struct and version. A caller that speaks many versions names the type and
its fields once; `Maker` leaves out the fields that a version does not have.
"""

from dataclasses import fields
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple

from oncelog.wire.own import OWN_KEYS


class Entities(NamedTuple):
    request_module: ModuleType  # where the structs within the request are
    response_module: ModuleType
    request_type: Any
    response_type: Any


def entities(name: str, version: int) -> Entities:
    if name in OWN_KEYS:
        if version != 0:
            raise LookupError(f"{name} has version 0 only, not {version}")
        request = response = import_module("oncelog.wire.own")
    else:
        base = f"kio.schema.{name}.v{version}"
        request, response = import_module(f"{base}.request"), import_module(f"{base}.response")
    stem = "".join(part.capitalize() for part in name.split("_"))
    return Entities(request, response, getattr(request, f"{stem}Request"), getattr(response, f"{stem}Response"))


class Maker:
    """Makes structs by their names, from a module that has them."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module
        self._known: dict[str, tuple[Any, frozenset[str]]] = {}

    def new(self, type_name: str, **values: Any) -> Any:
        """Fields that this version lacks are dropped."""
        entity_type, names = self.type_of(type_name)
        if values.keys() - names:
            values = {name: value for name, value in values.items() if name in names}
        return entity_type(**values)

    def type_of(self, type_name: str) -> tuple[Any, frozenset[str]]:
        known = self._known.get(type_name)
        if known is None:
            entity_type = getattr(self._module, type_name)
            known = self._known[type_name] = entity_type, frozenset(field.name for field in fields(entity_type))
        return known
