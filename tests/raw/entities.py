"""kio's entities from plain dictionaries, so that a test reads as the question it asks.

    make(FetchRequest, {"topics": [{"topic": "t", "partitions": [{"partition": 0, ...}]}], ...})

Durations are given in milliseconds. A field left out takes the schema's default or, as in Kafka's own generated
classes, the empty value of its type.
"""

from dataclasses import MISSING, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from io import BytesIO
from types import EllipsisType, UnionType
from typing import Any, NamedTuple, Union, get_args, get_origin

from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from oncelog.wire.entities import entities


class Message(NamedTuple):
    name: str
    version: int
    request: Any
    response: Any
    write_request: Any
    write_header: Any
    read_response: Any
    read_header: Any


@cache
def message(name: str, version: int) -> Message:
    _, _, request, response = entities(name, version)
    return Message(
        name,
        version,
        request,
        response,
        entity_writer(request),
        entity_writer(request.__header_schema__),
        entity_reader(response),
        entity_reader(response.__header_schema__),
    )


def encode_request(kind: Message, request: Any, correlation_id: int, client_id: str | None = "raw") -> bytes:
    """The header and body of a request, without the length that precedes a frame."""
    header_type = kind.request.__header_schema__
    values: dict[str, Any] = {
        "request_api_key": kind.request.__api_key__,
        "request_api_version": kind.version,
        "correlation_id": correlation_id,
        "client_id": client_id,
    }
    known = {field.name for field in fields(header_type)}
    out = BytesIO()
    kind.write_header(out, header_type(**{name: value for name, value in values.items() if name in known}))
    kind.write_request(out, request)
    return out.getvalue()


def make(entity_type: Any, values: dict[str, Any]) -> Any:
    types = {field.name: field.type for field in fields(entity_type)}
    values = {**_empty_values(entity_type), **values}
    unknown = values.keys() - types.keys()
    if unknown:
        raise TypeError(f"{entity_type.__name__} v{entity_type.__version__} has no {', '.join(sorted(unknown))}")
    return entity_type(**{name: _fit(types[name], value) for name, value in values.items()})


@cache
def _empty_values(entity_type: Any) -> dict[str, Any]:
    needed = (field for field in fields(entity_type) if field.default is MISSING and field.default_factory is MISSING)
    return {field.name: _empty(field.type) for field in needed}


def _empty(hint: Any) -> Any:
    if get_origin(hint) in (UnionType, Union):
        return None
    if get_origin(hint) is tuple:
        return ()
    if is_dataclass(hint):
        return make(hint, {})
    if issubclass(hint, timedelta):
        return timedelta(0)
    for plain in (bool, int, float, str, bytes):
        if issubclass(hint, plain):
            return plain()
    raise TypeError(f"no empty value is known for {hint}")


def _fit(hint: Any, value: Any) -> Any:
    if value is None:
        return None
    hint = without_none(hint)
    if get_origin(hint) is tuple:
        inner, ellipsis = get_args(hint)
        if not isinstance(ellipsis, EllipsisType):
            raise TypeError(f"{hint} is no array")
        return tuple(_fit(inner, item) for item in value)
    if is_dataclass(hint) and isinstance(value, dict):
        return make(hint, value)
    if isinstance(hint, type) and isinstance(value, int):
        if issubclass(hint, ErrorCode):
            return ErrorCode(value)
        if issubclass(hint, timedelta):
            return timedelta(milliseconds=value)
        if issubclass(hint, datetime):
            return datetime.fromtimestamp(value / 1000, UTC)
    return value


def without_none(hint: Any) -> Any:
    if get_origin(hint) in (UnionType, Union):
        (only,) = (arg for arg in get_args(hint) if arg is not type(None))
        return only
    return hint
