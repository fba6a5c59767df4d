"""Records to bytes on stdout, in kcat's formats.

A renderer takes many records at once, since a call for each would take longer than the rest of the work.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from json.encoder import encode_basestring, encode_basestring_ascii
from typing import TYPE_CHECKING

import click

from oncelog.client.types import TIMESTAMP_CREATE_TIME, TIMESTAMP_NOT_AVAILABLE

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
    """As it was typed: what is not UTF-8 on a command line comes as surrogates."""
    return text.encode("utf-8", "surrogateescape")


def values(delimiter: bytes, null: bytes) -> Renderer:
    """Every value with the delimiter behind it: what most people want most of the time."""

    def render(records: Sequence["Message"]) -> bytes:
        found = [null if (value := each.value()) is None else value for each in records]
        found.append(b"")
        return delimiter.join(found)

    return render


def keys_and_values(key_delimiter: bytes, delimiter: bytes, null: bytes) -> Renderer:
    return _each((_key(null), lambda _: key_delimiter, _value(null), lambda _: delimiter))


def by_format(text: str, null: bytes) -> Renderer:
    """kcat's -f: no delimiter is added."""
    parts: list[Part] = []
    at = 0
    for match in _TOKEN.finditer(text):
        parts += _literal(text[at : match.start()])
        parts.append(_part(match[1], null))
        at = match.end()
    return _each([*parts, *_literal(text[at:])])


def _literal(text: str) -> list[Part]:
    data = unescape(text)
    return [lambda _: data] if data else []


def _part(letter: str, null: bytes) -> Part:
    parts: Mapping[str, Part] = {
        "%": lambda _: b"%",
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
    if letter not in parts:
        raise click.UsageError(f"-f: there is no %{letter}; known are {' '.join(f'%{known}' for known in parts)}")
    return parts[letter]


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


def envelopes(delimiter: bytes, leaders: Mapping[tuple[str, int], int]) -> Renderer:
    """One object a record. What is no UTF-8 becomes `\\udc80` to `\\udcff`, of which `produce -J` makes bytes again."""
    end = delimiter.decode("utf-8", "surrogateescape")

    def render(records: Sequence["Message"]) -> bytes:
        found = [_envelope(each, leaders) for each in records]
        found.append("")
        return end.join(found).encode("utf-8", "surrogateescape")

    return render


def _envelope(record: "Message", leaders: Mapping[tuple[str, int], int]) -> str:
    topic, partition = record.topic(), record.partition()
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
        f'{{"topic":{encode_basestring(topic)},"partition":{partition},"offset":{record.offset()},{time}'
        f'"broker":{leaders.get((topic, partition), -1)},{headers}'
        f'"key":{_text(record.key())},"payload":{_text(record.value())}}}'
    )


def _text(data: bytes | None) -> str:
    if data is None:
        return "null"
    try:
        return encode_basestring(data.decode())
    except UnicodeDecodeError:
        return encode_basestring_ascii(data.decode("utf-8", "surrogateescape"))
