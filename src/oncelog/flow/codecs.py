"""Keys, values and states as bytes: typed, by msgspec."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar, cast, overload

import msgspec
from msgspec import inspect

MARK: Final = "__msgspec_cache__"

T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")


@dataclass(frozen=True)
class Codec(Generic[T]):
    """A way to write values of one type as bytes, and to read them. `name` must change when the bytes do."""

    name: str  # goes into the fingerprint of the code
    encode: Callable[[T], bytes]
    decode: Callable[[bytes], T]
    # The function that makes it anew in another process, since msgspec's coders cannot be sent there.
    made_by: tuple[Callable[..., "Codec[T]"], tuple[Any, ...]] | None = field(default=None, compare=False, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return self.made_by or (Codec, (self.name, self.encode, self.decode))

    @property
    def takes_null(self) -> bool:
        return False


class Optional(Codec[T]):
    """None is written as a null value, and a null value is read as None."""

    @property
    def takes_null(self) -> bool:
        return True


def _as_bytes(value: bytes) -> bytes:
    """`bytes(3)` are three zeros."""
    if not isinstance(value, bytes):
        raise TypeError(f"{type(value).__name__!r} object where bytes were expected")
    return value


text: Final[Codec[str]] = Codec("text", str.encode, bytes.decode)
raw: Final[Codec[bytes]] = Codec("raw", _as_bytes, bytes)


def decoded(cells: Sequence[bytes | None], decode: Callable[[bytes], Any]) -> Iterable[Any]:
    if decode is bytes:
        return cells  # they are
    if None in cells:
        return (None if cell is None else decode(cell) for cell in cells)
    return map(decode, cells)  # type: ignore[arg-type]


def json_of(kind: type[T]) -> Codec[T]:
    """JSON of a dataclass, a msgspec.Struct, or whatever else msgspec knows."""
    encode = msgspec.json.Encoder(order="deterministic").encode
    name = f"json {_known_shape(kind, 'json_of', 'JSON')}"
    return Codec(name, encode, _decoder(kind), (json_of, (kind,)))


def msgpack_of(kind: type[T]) -> Codec[T]:
    """MessagePack of the same types."""
    encode = msgspec.msgpack.Encoder(order="deterministic").encode
    name = f"msgpack {_known_shape(kind, 'msgpack_of', 'MessagePack')}"
    return Codec(name, encode, _decoder(kind, msgspec.msgpack.Decoder), (msgpack_of, (kind,)))


def foreign_fields(codec: Codec[Any], stored: bytes) -> list[str]:
    """The fields of a stored object, where its type knows none of them and would make an empty one of it; else
    nothing."""
    kind = kind_of(codec)
    try:
        known = {each.encode_name for each in inspect.type_info(kind).fields}  # type: ignore[attr-defined]
    except (AttributeError, TypeError):
        return []  # what has no fields cannot be mistaken so
    found = (msgspec.msgpack if is_msgpack(codec) else msgspec.json).decode(stored)
    return sorted(found) if isinstance(found, dict) and known.isdisjoint(found) else []


def optional(codec: Codec[T]) -> Codec[T | None]:
    """The codec for values that may be null, or for keys of records that may have none."""
    encode = cast(Callable[[T | None], bytes], codec.encode)
    return Optional(f"optional {codec.name}", encode, codec.decode, (optional, (codec,)))


@overload
def one_of(first: type[A], second: type[B], /) -> Codec[A | B]: ...
@overload
def one_of(first: type[A], second: type[B], third: type[C], /) -> Codec[A | B | C]: ...
def one_of(*kinds: type[Any]) -> Codec[Any]:
    """Any of several types: JSON with the type's name around it, `{"Order": {...}}`."""
    encode = msgspec.json.Encoder(order="deterministic").encode
    decoders = {kind.__name__: _decoder(kind) for kind in kinds}
    outer = msgspec.json.Decoder(dict[str, msgspec.Raw])

    def encoded(value: object) -> bytes:
        if (name := type(value).__name__) not in decoders:
            raise TypeError(f"a {name} where {' or '.join(decoders)} is written")
        return encode({name: value})

    def decoded(data: bytes) -> object:
        ((name, inner),) = outer.decode(data).items()
        if name not in decoders:
            raise ValueError(f"it is of the type {name}, and {', '.join(decoders)} are known")
        return decoders[name](bytes(inner))

    return Codec("one of " + ", ".join(map(shape_of, kinds)), encoded, decoded, (one_of, kinds))


def kind_of(codec: Codec[Any]) -> Any:
    """The type of what it makes; None where it does not say."""
    if codec.made_by is not None and codec.made_by[0] in (json_of, msgpack_of):
        return codec.made_by[1][0]
    return {text.name: str, raw.name: bytes}.get(codec.name)


def is_msgpack(codec: Codec[Any]) -> bool:
    made = codec.made_by
    return made is not None and (made[0] is msgpack_of or (made[0] is optional and is_msgpack(made[1][0])))


def class_of(codec: Codec[Any]) -> type | None:
    """The class of all that it writes, where that can be seen at a glance: msgspec writes whatever it is given."""
    made = codec.made_by
    if made and made[0] is optional:
        return class_of(made[1][0])
    kind = made[1][0] if made and made[0] in (json_of, msgpack_of) else None
    seen = inspect.StructType | inspect.DataclassType | inspect.StrType | inspect.IntType
    return kind if isinstance(kind, type) and isinstance(info_of(kind), seen) else None


def check_class(kind: type, value: object) -> None:
    if not isinstance(value, int | float if kind is int else kind):
        raise TypeError(f"a {type(value).__name__} where {kind.__name__} is written")


def check_classes(kind: type | None, values: Collection[object], *, takes_null: bool) -> None:
    if kind is not None and not (set(map(type, values)) <= {kind}):
        for value in values:
            if value is not None or not takes_null:
                check_class(kind, value)


def _decoder(kind: type[T], form: Any = msgspec.json.Decoder) -> Callable[[bytes], T]:
    decode: Callable[[bytes], T] = form(kind).decode
    info_of(kind)
    return decode


def _known_shape(kind: type[Any], maker: str, form: str) -> str:
    try:
        return shape_of(kind)
    except TypeError as error:
        raise ValueError(
            f"{maker}({kind!r}): there is no {form} of it ({error}). Give it a dataclass or a Struct"
        ) from None


def shape_of(kind: type[Any]) -> str:
    """A text that changes when the fields of the type change."""
    schema = msgspec.json.schema(kind)
    info_of(kind)
    return msgspec.json.encode(schema, order="deterministic").decode()


def info_of(kind: Any) -> inspect.Type:
    """The fields of a type, as msgspec knows them, without the mark that it leaves in a class: a marked class cannot go
    to another process, as the classes of a script are where Spark's tasks do the work."""
    found = inspect.type_info(kind)
    for each in _classes(found, set()):
        if MARK in vars(each):
            delattr(each, MARK)
    return found


def _classes(found: object, seen: set[int]) -> Iterator[type[Any]]:
    """The users' classes, at whatever depth of a type."""
    if id(found) in seen:
        return
    seen.add(id(found))
    if isinstance(found, tuple):
        parts = found
    elif isinstance(found, inspect.Type | inspect.Field):
        parts = tuple(getattr(found, name) for name in found.__struct_fields__)
    else:
        parts = ()
    if isinstance(kind := getattr(found, "cls", None), type):
        yield kind
    for part in parts:
        yield from _classes(part, seen)
