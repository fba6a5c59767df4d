"""The consumer's machine: whom to ask for what, and what the answers mean. It is told the time and what arrived.

    STORED --committed--> FETCH        nothing committed: by the reset policy, to FIND or HALTED
    FIND --offset found--> FETCH
    FETCH --a newer leader--> CHECK --still there--> FETCH
                                    --truncated--> FETCH at the first offset that differs, and the application is told

A request that is under way is known by its id; a place remembers the one it waits for, so whatever has changed since
it was sent makes its answer stale. What has been fetched already becomes stale by the place's version.

At most one fetch is under way for each broker: it asks for every partition there that may be read. What is queued and
what is under way stay within one bound for all partitions, and those that gave something last are asked for last.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from typing import TypeVar

from oncelog.client.error_codes import ErrorCodes
from oncelog.client.errors import is_retriable, text_of
from oncelog.client.fetching import answers
from oncelog.client.fetching.place import Place, Stage
from oncelog.client.fetching.values import (
    NO_NODE,
    Action,
    AskedPartition,
    Chunk,
    Event,
    Fetch,
    Fetched,
    FetchLimits,
    FindEpochEnds,
    FindOffsets,
    FoundEpochEnd,
    FoundOffset,
    Leader,
    NeedCommitted,
    NeedMetadata,
    Partition,
)

Answer = TypeVar("Answer", Fetched, FoundOffset, FoundEpochEnd)

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
        self._places: dict[Partition, Place] = {}
        self._ids = count(1)
        self._fetches: dict[int, tuple[int, int]] = {}  # under way: node by request, and the bytes it may bring
        self._events: deque[Event] = deque()
        self._metadata_asked = False
        self._metadata_due_ms = 0

    # What the application wants

    def assign(self, partition: Partition, offset: int, epoch: int = -1, stop_at: int | None = None) -> None:
        place = Place(partition, self.limits.partition_max_bytes)
        place.stop_at = stop_at
        place.start_at(offset, epoch)
        self._places[partition] = place

    def unassign(self, partition: Partition) -> None:
        place = self._places.pop(partition, None)
        if place is not None:
            place.version += 1
            place.halt()

    def seek(self, partition: Partition, offset: int, epoch: int = -1) -> None:
        self._places[partition].start_at(offset, epoch)

    def fetch_again(self, chunk: Chunk, offset: int, epoch: int, now_ms: int) -> None:
        """What it brought cannot be read from this offset on. It may be whole another time, or elsewhere."""
        if chunk.is_current and self._places.get(chunk.partition) is chunk.place:
            chunk.place.start_at(offset, epoch)
            chunk.place.forget_leader()
            chunk.place.due_ms = now_ms + self.limits.error_backoff_ms

    def pause(self, partition: Partition) -> None:
        """Nothing more is asked for. What has been fetched is not forgotten: `rewind` does that."""
        self._places[partition].is_paused = True

    def rewind(self, partition: Partition, position: tuple[int, int] | None) -> None:
        """Fetch again from where the application stands, if it has begun; what was fetched ahead is stale."""
        place = self._places[partition]
        if position is not None:
            place.start_at(*position)
        elif place.stage == Stage.FETCH and place.began_at is not None:
            place.start_at(*place.began_at)

    def resume(self, partition: Partition) -> None:
        self._places[partition].is_paused = False

    @property
    def places(self) -> Mapping[Partition, Place]:
        return self._places

    def taken(self, chunk: Chunk) -> None:
        """The application has begun to read it, or it was thrown away: there is room for as much."""
        size_bytes = len(chunk.records)
        self._held_back_wait_ms = HELD_BACK_WAIT_MS
        chunk.place.queued_bytes -= size_bytes
        chunk.place.queued_records -= chunk.record_count
        self.queued_bytes -= size_bytes

    def events(self) -> list[Event]:
        """What has come for the application since it was last asked."""
        found = list(self._events)
        self._events.clear()
        return found

    # What is to be done

    def actions(self, now_ms: int) -> list[Action]:
        actions: list[Action] = []
        self.is_held_back = False
        by_stage: dict[Stage, list[Place]] = {stage: [] for stage in Stage}
        for place in self._places.values():
            by_stage[place.stage].append(place)
        self._ask_committed(by_stage[Stage.STORED], now_ms, actions)
        led = [place for stage in _LED for place in by_stage[stage]]
        self._ask_metadata([place for place in led if place.leader == NO_NODE], now_ms, actions)
        for node_id, places in self._ready(by_stage[Stage.FIND], now_ms).items():
            found = [(place.partition, place.leader_epoch, place.find) for place in places]
            actions.append(FindOffsets(node_id, self._begin(places), found))
        for node_id, places in self._ready(by_stage[Stage.CHECK], now_ms).items():
            checked = [(place.partition, place.leader_epoch, place.epoch) for place in places]
            actions.append(FindEpochEnds(node_id, self._begin(places), checked))
        self._ask_fetches(by_stage[Stage.FETCH], now_ms, actions)
        return actions

    def next_due_ms(self, now_ms: int) -> int | None:
        """When to call `actions` again though nothing has happened."""
        dues = [place.due_ms for place in self._places.values() if not place.asking and place.due_ms > now_ms]
        if not self._metadata_asked and self._metadata_due_ms > now_ms and self._is_one_leaderless():
            dues.append(self._metadata_due_ms)
        return min(dues, default=None)

    def _is_one_leaderless(self) -> bool:
        return any(place.leader == NO_NODE and place.stage in _LED for place in self._places.values())

    def _begin(self, places: list[Place]) -> int:
        request_id = next(self._ids)
        for place in places:
            place.asking = request_id
        return request_id

    def _ready(self, places: Iterable[Place], now_ms: int) -> dict[int, list[Place]]:
        """Those of whom something can be asked now, by their leaders."""
        ready: dict[int, list[Place]] = {}
        for place in places:
            if not place.asking and place.due_ms <= now_ms and place.leader != NO_NODE:
                ready.setdefault(place.leader, []).append(place)
        return ready

    def _ask_committed(self, places: list[Place], now_ms: int, actions: list[Action]) -> None:
        wanted = [place for place in places if not place.asking and place.due_ms <= now_ms]
        if wanted:
            actions.append(NeedCommitted(self._begin(wanted), [place.partition for place in wanted]))

    def _ask_metadata(self, places: list[Place], now_ms: int, actions: list[Action]) -> None:
        if places and not self._metadata_asked and self._metadata_due_ms <= now_ms:
            self._metadata_asked = True
            actions.append(NeedMetadata(sorted({place.partition[0] for place in places})))

    def _ask_fetches(self, places: list[Place], now_ms: int, actions: list[Action]) -> None:
        by_node: dict[int, list[Place]] = {}
        for place in places:
            node_id = place.node_at(now_ms)
            if node_id != NO_NODE and not place.is_paused and not place.is_read_up:
                by_node.setdefault(node_id, []).append(place)
        busy = {node_id for node_id, _ in self._fetches.values()}
        share_bytes = self.limits.queued_bytes // max(1, len(by_node))
        for node_id, readable in by_node.items():
            if node_id not in busy:
                fetch = self._fetch_of(node_id, readable, share_bytes, now_ms)
                if fetch is not None:
                    actions.append(fetch)

    def _fetch_of(self, node_id: int, readable: list[Place], share_bytes: int, now_ms: int) -> Fetch | None:
        wanted: list[Place] = []
        is_held_back = False
        for place in readable:
            place.is_held_back = place.queued_records >= self.limits.queued_records
            is_held_back = is_held_back or place.is_held_back
            if not place.asking and place.due_ms <= now_ms and not place.is_held_back:
                wanted.append(place)
        self.is_held_back = self.is_held_back or is_held_back
        if not wanted:
            return None
        room_bytes = self.limits.queued_bytes - self.queued_bytes - sum(size for _, size in self._fetches.values())
        sizes = [self._partition_bytes(place, share_bytes) for place in wanted]
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

    def _partition_bytes(self, place: Place, share_bytes: int) -> int:
        """No broker gets more than its share, or others would never be asked. A batch that is known to be larger than
        what was asked for is an exception."""
        is_larger = place.max_bytes > self.limits.partition_max_bytes
        return place.max_bytes if is_larger else max(1, min(place.max_bytes, share_bytes))

    # What has arrived

    def leaders(self, found: Mapping[Partition, Leader], refused: Mapping[Partition, int], now_ms: int) -> None:
        """What metadata says, asked for or not: the leaders, and why there is none."""
        self._metadata_asked = False
        self._metadata_due_ms = now_ms + self.limits.retry_backoff_ms
        for partition, place in self._places.items():
            if (leader := found.get(partition)) is not None:
                place.led_by(leader)
            elif (code := refused.get(partition, 0)) and place.leader == NO_NODE:
                answers.report_refusal(self._events, place, code)

    def metadata_failed(self, now_ms: int) -> None:
        self._metadata_asked = False
        self._metadata_due_ms = now_ms + self.limits.retry_backoff_ms

    def committed(self, request_id: int, found: Mapping[Partition, tuple[int, int]], now_ms: int) -> None:
        """The group's offsets with their epochs; a partition that has none is missing."""
        for place in self._waiting(request_id):
            offset, epoch = found.get(place.partition, (-1, -1))
            if offset >= 0:
                place.position(offset, epoch)
            else:
                answers.reset(self._events, place, self.limits, ErrorCodes._NO_OFFSET, "no offset is committed")

    def offsets_found(self, request_id: int, found: Iterable[FoundOffset], now_ms: int) -> None:
        self._each(request_id, found, lambda place, each: answers.offset_found(place, each), now_ms)

    def epoch_ends_found(self, request_id: int, found: Iterable[FoundEpochEnd], now_ms: int) -> None:
        self._each(
            request_id,
            found,
            lambda place, each: answers.epoch_end_found(self._events, place, each, self.limits),
            now_ms,
        )

    def fetched(self, request_id: int, found: Sequence[Fetched], now_ms: int) -> None:
        node_id, _ = self._fetches.pop(request_id, (NO_NODE, 0))

        def take(place: Place, each: Fetched) -> None:
            chunk = answers.fetched(self._events, place, each, self.limits, node_id, now_ms)
            if chunk is not None:
                size_bytes = len(chunk.records)
                place.queued_bytes += size_bytes
                place.queued_records += chunk.record_count
                self.queued_bytes += size_bytes
                self._places[place.partition] = self._places.pop(place.partition)

        self._each(request_id, found, take, now_ms)
        for each in found:
            place = self._places.get(each.partition)
            if each.leader is not None and place is not None and place.leader == NO_NODE != each.leader.node_id:
                place.led_by(each.leader._replace(topic_id=place.topic_id))
                place.due_ms = now_ms  # the pause is meant for whom we have asked

    def lost(self, request_id: int, code: int, now_ms: int) -> None:
        """The request got no answer, or one that could not be read; `code` is a number of librdkafka's."""
        was_fetch = self._fetches.pop(request_id, None) is not None
        for place in self._waiting(request_id):
            place.asking = 0
            place.due_ms = now_ms + self.limits.retry_backoff_ms
            if place.stage != Stage.STORED and (code == ErrorCodes._BAD_MSG or (code > 0 and not is_retriable(code))):
                # The next answer will hardly be better, so nobody may wait for it without knowing.
                place.due_ms = now_ms + self.limits.error_backoff_ms
                answers.report(self._events, place, code, f"the leader's answer was {text_of(code)}")
            if place.stage == Stage.CHECK and code == ErrorCodes._UNSUPPORTED_FEATURE:
                place.checked_epoch = place.leader_epoch
                place.stage = Stage.FETCH
                place.due_ms = now_ms
            elif place.stage == Stage.STORED:
                answers.report(self._events, place, code, "the committed offset could not be asked for")
            elif was_fetch and place.replica != NO_NODE:
                place.replica = NO_NODE
            else:
                place.forget_leader()

    def _waiting(self, request_id: int) -> list[Place]:
        return [place for place in self._places.values() if place.asking == request_id]

    def _each(
        self, request_id: int, found: Iterable[Answer], take: Callable[[Place, Answer], None], now_ms: int
    ) -> None:
        """Give each place that still waits for this request its part; one that the answer leaves out asks again."""
        for each in found:
            place = self._places.get(each.partition)
            if place is None or place.asking != request_id:
                continue
            place.asking = 0
            if each.error_code:
                answers.refused(self._events, place, each.error_code, self.limits, now_ms)
            else:
                place.reported_code = 0
                take(place, each)
        for place in self._waiting(request_id):
            place.asking = 0
            place.due_ms = now_ms + self.limits.retry_backoff_ms
