"""kio's entities, loaded when an API is first used in a version.

kio makes one dataclass per message, nested struct and version. A handler that serves many versions names the
type and its fields once; `Schema.new` leaves out the fields that this version does not have.
"""

from dataclasses import MISSING, fields
from datetime import timedelta
from functools import cache
from importlib import import_module
from io import BytesIO
from types import UnionType
from typing import Any, Union, get_origin

from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from oncelog.wire.bounds import Bounds
from oncelog.wire.nulls import arrays_of, refuse_nulls

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
        self._read = entity_reader(self.request_type)
        self._arrays = arrays_of(self.request_type)
        self.bounds = Bounds(self.request_type)
        self.read_header = entity_reader(self.request_type.__header_schema__)
        self.has_flexible_header: bool = self.request_type.__header_schema__.__version__ >= 2
        self._write = entity_writer(self.response_type)
        self._write_header = entity_writer(self.response_type.__header_schema__)
        self._known: dict[str, tuple[Any, frozenset[str]]] = {}

    def read(self, data: bytes, at: int) -> tuple[Any, int]:
        """The request and the number of bytes that it took; raises for whatever is wrong with it."""
        request, size_bytes = self._read(self.bounds.checked(data[at:]), 0)
        refuse_nulls(request, self._arrays)
        return request, size_bytes

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

    def encode(self, response: Any, correlation_id: int) -> bytes:
        """The answer's header and body, without the length that precedes a frame."""
        out = BytesIO()
        header_type = self.response_type.__header_schema__
        self._write_header(out, header_type(correlation_id=correlation_id))
        self._write(out, response)
        return out.getvalue()

    def refusal(self, code: ErrorCode, message: str | None) -> Any:
        """An answer that says nothing but this error; None where the answer has no place for one."""
        values: dict[str, Any] = {}
        for each in fields(self.response_type):
            if each.name == "error_code":
                values["error_code"] = code
            elif each.name == "error_message":
                values["error_message"] = message
            elif each.default is MISSING and each.default_factory is MISSING:
                values[each.name] = _empty(each.type)
        return self.response_type(**values) if "error_code" in values else None

    def _fields_of(self, type_name: str) -> tuple[Any, frozenset[str]]:
        entity_type = getattr(self._response_module, type_name)
        return entity_type, frozenset(field.name for field in fields(entity_type))


def _empty(hint: Any) -> Any:
    """The emptiest value of a field's type: what a refusal holds where the schema names no default."""
    if get_origin(hint) in (UnionType, Union):
        return None
    if get_origin(hint) is tuple:
        return ()
    if isinstance(hint, type) and issubclass(hint, timedelta):
        return NO_THROTTLE
    if isinstance(hint, type) and issubclass(hint, bool):
        return False
    if isinstance(hint, type) and issubclass(hint, int):
        return -1
    return ""


@cache
def schema(name: str, version: int, package: str = "kio.schema") -> Schema:
    return Schema(name, version, package)
