"""The bytes from an offset on. Of a read, however large, no batch is looked at but those up to the first one
wanted."""

from oncelog.log.aborted import AbortedTransactions
from oncelog.log.errors import LogStorageError
from oncelog.log.segment import Segment
from oncelog.log.segments import Segments

# Readers of committed records get the aborted transactions with them, in one step: a microsecond each.
MOST_TOLD = 8_192
LEAST_COMMITTED_BYTES = 64 * 1024  # unless they are many within as much as this


class Slice:
    """Batches in a segment's file, found but not read yet.

    It holds only until the log is next cared for: retention, compaction and a cut take away what it names. So its
    finder reads it, or gives it to a socket, before the event loop goes on. Bytes that a socket has taken are safe:
    nothing below the high watermark is ever written over, and pages of a removed file live on as long as they are used.
    """

    __slots__ = ("_position", "_segment", "_size_bytes")

    def __init__(self, segment: Segment, position: int, size_bytes: int) -> None:
        self._segment = segment
        self._position = position
        self._size_bytes = size_bytes

    def __len__(self) -> int:
        return self._size_bytes

    def end_offset(self) -> int:
        """No record in it is at this offset or behind it. By the index, so it may be a little more than need be."""
        return self._segment.offset_from_position(self._position + self._size_bytes)

    @property
    def is_sendable(self) -> bool:
        return self._segment.is_sendable

    def read(self) -> bytes:
        segment = self._segment
        try:
            return segment.handles.get(segment.log_path).pread(self._size_bytes, self._position)
        except OSError as error:
            raise LogStorageError(f"{segment.log_path}: {error}") from error

    def send_to(self, socket_fd: int) -> int:
        """The number of bytes that the socket took at once, perhaps 0: `rest` has the others. Never raises."""
        segment = self._segment
        try:
            return segment.handles.get(segment.log_path).send_to(socket_fd, self._size_bytes, self._position)
        except OSError:  # the disk's or the socket's: reading and writing plainly will show which
            return 0

    def rest(self, sent_bytes: int) -> bytes:
        """The bytes that the socket did not take. They were promised, so anything less than all of them is an error."""
        segment = self._segment
        size_bytes = self._size_bytes - sent_bytes
        try:
            data = segment.handles.get(segment.log_path).pread(size_bytes, self._position + sent_bytes)
        except OSError as error:
            segment.not_sendable()
            raise LogStorageError(f"{segment.log_path}: {error}") from error
        if len(data) < size_bytes:
            segment.not_sendable()
            raise segment.damaged(
                self._position + sent_bytes + len(data), f"{size_bytes - len(data)} bytes are missing"
            )
        return data


def find_batches(
    segments: Segments, offset: int, max_bytes: int, at_least_one: bool, limit: int, latest_epoch: int
) -> Slice | None:
    """Batches of one segment from the one that holds `offset` on, none of them reaching `limit`.

    As in Kafka the last one may be cut by `max_bytes`; only the first is given whole if `at_least_one` says so.
    """
    for number in range(segments.number_of(offset), len(segments)):
        segment = segments[number]
        found = segment.find(offset)
        if found is None:
            continue  # the offset lies in a gap that compaction left at the segment's end
        position, first_bytes, base_offset, epoch = found
        if not 0 <= epoch <= latest_epoch:
            raise segment.damaged(position, f"leader epoch {epoch} where there was none above {latest_epoch}")
        if base_offset >= limit:
            return None
        end = segment.size_bytes
        if limit < segment.end_offset:
            beyond = segment.find(limit)
            end = end if beyond is None else beyond[0]
        if segment.rotten:
            end = segment.whole_until(position, end)
        if max_bytes < first_bytes:
            if not at_least_one:
                return None
            max_bytes = first_bytes
        if end <= position:
            return None
        return Slice(segment, position, min(max_bytes, end - position))
    return None


def find_committed(
    segments: Segments,
    aborted: AbortedTransactions,
    offset: int,
    max_bytes: int,
    at_least_one: bool,
    limit: int,
    latest_epoch: int,
) -> Slice | None:
    """The same, of which fewer bytes are found where very many transactions were aborted."""
    found = find_batches(segments, offset, max_bytes, at_least_one, limit, latest_epoch)
    while (
        found is not None
        and len(found) > LEAST_COMMITTED_BYTES
        and aborted.most_between(offset, found.end_offset()) > MOST_TOLD
    ):
        shorter = find_batches(segments, offset, len(found) // 2, True, limit, latest_epoch)
        if shorter is None or len(shorter) == len(found):
            break
        found = shorter
    return found
