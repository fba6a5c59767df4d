"""The wrapping of every message: the length of a frame, and the header of a request.

    frame    int32 length, then that many bytes
    request  int16 api key, int16 api version, int32 correlation id, nullable string client id,
             and in flexible versions tagged fields; the client id is never in the compact form

Everything here reads from a buffer that may hold other frames behind this one, so `end` is checked, not the length
of the buffer.
"""

from struct import Struct
from struct import error as StructError

SIZE = Struct(">i")
SIZE_BYTES = SIZE.size
REQUEST_HEAD = Struct(">hhi")
REQUEST_HEAD_BYTES = REQUEST_HEAD.size
FRAME_HEAD = Struct(">ihhi")  # both
FRAME_HEAD_BYTES = FRAME_HEAD.size

# Of one request, in its header and in all structs of its body. Each is a step of the reader, however little it says.
MOST_TAGGED_FIELDS = 1000

_int16 = Struct(">h")

Readable = bytes | bytearray
Buffer = bytes | bytearray | memoryview


class MalformedFrame(Exception):
    """The bytes are no request of the protocol; nothing behind them can be trusted."""


def read_client_id(buffer: Readable, at: int, end: int) -> tuple[str | None, int]:
    """The client id and the position behind it; `at` is behind the correlation id."""
    try:
        (length,) = _int16.unpack_from(buffer, at)
        at += 2
        if length < 0:
            return None, at
        stop = at + length
        if stop > end:
            raise MalformedFrame("the client id reaches beyond its frame")
        return buffer[at:stop].decode(), stop
    except (StructError, UnicodeDecodeError) as error:
        raise MalformedFrame(f"client id: {error}") from None


def skip_client_id(buffer: Readable, at: int, end: int) -> int:
    try:
        (length,) = _int16.unpack_from(buffer, at)
    except StructError as error:
        raise MalformedFrame(f"client id: {error}") from None
    at += 2 + length if length > 0 else 2
    if at > end:
        raise MalformedFrame("the client id reaches beyond its frame")
    return at


def read_uvarint(buffer: Buffer, at: int) -> tuple[int, int]:
    """An unsigned varint of at most 32 bits. Raises IndexError where the buffer ends."""
    byte = buffer[at]
    if byte < 0x80:
        return byte, at + 1
    value = byte & 0x7F
    for shift in (7, 14, 21, 28):
        at += 1
        byte = buffer[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at + 1
    raise MalformedFrame("a varint of more than five bytes")


def skip_tagged_fields(buffer: Buffer, at: int, end: int) -> int:
    """The position behind the tagged fields; unknown ones are for newer servers and are passed over."""
    if at < end and buffer[at] == 0:
        return at + 1
    try:
        count, at = read_uvarint(buffer, at)
        if count > MOST_TAGGED_FIELDS:
            raise MalformedFrame(f"{count} tagged fields; at most {MOST_TAGGED_FIELDS} are read")
        for _ in range(count):
            _tag, at = read_uvarint(buffer, at)
            size_bytes, at = read_uvarint(buffer, at)
            at += size_bytes
            if at > end:
                break
    except IndexError:
        raise MalformedFrame("tagged fields reach beyond their frame") from None
    if at > end:
        raise MalformedFrame("tagged fields reach beyond their frame")
    return at


def write_uvarint(value: int) -> bytes:
    if value < 0x80:
        return _one_byte[value]
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_one_byte = [bytes((value,)) for value in range(0x80)]
