"""What each answer, and each error in it, means for the place that asked."""

from collections import deque

from oncelog.client.error_codes import ErrorCodes
from oncelog.client.errors import is_retriable, text_of
from oncelog.client.fetching.batches import survey
from oncelog.client.fetching.place import Place, Stage
from oncelog.client.fetching.values import (
    NO_EPOCH,
    NO_NODE,
    RESET_BY,
    Chunk,
    EndReached,
    Event,
    Failed,
    Fetched,
    FetchLimits,
    FoundEpochEnd,
    FoundOffset,
)

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


def report(events: Events, place: Place, code: int, message: str, offset: int | None = None) -> None:
    """Tell the application, once until something has succeeded again; of the place's own offset, or of another."""
    if place.reported_code != code:
        place.reported_code = code
        topic, partition = place.partition
        at = place.offset if offset is None else offset
        events.append(Failed(place, place.version, code, f"{topic} [{partition}]: {message}", at))


def report_refusal(events: Events, place: Place, code: int) -> None:
    """Metadata has no leader for it. That alone is nothing to tell: elections take a moment."""
    if code in _TOLD or not is_retriable(code):
        report(events, place, code, text_of(code))


def reset(events: Events, place: Place, limits: FetchLimits, code: int, why: str) -> None:
    """There is no position any more: begin where the reset policy says, or stop."""
    find = RESET_BY[limits.reset]
    if find is not None:
        place.epoch = NO_EPOCH
        place.reset_to(find)
        return
    report(events, place, code, f"{why}, and auto.offset.reset is error")
    place.halt()


def refused(events: Events, place: Place, code: int, limits: FetchLimits, now_ms: int) -> None:
    if code == ErrorCodes.OFFSET_OUT_OF_RANGE and place.stage == Stage.FETCH:
        if place.replica != NO_NODE:
            place.replica = NO_NODE  # a follower may lag behind; the leader's word counts
            return
        why = f"offset {place.offset} is not in the log"
        reset(events, place, limits, ErrorCodes._AUTO_OFFSET_RESET, why)
        return
    place.due_ms = now_ms + limits.retry_backoff_ms
    if code in _LEADER_IS_ANOTHER:
        if place.replica != NO_NODE:
            place.replica = NO_NODE
        else:
            place.forget_leader()
    if code in _TOLD or not is_retriable(code):
        place.due_ms = now_ms + limits.error_backoff_ms
        at = f" at offset {place.offset}" if place.stage == Stage.FETCH else ""
        report(events, place, code, text_of(code) + at)


def offset_found(place: Place, found: FoundOffset) -> None:
    place.checked_epoch = place.leader_epoch
    place.position(found.offset, found.leader_epoch, is_read=False)


def epoch_end_found(events: Events, place: Place, found: FoundEpochEnd, limits: FetchLimits) -> None:
    """The leader's last epoch up to the one that was asked for, and where it ends (KIP-320)."""
    place.checked_epoch = place.leader_epoch
    place.stage = Stage.FETCH
    is_unknown = found.epoch == NO_EPOCH or found.end_offset < 0
    differs_from = place.differs_from(found.epoch, found.end_offset)
    if not is_unknown and differs_from >= place.offset:
        return
    code = ErrorCodes._LOG_TRUNCATION
    read = f"the log was truncated: offset {place.offset} with leader epoch {place.epoch} was read"
    if is_unknown:
        report(events, place, code, f"{read}, and the new leader knows neither this epoch nor an earlier one", -1)
        reset(events, place, limits, code, read)
        return
    report(events, place, code, f"{read}, and the new leader differs from offset {differs_from} on", differs_from)
    if RESET_BY[limits.reset] is None:
        place.halt()
    else:
        place.truncated_to(differs_from, found.epoch)


def fetched(
    events: Events, place: Place, found: Fetched, limits: FetchLimits, node_id: int, now_ms: int
) -> Chunk | None:
    """The chunk, if it brought one; it stands among the events already."""
    place.high_watermark = found.high_watermark
    place.last_stable_offset = found.last_stable_offset
    place.log_start_offset = found.log_start_offset
    if found.preferred_replica not in (NO_NODE, node_id):
        place.replica = found.preferred_replica
        place.replica_until_ms = now_ms + limits.replica_lifetime_ms
    chunk = _chunk_of(events, place, found, limits, now_ms)
    _report_end(events, place, limits)
    return chunk


def _chunk_of(events: Events, place: Place, found: Fetched, limits: FetchLimits, now_ms: int) -> Chunk | None:
    records = memoryview(found.records)
    if not records:
        return None
    seen = survey(records)
    if seen.whole_bytes == 0:
        # Not one whole batch: it is larger than what was asked for. Old brokers do that; newer ones send it whole.
        if place.max_bytes >= limits.max_bytes:
            place.due_ms = now_ms + limits.error_backoff_ms
            _report_cut_off(events, place, records, limits)
        place.max_bytes = min(place.max_bytes * 2, limits.max_bytes)
        return None
    next_offset = max(seen.next_offset, place.offset)
    chunk = Chunk(
        place,
        place.version,
        place.offset,
        place.epoch,
        next_offset,
        seen.record_count,
        records[: seen.whole_bytes],
        found.aborted if limits.read_committed else [],
    )
    place.read_up_to(next_offset, seen.epochs)
    place.checked_epoch = max(place.checked_epoch, place.leader_epoch)
    place.size_next(limits.partition_max_bytes, seen.whole_bytes, next_offset - chunk.start_offset)
    events.append(chunk)
    return chunk


def _report_cut_off(events: Events, place: Place, records: memoryview, limits: FetchLimits) -> None:
    """What ends before all that was asked for is there was not cut off by the broker: the length is not true."""
    if len(records) < place.max_bytes:
        why = f"the batch at offset {place.offset} claims more bytes than the {len(records)} that came: it is damaged"
        report(events, place, ErrorCodes._BAD_MSG, why)
    else:
        why = f"the batch at offset {place.offset} exceeds fetch.max.bytes={limits.max_bytes}"
        report(events, place, ErrorCodes.MSG_SIZE_TOO_LARGE, why)


def _report_end(events: Events, place: Place, limits: FetchLimits) -> None:
    if not limits.reports_end:
        return
    end_offset = place.last_stable_offset if limits.read_committed else place.high_watermark
    if 0 <= end_offset <= place.offset and place.end_reported_at != place.offset:
        place.end_reported_at = place.offset
        events.append(EndReached(place, place.version, place.offset))
