"""The meaning of each answer, and of each error in it, for the cursor that asked."""

from collections import deque

from oncelog.client.errors import is_retriable, text_of
from oncelog.client.fetching.batches import LAST_OFFSET, survey
from oncelog.client.fetching.cursor import Cursor, Stage
from oncelog.client.fetching.events import Chunk, EndReached, Event, Failed
from oncelog.client.fetching.values import NO_EPOCH, NO_NODE, RESET_BY, EpochEndFound, Fetched, FetchLimits, OffsetFound
from oncelog.error_codes import ErrorCodes

# Somebody else leads, or nobody: ask for metadata before anything else.
_LEADER_IS_ANOTHER = frozenset(
    {
        ErrorCodes.UNKNOWN_TOPIC_OR_PART,
        ErrorCodes.LEADER_NOT_AVAILABLE,
        ErrorCodes.NOT_LEADER_FOR_PARTITION,
        ErrorCodes.REPLICA_NOT_AVAILABLE,
        ErrorCodes.KAFKA_STORAGE_ERROR,
        ErrorCodes.FENCED_LEADER_EPOCH,
        ErrorCodes.UNKNOWN_TOPIC_ID,
        ErrorCodes.INCONSISTENT_TOPIC_ID,
    }
)
# Those that pass by themselves, of which the application is told all the same: until someone acts they may not.
_TOLD = frozenset({ErrorCodes.UNKNOWN_TOPIC_OR_PART, ErrorCodes.UNKNOWN_TOPIC_ID, ErrorCodes.INVALID_MSG})

Events = deque[Event]


def report(events: Events, cursor: Cursor, code: int, message: str, offset: int | None = None) -> None:
    """Tell the application, once until something has succeeded again; of the cursor's own offset, or of another."""
    if cursor.reported_code != code:
        cursor.reported_code = code
        topic, partition = cursor.partition
        at = cursor.offset if offset is None else offset
        events.append(Failed(cursor, cursor.version, code, f"{topic} [{partition}]: {message}", at))


def report_refusal(events: Events, cursor: Cursor, code: int) -> None:
    """Metadata has no leader for it. That alone is nothing to tell: elections take a moment."""
    if code in _TOLD or not is_retriable(code):
        report(events, cursor, code, text_of(code))


def reset(events: Events, cursor: Cursor, limits: FetchLimits, code: int, why: str) -> None:
    """There is no position any more: begin where the reset policy says, or stop."""
    find = RESET_BY[limits.reset]
    if find is not None:
        cursor.epoch = NO_EPOCH
        cursor.reset_to(find)
        return
    report(events, cursor, code, f"{why}, and auto.offset.reset is error")
    cursor.halt()


def refused(events: Events, cursor: Cursor, code: int, limits: FetchLimits, now_ms: int) -> None:
    if code == ErrorCodes.OFFSET_OUT_OF_RANGE and cursor.stage == Stage.FETCH:
        if cursor.replica != NO_NODE:
            cursor.replica = NO_NODE  # a follower may lag behind; the leader's word counts
            return
        why = f"offset {cursor.offset} is not in the log"
        reset(events, cursor, limits, ErrorCodes._AUTO_OFFSET_RESET, why)
        return
    cursor.due_ms = now_ms + limits.retry_backoff_ms
    if code in _LEADER_IS_ANOTHER:
        if cursor.replica != NO_NODE:
            cursor.replica = NO_NODE
        else:
            cursor.forget_leader()
    if code in _TOLD or not is_retriable(code):
        cursor.due_ms = now_ms + limits.error_backoff_ms
        at = f" at offset {cursor.offset}" if cursor.stage == Stage.FETCH else ""
        report(events, cursor, code, text_of(code) + at)


def offset_found(cursor: Cursor, found: OffsetFound) -> None:
    cursor.checked_epoch = cursor.leader_epoch
    cursor.position(found.offset, found.leader_epoch, is_read=False)


def epoch_end_found(events: Events, cursor: Cursor, found: EpochEndFound, limits: FetchLimits) -> None:
    """The leader's last epoch up to the one that was asked for, and where it ends (KIP-320)."""
    cursor.checked_epoch = cursor.leader_epoch
    cursor.stage = Stage.FETCH
    is_unknown = found.epoch == NO_EPOCH or found.end_offset < 0
    differs_from = cursor.differs_from(found.epoch, found.end_offset)
    if not is_unknown and differs_from >= cursor.offset:
        return
    code = ErrorCodes._LOG_TRUNCATION
    read = f"the log was truncated: offset {cursor.offset} with leader epoch {cursor.epoch} was read"
    if is_unknown:
        report(events, cursor, code, f"{read}, and the new leader knows neither this epoch nor an earlier one", -1)
        reset(events, cursor, limits, code, read)
        return
    report(events, cursor, code, f"{read}, and the new leader differs from offset {differs_from} on", differs_from)
    if RESET_BY[limits.reset] is None:
        cursor.halt()
    else:
        cursor.truncated_to(differs_from, found.epoch)


