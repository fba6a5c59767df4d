"""Records to bytes on stdout, in kcat's formats.

A renderer takes many records at once, since a call for each would take longer than the rest of the work.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from json.encoder import encode_basestring, encode_basestring_ascii
from typing import TYPE_CHECKING

import click

from oncelog.client.types import TIMESTAMP_CREATE_TIME, TIMESTAMP_NOT_AVAILABLE
from oncelog.slots import Place

if TYPE_CHECKING:
    from oncelog.client.consumer.message import Message

Part = Callable[["Message"], bytes]
Renderer = Callable[[Sequence["Message"]], bytes]

NULL = b"NULL"  # what -Z prints
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{1,2}|[0-7]{1,3}|.)", re.DOTALL)
_LETTERS = {"n": b"\n", "t": b"\t", "r": b"\r"}
_TOKEN = re.compile(r"%(.?)", re.DOTALL)


def unescape(text: str) -> bytes:
    """`\\n`, `\\t`, `\\r`, `\\xHH` and `\\NNN` (octal) as C has them; any other letter behind a backslash is itself."""
    parts: list[bytes] = []
    at = 0
    for match in _ESCAPE.finditer(text):
        parts += (_encoded(text[at : match.start()]), _escaped(match[1]))
        at = match.end()
    return b"".join((*parts, _encoded(text[at:])))


def _escaped(body: str) -> bytes:
    if body == "x":
        raise click.UsageError("\\x: expected hexadecimal digits behind it, such as \\x0a")
    if body[0] == "x" and len(body) > 1:
        return bytes((int(body[1:], 16),))
    if body[0] in "01234567":
        return bytes((int(body, 8) & 0xFF,))
    return _LETTERS.get(body) or _encoded(body)


def _encoded(text: str) -> bytes:
    """The text as it was typed: what is not UTF-8 on a command line comes as surrogates."""
    return text.encode("utf-8", "surrogateescape")


@dataclass(frozen=True, slots=True)
class Form:
    """The form in which a record is printed: kcat's letters, and the text between them."""

    parts: tuple[str | bytes, ...]
    null: bytes

    def renderer(self) -> Renderer:
        if self.parts[0] == "s" and len(self.parts) == 2 and isinstance(self.parts[1], bytes):
            return _values(self.parts[1], self.null)
        return _each([_part(part, self.null) for part in self.parts])


def values(delimiter: bytes, null: bytes) -> Form:
    """Every value with the delimiter behind it: what most people want most of the time."""
    return Form(("s", delimiter), null)


def keys_and_values(key_delimiter: bytes, delimiter: bytes, null: bytes) -> Form:
    return Form(("k", key_delimiter, "s", delimiter), null)


def by_format(text: str, null: bytes) -> Form:
    """kcat's -f: no delimiter is added."""
    parts: list[str | bytes] = []
    at = 0
    for match in _TOKEN.finditer(text):
        parts += (unescape(text[at : match.start()]), _letter(match[1]))
        at = match.end()
    parts.append(unescape(text[at:]))
    return Form(tuple(part for part in parts if part) or (b"",), null)


def _letter(letter: str) -> str | bytes:
    if letter == "%":
        return b"%"
    if letter not in _LETTERS_OF_RECORDS:
        known = " ".join(f"%{each}" for each in ("%", *_LETTERS_OF_RECORDS))
        raise click.UsageError(f"-f: there is no %{letter}; known are {known}")
    return letter


def _values(delimiter: bytes, null: bytes) -> Renderer:
    def render(records: Sequence["Message"]) -> bytes:
        found = [null if (value := each.value()) is None else value for each in records]
        found.append(b"")
        return delimiter.join(found)

    return render


_LETTERS_OF_RECORDS = "tpoTksKSRh"


def _part(part: str | bytes, null: bytes) -> Part:
    if isinstance(part, bytes):
        return lambda _: part
    parts: Mapping[str, Part] = {
        "t": lambda record: record.topic().encode(),
        "p": lambda record: b"%d" % record.partition(),
        "o": lambda record: b"%d" % record.offset(),
        "T": lambda record: b"%d" % record.timestamp()[1],
        "k": _key(null),
        "s": _value(null),
        "K": lambda record: b"%d" % _length(record.key()),
        "S": lambda record: b"%d" % _length(record.value()),
        "R": lambda record: _length(record.value()).to_bytes(4, "big", signed=True),
        "h": _headers,
    }
    return parts[part]


def _key(null: bytes) -> Part:
    return lambda record: null if (key := record.key()) is None else key


def _value(null: bytes) -> Part:
    return lambda record: null if (value := record.value()) is None else value


def _length(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _headers(record: "Message") -> bytes:
    pairs = record.headers() or ()
    return b",".join(name.encode() + b"=" + (NULL if value is None else value) for name, value in pairs)


def _each(parts: Sequence[Part]) -> Renderer:
    def render(records: Sequence["Message"]) -> bytes:
        return b"".join([part(each) for each in records for part in parts])

    return render


# --- kcat's JSON envelope


def envelopes(delimiter: bytes, leaders: Mapping[Place, int]) -> Renderer:
    """One object a record. What is no UTF-8 becomes `\\udc80` to `\\udcff`, of which `produce -J` makes bytes again."""
    end = delimiter.decode("utf-8", "surrogateescape")

    def render(records: Sequence["Message"]) -> bytes:
        found = [_envelope(each, leaders) for each in records]
        found.append("")
        return end.join(found).encode("utf-8", "surrogateescape")

    return render


def _envelope(record: "Message", leaders: Mapping[Place, int]) -> str:
    place = Place(record.topic(), record.partition())
    kind, timestamp_ms = record.timestamp()
    time = ""
    if kind != TIMESTAMP_NOT_AVAILABLE:
        name = "create" if kind == TIMESTAMP_CREATE_TIME else "logappend"
        time = f'"tstype":"{name}","ts":{timestamp_ms},'
    pairs = record.headers()
    headers = ""
    if pairs:
        cells = ",".join(f"{encode_basestring(name)},{_text(value)}" for name, value in pairs)
        headers = f'"headers":[{cells}],'
    return (
        f'{{"topic":{encode_basestring(place.topic)},"partition":{place.partition},"offset":{record.offset()},{time}'
        f'"broker":{leaders.get(place, -1)},{headers}'
        f'"key":{_text(record.key())},"payload":{_text(record.value())}}}'
    )


def _text(data: bytes | None) -> str:
    if data is None:
        return "null"
    try:
        return encode_basestring(data.decode())
    except UnicodeDecodeError:
        return encode_basestring_ascii(data.decode("utf-8", "surrogateescape"))
