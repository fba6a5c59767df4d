"""The consumer's machine: whom to ask for what, and what the answers mean. It is told the time and what arrived.

    STORED --committed--> FETCH        nothing committed: by the reset policy, to FIND or HALTED
    FIND --offset found--> FETCH
    FETCH --a newer leader--> CHECK --still there--> FETCH
                                    --truncated--> FETCH at the first offset that differs, and the application is told

A request that is under way is known by its id; a cursor remembers the one it waits for, so whatever has changed since
it was sent makes its answer stale. What has been fetched already becomes stale by the cursor's version.

At most one fetch is under way for each broker: it asks for every partition there that may be read. What is queued and
what is under way stay within one bound for all partitions, and those that gave something last are asked for last.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from typing import TypeVar

from oncelog.client.errors import is_retriable, text_of
from oncelog.client.fetching import answers
from oncelog.client.fetching.cursor import Cursor, Stage
from oncelog.client.fetching.events import Chunk, Event
from oncelog.client.fetching.values import (
    NO_NODE,
    Action,
    AskedPartition,
    EpochEndFound,
    Fetch,
    Fetched,
    FetchLimits,
    FindEpochEnds,
    FindOffsets,
    Leader,
    NeedCommitted,
    NeedMetadata,
    OffsetFound,
)
from oncelog.error_codes import ErrorCodes
from oncelog.slots import AnyPlace

Answer = TypeVar("Answer", Fetched, OffsetFound, EpochEndFound)

# While a partition waits for room in the queue, a fetch for the others does not sit on the broker for long: the room
# may be there at once, and the next fetch has to wait for this one. As long as the application takes nothing, each
# time is twice as long.
HELD_BACK_WAIT_MS = 10

_LED = frozenset({Stage.FIND, Stage.CHECK, Stage.FETCH})


class Fetcher:
    def __init__(self, limits: FetchLimits) -> None:
        self.limits = limits
        self.queued_bytes = 0
        self.is_held_back = False  # something is not fetched for want of room; `taken` may change that
        self._held_back_wait_ms = HELD_BACK_WAIT_MS
        self._cursors: dict[AnyPlace, Cursor] = {}
        self._ids = count(1)
        self._fetches: dict[int, tuple[int, int]] = {}  # under way: node by request, and the bytes it may bring
        self._events: deque[Event] = deque()
        self._metadata_asked = False
        self._metadata_due_ms = 0

    # What the application wants

    def assign(self, partition: AnyPlace, offset: int, epoch: int = -1, stop_at: int | None = None) -> None:
        cursor = Cursor(partition, self.limits.partition_max_bytes)
        cursor.stop_at = stop_at
        cursor.start_at(offset, epoch)
        self._cursors[partition] = cursor

    def unassign(self, partition: AnyPlace) -> None:
        cursor = self._cursors.pop(partition, None)
        if cursor is not None:
            cursor.version += 1
            cursor.halt()

    def seek(self, partition: AnyPlace, offset: int, epoch: int = -1) -> None:
        self._cursors[partition].start_at(offset, epoch)

    def fetch_again(self, chunk: Chunk, offset: int, epoch: int, now_ms: int) -> None:
        """Fetch again from this offset, from which on the chunk cannot be read. It may be whole another time, or
        elsewhere."""
        cursor = chunk.cursor
        if chunk.version == cursor.version and self._cursors.get(chunk.partition) is cursor:
            cursor.start_at(offset, epoch)
            cursor.forget_leader()
            cursor.due_ms = now_ms + self.limits.error_backoff_ms

    def pause(self, partition: AnyPlace) -> None:
        """Ask for no more of this partition. Fetched records are kept: `rewind` forgets them."""
        self._cursors[partition].is_paused = True

    def rewind(self, partition: AnyPlace, position: tuple[int, int] | None) -> None:
        """Fetch again from where the application stands, if it has begun; what was fetched ahead is stale."""
        cursor = self._cursors[partition]
        if position is not None:
            cursor.start_at(*position)
        elif cursor.stage == Stage.FETCH and cursor.began_at is not None:
            cursor.start_at(*cursor.began_at)

    def resume(self, partition: AnyPlace) -> None:
        self._cursors[partition].is_paused = False

    @property
    def cursors(self) -> Mapping[AnyPlace, Cursor]:
        return self._cursors

    def taken(self, chunk: Chunk) -> None:
        """The application has begun to read it, or it was thrown away: there is room for as much."""
        size_bytes = len(chunk.records)
        self._held_back_wait_ms = HELD_BACK_WAIT_MS
        chunk.cursor.queued_bytes -= size_bytes
        chunk.cursor.queued_records -= chunk.record_count
        self.queued_bytes -= size_bytes

    def events(self) -> list[Event]:
        """The events for the application since the last call."""
        found = list(self._events)
        self._events.clear()
        return found

    # What is to be done

    def actions(self, now_ms: int) -> list[Action]:
        actions: list[Action] = []
        self.is_held_back = False
        by_stage: dict[Stage, list[Cursor]] = {stage: [] for stage in Stage}
        for cursor in self._cursors.values():
            by_stage[cursor.stage].append(cursor)
        self._ask_committed(by_stage[Stage.STORED], now_ms, actions)
        led = [cursor for stage in _LED for cursor in by_stage[stage]]
        self._ask_metadata([cursor for cursor in led if cursor.leader == NO_NODE], now_ms, actions)
        for node_id, cursors in self._ready(by_stage[Stage.FIND], now_ms).items():
            found = [(cursor.partition, cursor.leader_epoch, cursor.find) for cursor in cursors]
            actions.append(FindOffsets(node_id, self._begin(cursors), found))
        for node_id, cursors in self._ready(by_stage[Stage.CHECK], now_ms).items():
            checked = [(cursor.partition, cursor.leader_epoch, cursor.epoch) for cursor in cursors]
            actions.append(FindEpochEnds(node_id, self._begin(cursors), checked))
        self._ask_fetches(by_stage[Stage.FETCH], now_ms, actions)
        return actions

    def next_due_ms(self, now_ms: int) -> int | None:
        """The time to call `actions` again though nothing has happened."""
        dues = [cursor.due_ms for cursor in self._cursors.values() if not cursor.asking and cursor.due_ms > now_ms]
        if not self._metadata_asked and self._metadata_due_ms > now_ms and self._is_one_leaderless():
            dues.append(self._metadata_due_ms)
        return min(dues, default=None)

    def _is_one_leaderless(self) -> bool:
        return any(cursor.leader == NO_NODE and cursor.stage in _LED for cursor in self._cursors.values())

    def _begin(self, cursors: list[Cursor]) -> int:
        request_id = next(self._ids)
        for cursor in cursors:
            cursor.asking = request_id
        return request_id

    def _ready(self, cursors: Iterable[Cursor], now_ms: int) -> dict[int, list[Cursor]]:
        """The cursors of which something can be asked now, by their leaders."""
        ready: dict[int, list[Cursor]] = {}
        for cursor in cursors:
            if not cursor.asking and cursor.due_ms <= now_ms and cursor.leader != NO_NODE:
                ready.setdefault(cursor.leader, []).append(cursor)
        return ready

    def _ask_committed(self, cursors: list[Cursor], now_ms: int, actions: list[Action]) -> None:
        wanted = [cursor for cursor in cursors if not cursor.asking and cursor.due_ms <= now_ms]
        if wanted:
            actions.append(NeedCommitted(self._begin(wanted), [cursor.partition for cursor in wanted]))

    def _ask_metadata(self, cursors: list[Cursor], now_ms: int, actions: list[Action]) -> None:
        if cursors and not self._metadata_asked and self._metadata_due_ms <= now_ms:
            self._metadata_asked = True
            actions.append(NeedMetadata(sorted({cursor.partition[0] for cursor in cursors})))

    def _ask_fetches(self, cursors: list[Cursor], now_ms: int, actions: list[Action]) -> None:
        by_node: dict[int, list[Cursor]] = {}
        for cursor in cursors:
            node_id = cursor.node_at(now_ms)
            if node_id != NO_NODE and not cursor.is_paused and not cursor.is_read_up:
                by_node.setdefault(node_id, []).append(cursor)
        busy = {node_id for node_id, _ in self._fetches.values()}
        share_bytes = self.limits.queued_bytes // max(1, len(by_node))
        for node_id, readable in by_node.items():
            if node_id not in busy:
                fetch = self._fetch_of(node_id, readable, share_bytes, now_ms)
                if fetch is not None:
                    actions.append(fetch)

    def _fetch_of(self, node_id: int, readable: list[Cursor], share_bytes: int, now_ms: int) -> Fetch | None:
        wanted: list[Cursor] = []
        is_held_back = False
        for cursor in readable:
            cursor.is_held_back = cursor.queued_records >= self.limits.queued_records
            is_held_back = is_held_back or cursor.is_held_back
            if not cursor.asking and cursor.due_ms <= now_ms and not cursor.is_held_back:
                wanted.append(cursor)
        self.is_held_back = self.is_held_back or is_held_back
        if not wanted:
            return None
        room_bytes = self.limits.queued_bytes - self.queued_bytes - sum(size for _, size in self._fetches.values())
        sizes = [self._partition_bytes(cursor, share_bytes) for cursor in wanted]
        if room_bytes < sizes[0] and (self.queued_bytes or self._fetches):
            self.is_held_back = True
            return None
        most_bytes = max(min(self.limits.max_bytes, share_bytes, room_bytes, sum(sizes)), sizes[0])
        request_id = self._begin(wanted)
        self._fetches[request_id] = (node_id, most_bytes)
        asked = [
            AskedPartition(each.partition, each.offset, each.leader_epoch, size)
            for each, size in zip(wanted, sizes, strict=True)
        ]
        wait_ms = self.limits.wait_ms
        if is_held_back:
            wait_ms = min(wait_ms, self._held_back_wait_ms)
            self._held_back_wait_ms = max(1, wait_ms * 2)
        return Fetch(node_id, request_id, asked, wait_ms, self.limits.min_bytes, most_bytes)

    def _partition_bytes(self, cursor: Cursor, share_bytes: int) -> int:
        """No broker gets more than its share, or others would never be asked. A batch that is known to be larger than
        what was asked for is an exception."""
        is_larger = cursor.max_bytes > self.limits.partition_max_bytes
        return cursor.max_bytes if is_larger else max(1, min(cursor.max_bytes, share_bytes))

    # What has arrived

    def leaders(self, found: Mapping[AnyPlace, Leader], refused: Mapping[AnyPlace, int], now_ms: int) -> None:
        """Take in what metadata says, asked for or not: the leaders, and why there is none. Only an answer is followed
        by a pause: what was known before may lack a topic that is new to this consumer."""
        if self._metadata_asked:
            self._metadata_asked = False
            self._metadata_due_ms = now_ms + self.limits.retry_backoff_ms
        for partition, cursor in self._cursors.items():
            if (leader := found.get(partition)) is not None:
                cursor.led_by(leader)
            elif (code := refused.get(partition, 0)) and cursor.leader == NO_NODE:
                answers.report_refusal(self._events, cursor, code)

    def metadata_failed(self, now_ms: int) -> None:
        self._metadata_asked = False
        self._metadata_due_ms = now_ms + self.limits.retry_backoff_ms

    def committed(self, request_id: int, found: Mapping[AnyPlace, tuple[int, int]], now_ms: int) -> None:
        """The group's offsets with their epochs; a partition that has none is missing."""
        for cursor in self._waiting(request_id):
            offset, epoch = found.get(cursor.partition, (-1, -1))
            if offset >= 0:
                cursor.position(offset, epoch)
            else:
                answers.reset(self._events, cursor, self.limits, ErrorCodes._NO_OFFSET, "no offset is committed")

    def offsets_found(self, request_id: int, found: Iterable[OffsetFound], now_ms: int) -> None:
        self._each(request_id, found, lambda cursor, each: answers.offset_found(cursor, each), now_ms)

    def epoch_ends_found(self, request_id: int, found: Iterable[EpochEndFound], now_ms: int) -> None:
        self._each(
            request_id,
            found,
            lambda cursor, each: answers.epoch_end_found(self._events, cursor, each, self.limits),
            now_ms,
        )

    def fetched(self, request_id: int, found: Sequence[Fetched], now_ms: int) -> None:
        node_id, _ = self._fetches.pop(request_id, (NO_NODE, 0))

        def take(cursor: Cursor, each: Fetched) -> None:
            chunk = answers.fetched(self._events, cursor, each, self.limits, node_id, now_ms)
            if chunk is not None:
                size_bytes = len(chunk.records)
                cursor.queued_bytes += size_bytes
                cursor.queued_records += chunk.record_count
                self.queued_bytes += size_bytes
                self._cursors[cursor.partition] = self._cursors.pop(cursor.partition)

        self._each(request_id, found, take, now_ms)
        for each in found:
            cursor = self._cursors.get(each.partition)
            if each.leader is not None and cursor is not None and cursor.leader == NO_NODE != each.leader.node_id:
                cursor.led_by(each.leader._replace(topic_id=cursor.topic_id))
                cursor.due_ms = now_ms  # the pause is meant for whom we have asked

    def lost(self, request_id: int, code: int, now_ms: int) -> None:
        """The request got no answer, or one that could not be read; `code` is a number of librdkafka's."""
        was_fetch = self._fetches.pop(request_id, None) is not None
        for cursor in self._waiting(request_id):
            cursor.asking = 0
            cursor.due_ms = now_ms + self.limits.retry_backoff_ms
            if cursor.stage != Stage.STORED and (code == ErrorCodes._BAD_MSG or (code > 0 and not is_retriable(code))):
                # The next answer will hardly be better, so nobody may wait for it without knowing.
                cursor.due_ms = now_ms + self.limits.error_backoff_ms
                answers.report(self._events, cursor, code, f"the leader's answer was {text_of(code)}")
            if cursor.stage == Stage.CHECK and code == ErrorCodes._UNSUPPORTED_FEATURE:
                cursor.checked_epoch = cursor.leader_epoch
                cursor.stage = Stage.FETCH
                cursor.due_ms = now_ms
            elif cursor.stage == Stage.STORED:
                answers.report(self._events, cursor, code, "the committed offset could not be asked for")
            elif was_fetch and cursor.replica != NO_NODE:
                cursor.replica = NO_NODE
            else:
                cursor.forget_leader()

    def _waiting(self, request_id: int) -> list[Cursor]:
        return [cursor for cursor in self._cursors.values() if cursor.asking == request_id]

    def _each(
        self, request_id: int, found: Iterable[Answer], take: Callable[[Cursor, Answer], None], now_ms: int
    ) -> None:
        """Give each cursor that still waits for this request its part; one that the answer leaves out asks again."""
        for each in found:
            cursor = self._cursors.get(each.partition)
            if cursor is None or cursor.asking != request_id:
                continue
            cursor.asking = 0
            if each.error_code:
                answers.refused(self._events, cursor, each.error_code, self.limits, now_ms)
            else:
                cursor.reported_code = 0
                take(cursor, each)
        for cursor in self._waiting(request_id):
            cursor.asking = 0
            cursor.due_ms = now_ms + self.limits.retry_backoff_ms