def fetched(
    events: Events, cursor: Cursor, found: Fetched, limits: FetchLimits, node_id: int, now_ms: int
) -> Chunk | None:
    """The chunk, if it brought one; it stands among the events already."""
    cursor.high_watermark = found.high_watermark
    cursor.last_stable_offset = found.last_stable_offset
    cursor.log_start_offset = found.log_start_offset
    if found.preferred_replica not in (NO_NODE, node_id):
        cursor.replica = found.preferred_replica
        cursor.replica_until_ms = now_ms + limits.replica_lifetime_ms
    chunk = _chunk_of(events, cursor, found, limits, now_ms)
    _report_end(events, cursor, limits)
    return chunk


def _chunk_of(events: Events, cursor: Cursor, found: Fetched, limits: FetchLimits, now_ms: int) -> Chunk | None:
    records = memoryview(found.records)
    if not records:
        return None
    limit = found.high_watermark if found.high_watermark >= 0 else LAST_OFFSET
    seen = survey(records, cursor.offset if cursor.offset == cursor.read_offset else 0, limit)
    if seen.whole_bytes == 0 and seen.stray is not None:
        _strayed(events, cursor, seen.stray, limits, now_ms)
        return None
    if seen.whole_bytes == 0:
        # Not one whole batch: it is larger than what was asked for. Old brokers do that; newer ones send it whole.
        if cursor.max_bytes >= limits.max_bytes:
            cursor.due_ms = now_ms + limits.error_backoff_ms
            _report_cut_off(events, cursor, records, limits)
        cursor.max_bytes = min(cursor.max_bytes * 2, limits.max_bytes)
        return None
    next_offset = max(seen.next_offset, cursor.offset)
    chunk = Chunk(
        cursor,
        cursor.version,
        cursor.offset,
        cursor.epoch,
        next_offset,
        seen.record_count,
        records[: seen.whole_bytes],
        found.aborted if limits.read_committed else [],
    )
    cursor.read_up_to(next_offset, seen.epochs)
    cursor.checked_epoch = max(cursor.checked_epoch, cursor.leader_epoch)
    cursor.size_next(limits.partition_max_bytes, seen.whole_bytes, next_offset - chunk.start_offset)
    events.append(chunk)
    if seen.stray is not None:
        _strayed(events, cursor, seen.stray, limits, now_ms)
    return chunk


def _strayed(events: Events, cursor: Cursor, claimed: int, limits: FetchLimits, now_ms: int) -> None:
    """Kafka notes the high watermark before it reads, so an answer may bring batches that were written meanwhile. The
    next answer knows of them: only a batch that is ahead once more is damaged."""
    if claimed >= cursor.offset and claimed != cursor.ahead:
        cursor.ahead = claimed
        return
    cursor.due_ms = now_ms + limits.error_backoff_ms
    why = f"a batch claims offset {claimed} where what follows offset {cursor.offset - 1} should be: it is damaged"
    report(events, cursor, ErrorCodes._BAD_MSG, why)


def _report_cut_off(events: Events, cursor: Cursor, records: memoryview, limits: FetchLimits) -> None:
    """Report records that are cut off. Where they end before all that was asked for is there, that was not the broker:
    the length is not true."""
    if len(records) < cursor.max_bytes:
        why = f"the batch at offset {cursor.offset} claims more bytes than the {len(records)} that came: it is damaged"
        report(events, cursor, ErrorCodes._BAD_MSG, why)
    else:
        why = f"the batch at offset {cursor.offset} exceeds fetch.max.bytes={limits.max_bytes}"
        report(events, cursor, ErrorCodes.MSG_SIZE_TOO_LARGE, why)


def _report_end(events: Events, cursor: Cursor, limits: FetchLimits) -> None:
    if not limits.reports_end:
        return
    end_offset = cursor.last_stable_offset if limits.read_committed else cursor.high_watermark
    if 0 <= end_offset <= cursor.offset and cursor.end_reported_at != cursor.offset:
        cursor.end_reported_at = cursor.offset
        events.append(EndReached(cursor, cursor.version, cursor.offset))
