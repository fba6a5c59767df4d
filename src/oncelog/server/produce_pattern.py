"""Recognising a producer's next request by its first bytes.

A producer sends request after request to the same partition, and everything before the records is the same in each but
the correlation id. Where those bytes are equal to the last request's, they mean the same, and need not be read again.
"""

from oncelog.server.topics import Partition
from oncelog.wire.frames import write_uvarint
from oncelog.wire.hot import PRODUCE_FLEXIBLE, ProduceRequest, pack_produced_one

MAX_PREFIX_BYTES = 1024
SINCE_VERSION = PRODUCE_FLEXIBLE  # older clients are served, if not by the shortest way
NO_TAGS = b"\0\0\0"  # of the partition, the topic and the request


class Pattern:
    """One partition as a connection's requests name it, with what their answers have in common."""

    __slots__ = (
        "_after",
        "_before",
        "_pack",
        "_size_bytes",
        "acks",
        "index",
        "name",
        "partition",
        "prefix",
        "prefix_bytes",
        "version",
    )

    def __init__(self, prefix: bytes, version: int, acks: int, name: bytes, partition: Partition) -> None:
        self.prefix = prefix  # from the client id to the partition's index
        self.prefix_bytes = len(prefix)
        self.version = version
        self.acks = acks
        self.name = name
        self.partition = partition
        self.index = partition.index
        self._pack, self._size_bytes, self._before, self._after = pack_produced_one(version, name)

    def records(self, buffer: bytearray, at: int, end: int) -> tuple[int, int] | None:
        """The place of the records, in a request whose client id begins at `at` and that ends at `end`; None if
        unlike."""
        if not buffer.startswith(self.prefix, at):
            return None
        at += self.prefix_bytes
        if at + len(NO_TAGS) >= end:
            return None
        size_bytes = buffer[at]  # one more than they are, in at most three bytes: a loop takes longer
        if size_bytes < 0x80:
            at += 1
        elif (second := buffer[at + 1]) < 0x80:
            size_bytes += (second << 7) - 0x80
            at += 2
        elif (third := buffer[at + 2]) < 0x80:
            size_bytes += (second << 7) + (third << 14) - 0x4080
            at += 3
        else:
            return None
        stop = at + size_bytes - 1
        return (at, stop) if size_bytes and stop + 3 == end and buffer.startswith(NO_TAGS, stop) else None

    def answer(self, correlation_id: int, base_offset: int, append_time_ms: int) -> bytes:
        return self._pack(
            self._size_bytes,
            correlation_id,
            self._before,
            self.index,
            0,
            base_offset,
            append_time_ms,
            self.partition.log.extent.log_start_offset,
            self._after,
        )


def pattern_of(
    buffer: bytearray, at: int, end: int, version: int, request: ProduceRequest, partition: Partition
) -> Pattern | None:
    """A pattern to recognise requests like this one, whose client id begins at `at`. None where it has frills."""
    name, ((_, start, stop),) = request.topics[0]
    length = write_uvarint(max(stop - start, 0) + 1)
    prefix_end = start - len(length)
    is_plain = (
        version >= SINCE_VERSION
        and stop + len(NO_TAGS) == end
        and buffer[stop:end] == NO_TAGS
        and buffer[prefix_end:start] == length
        and prefix_end - at <= MAX_PREFIX_BYTES
    )
    return Pattern(bytes(buffer[at:prefix_end]), version, request.acks, name, partition) if is_plain else None
