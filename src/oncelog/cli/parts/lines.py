"""Input for `produce`: cut at a delimiter, and made into records."""

import json
import select
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, NamedTuple

from oncelog.cli.parts.endings import failure

CHUNK_BYTES = 1 << 20
GATHERED_BYTES = 8 << 20
GATHERED_LINES = 100_000
READY_S = 0.005  # as long as a record lingers for others anyway

Headers = list[tuple[bytes, bytes | None]]


def pieces(stream: BinaryIO, name: str, delimiter: bytes, most_bytes: int) -> Iterator[list[bytes]]:
    """The pieces between delimiters, as they arrive. One that is longer than any record may be is refused, so that an
    input without delimiters does not fill the memory."""
    read = getattr(stream, "read1", stream.read)
    rest = b""
    while chunk := read(CHUNK_BYTES):
        found = (rest + chunk).split(delimiter) if rest else chunk.split(delimiter)
        rest = found.pop()
        if len(rest) > most_bytes + len(delimiter):
            raise failure(
                f"{name}: a record of more than {most_bytes:,} bytes: -D says what stands between records, "
                "-X message.max.bytes=N allows larger ones"
            )
        yield found
    if rest:
        yield [rest]


class Record(NamedTuple):
    value: bytes | None
    key: bytes | None = None
    headers: Headers | None = None
    timestamp_ms: int = 0  # 0: now
    partition: int | None = None  # None: it does not say
    topic: str | None = None


@dataclass(frozen=True, slots=True)
class Fixed:
    """The options that hold for all records."""

    key: bytes | None = None
    headers: Headers | None = None
    key_delimiter: bytes | None = None
    empty_is_null: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether a record is nothing but its value."""
        return self == Fixed()

    @property
    def are_cells(self) -> bool:
        """Whether a record is nothing but its value and perhaps a key."""
        return self.headers is None


def of_lines(lines: Sequence[bytes], fixed: Fixed) -> Iterator[Record]:
    """Records of lines, as kcat has it: an empty line is nothing, unless it stands for null; a line without the key's
    delimiter is all value."""
    for line in lines:
        if not line and not fixed.empty_is_null:
            continue
        key, value = fixed.key, line
        if fixed.key_delimiter is not None:
            before, found, behind = line.partition(fixed.key_delimiter)
            if found:
                key = None if fixed.empty_is_null and not before else before
                value = behind
        yield Record(None if fixed.empty_is_null and not value else value, key, fixed.headers)


def cells_of(lines: Sequence[bytes], fixed: Fixed) -> tuple[Sequence[bytes | None], Sequence[bytes | None] | None]:
    """The same as columns: values, and keys where there are any."""
    if fixed.key_delimiter is None:
        values = [line or None for line in lines] if fixed.empty_is_null else [line for line in lines if line]
        return values, None if fixed.key is None else [fixed.key] * len(values)
    records = [(value, key) for value, key, *_ in of_lines(lines, fixed)]
    return [value for value, _ in records], [key for _, key in records]


def gathered(found: Iterable[list[bytes]], stream: BinaryIO) -> Iterator[list[bytes]]:
    """Several pieces as one, as long as the next one is there at once: who types, or writes now and then, does not wait
    for more."""
    lines: list[bytes] = []
    size_bytes = 0
    for piece in found:
        lines += piece
        size_bytes += sum(map(len, piece))
        if size_bytes >= GATHERED_BYTES or len(lines) >= GATHERED_LINES or not _is_ready(stream):
            yield lines
            lines, size_bytes = [], 0
    if lines:
        yield lines


def _is_ready(stream: BinaryIO) -> bool:
    try:
        asked = select.poll()  # select() knows no descriptor above 1,023
        asked.register(stream, select.POLLIN)
        return bool(asked.poll(READY_S * 1000))
    except (OSError, ValueError):  # no file of the system's
        return False


def of_envelopes(lines: Sequence[bytes], fixed: Fixed, name: str, first_line: int) -> Iterator[Record]:
    """The records that `consume -J` wrote, one object a line; the command line's key and headers are for those
    without."""
    for number, line in enumerate(lines, first_line):
        if line.strip():
            try:
                yield _of_envelope(_json(line), fixed)
            except (ValueError, RecursionError) as wrong:
                raise failure(
                    f"{name} line {number}: {wrong}; expected an object as `oncelog consume -J` prints"
                ) from None


def _json(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        raise ValueError("this is no JSON") from None


def _of_envelope(found: Any, fixed: Fixed) -> Record:
    if not isinstance(found, dict) or not ("payload" in found or "key" in found):
        raise ValueError("no object with a payload or a key")
    key = _bytes(found, "key") if found.get("key") is not None else fixed.key
    headers = _headers(found.get("headers")) or fixed.headers
    topic = found.get("topic")
    if topic is not None and not isinstance(topic, str):
        raise ValueError("topic is no text")
    return Record(
        _bytes(found, "payload"), key, headers, max(0, _number(found, "ts") or 0), _number(found, "partition"), topic
    )


def _bytes(found: dict[str, Any], name: str) -> bytes | None:
    value = found.get(name)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{name} is neither a text nor null")
    return None if value is None else _encoded(value)


def _number(found: dict[str, Any], name: str) -> int | None:
    value = found.get(name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise ValueError(f"{name} is no whole number")
    return value


def _headers(found: Any) -> Headers | None:
    """kcat writes names and values in turn; its manual speaks of an object, which is taken, too."""
    if isinstance(found, dict):
        found = [each for pair in found.items() for each in pair]
    if found is None or found == []:
        return None
    if not isinstance(found, list) or len(found) % 2:
        raise ValueError("headers are no list of names and values in turn")
    pairs: Headers = []
    for name, value in zip(found[::2], found[1::2], strict=True):
        if not isinstance(name, str) or not (value is None or isinstance(value, str)):
            raise ValueError("a header is no text")
        pairs.append((_encoded(name), None if value is None else _encoded(value)))
    return pairs


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
