"""The server's side of a message: requests read, answers written. `requests.py` is the client's.

An API's entities are loaded when it is first used in a version.
"""

from dataclasses import MISSING, fields
from datetime import timedelta
from functools import cache
from io import BytesIO
from types import UnionType
from typing import Any, Union, get_origin

from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from oncelog.wire.bounds import Bounds
from oncelog.wire.entities import Maker, entities
from oncelog.wire.nulls import arrays_of, refuse_nulls

NO_THROTTLE = timedelta(0)
HEAD_BYTES = 8  # of an answer: its length and its correlation id; a flexible one has an empty list of tags behind


class Schema:
    """One API in one version: its readers, writers and types."""

    def __init__(self, name: str, version: int) -> None:
        self.name = name
        self.version = version
        _, module, self.request_type, self.response_type = entities(name, version)
        self._maker = Maker(module)
        self._read = entity_reader(self.request_type)
        self._arrays = arrays_of(self.request_type)
        self.bounds = Bounds(self.request_type)
        self.read_header = entity_reader(self.request_type.__header_schema__)
        self.has_flexible_header: bool = self.request_type.__header_schema__.__version__ >= 2
        self._write = entity_writer(self.response_type)
        self._write_header = entity_writer(self.response_type.__header_schema__)

    @property
    def throttle_at(self) -> int | None:
        """The place at which an answer's frame says how long its client is to wait, if it does so at its beginning."""
        first = next(iter(fields(self.response_type)), None)
        if first is None or first.name != "throttle_time":
            return None
        return HEAD_BYTES + (1 if self.response_type.__header_schema__.__version__ >= 1 else 0)

    def read(self, data: bytes, at: int) -> tuple[Any, int]:
        """The request and the number of bytes that it took; raises for whatever is wrong with it."""
        request, size_bytes = self._read(self.bounds.checked(data[at:]), 0)
        refuse_nulls(request, self._arrays)
        return request, size_bytes

    def new(self, type_name: str, **values: Any) -> Any:
        """A response struct of this version; fields that the version lacks are dropped, no throttling is assumed."""
        _, names = self._maker.type_of(type_name)
        if "throttle_time" in names:
            values.setdefault("throttle_time", NO_THROTTLE)
        return self._maker.new(type_name, **values)

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
    return b"" if hint is bytes else ""


_loaded: set[tuple[str, int]] = set()


@cache
def schema(name: str, version: int) -> Schema:
    """The first time takes tens of milliseconds, on whatever thread."""
    found = Schema(name, version)
    _loaded.add((name, version))
    return found


def is_loaded(name: str, version: int) -> bool:
    return (name, version) in _loaded
