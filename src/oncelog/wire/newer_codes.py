"""Answers with error codes that kio does not know, because the broker is newer: the number is still to be told.

kio's readers make every code by its enum and raise for other numbers. Here are entities of the same shape whose codes
are plain numbers; they are made when the first such answer comes.
"""

from copy import copy
from dataclasses import Field, fields, is_dataclass
from functools import cache
from types import GenericAlias, MappingProxyType
from typing import Any, get_args, get_origin

PLAIN = {"kafka_type": "int16"}


@cache
def with_plain_codes(entity: type) -> type:
    """The same entity, read with `int` where there was an `ErrorCode`."""
    changed = {field.name: _changed(field) for field in fields(entity)}
    return type(entity.__name__, (entity,), {"__slots__": (), "__dataclass_fields__": changed})


def _changed(field: "Field[Any]") -> "Field[Any]":
    new = copy(field)
    if field.metadata.get("kafka_type") == "error_code":
        new.metadata, new.type = MappingProxyType({**field.metadata, **PLAIN}), int
    else:
        new.type = _type(field.type)
    return new


def _type(hint: Any) -> Any:
    if is_dataclass(hint):
        return with_plain_codes(hint)  # type: ignore[arg-type]
    inner = get_args(hint)
    if get_origin(hint) is tuple:
        return GenericAlias(tuple, (_type(inner[0]), ...))
    return _type(inner[0]) | None if len(inner) == 2 and inner[1] is type(None) else hint
