"""A null where Kafka's schema has an array that may not be null.

kio reads such an array as None, so that a handler would stumble over it. Kafka refuses the request while it reads it.
"""

from dataclasses import fields, is_dataclass
from types import UnionType
from typing import Any, NamedTuple, Union, get_args, get_origin


class NullArray(ValueError):
    """The request is malformed: the message names the array."""


class Array(NamedTuple):
    name: str
    may_be_null: bool
    arrays: tuple["Array", ...]  # those within its elements


def arrays_of(entity_type: Any) -> tuple[Array, ...]:
    """The arrays of an entity that must be looked at, and within them those of their elements."""
    found = []
    for field in fields(entity_type):
        hint, may_be_null = without_none(field.type)
        if get_origin(hint) is not tuple:
            continue
        element, _ = without_none(get_args(hint)[0])
        inner = arrays_of(element) if is_dataclass(element) else ()
        if inner or not may_be_null:
            found.append(Array(field.name, may_be_null, inner))
    return tuple(found)


def refuse_nulls(entity: Any, arrays: tuple[Array, ...]) -> None:
    for array in arrays:
        elements = getattr(entity, array.name)
        if elements is None:
            if not array.may_be_null:
                raise NullArray(f"{array.name} is null")
        elif array.arrays:
            for element in elements:
                refuse_nulls(element, array.arrays)


def without_none(hint: Any) -> tuple[Any, bool]:
    if get_origin(hint) in (UnionType, Union):
        rest = [one for one in get_args(hint) if one is not type(None)]
        return (rest[0] if len(rest) == 1 else hint), len(rest) < len(get_args(hint))
    return hint, False
