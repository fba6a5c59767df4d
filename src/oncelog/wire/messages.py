"""kio's entities, loaded when an API is first used in a version.

kio makes one dataclass per message, nested struct and version. A handler that serves many versions names the
type and its fields once; `Schema.new` leaves out the fields that this version does not have.
"""

from dataclasses import MISSING, fields
from datetime import timedelta
from functools import cache
from importlib import import_module
from io import BytesIO
from typing import Any

from kio.serial import entity_reader, entity_writer

NO_THROTTLE = timedelta(0)


class Schema:
    """One API in one version: its readers, writers and types."""

    def __init__(self, name: str, version: int, package: str) -> None:
        self.name = name
        self.version = version
        base = f"{package}.{name}.v{version}"
        self._request_module = import_module(f"{base}.request")
        self._response_module = import_module(f"{base}.response")
        stem = "".join(part.capitalize() for part in name.split("_"))
        self.request_type: Any = getattr(self._request_module, f"{stem}Request")
        self.response_type: Any = getattr(self._response_module, f"{stem}Response")
        self.read = entity_reader(self.request_type)
        self.read_header = entity_reader(self.request_type.__header_schema__)
        self._write = entity_writer(self.response_type)
        self._write_header = entity_writer(self.response_type.__header_schema__)
        self._known: dict[str, tuple[Any, frozenset[str]]] = {}

    def new(self, type_name: str, **values: Any) -> Any:
        """A response struct of this version; fields that the version lacks are dropped, no throttling is assumed."""
        known = self._known.get(type_name)
        if known is None:
            known = self._known[type_name] = self._fields_of(type_name)
        entity_type, names = known
        if values.keys() - names:
            values = {name: value for name, value in values.items() if name in names}
        if "throttle_time" in names and "throttle_time" not in values:
            values["throttle_time"] = NO_THROTTLE
        return entity_type(**values)

    def has(self, type_name: str) -> bool:
        return hasattr(self._response_module, type_name)

    def encode(self, response: Any, correlation_id: int) -> bytes:
        """The answer's header and body, without the length that precedes a frame."""
        out = BytesIO()
        header_type = self.response_type.__header_schema__
        self._write_header(out, header_type(correlation_id=correlation_id))
        self._write(out, response)
        return out.getvalue()

    def _fields_of(self, type_name: str) -> tuple[Any, frozenset[str]]:
        entity_type = getattr(self._response_module, type_name)
        return entity_type, frozenset(field.name for field in fields(entity_type))


def required_fields(entity_type: Any) -> frozenset[str]:
    return frozenset(
        field.name for field in fields(entity_type) if field.default is MISSING and field.default_factory is MISSING
    )


@cache
def schema(name: str, version: int, package: str = "kio.schema") -> Schema:
    return Schema(name, version, package)
