"""Drives the fetching machine over connections: sends what it asks for, and gives it what comes back.

Everything here runs on the client's loop, except `next_event` and `taken`, which belong to the application's thread.
Bytes are handed over as they came; the application decodes them where it wants them. Fetches have a connection of their
own to each broker, because a broker that waits for records answers nothing else on it meanwhile.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from oncelog.client.consumer.chunk_readers import Position
from oncelog.client.errors import KafkaError, KafkaException
from oncelog.client.fetching.cursor import Cursor
from oncelog.client.fetching.events import Chunk, Event
from oncelog.client.fetching.fetcher import Fetcher
from oncelog.client.fetching.values import (
    Action,
    Fetch,
    Fetched,
    FetchLimits,
    FindEpochEnds,
    FindOffsets,
    Leader,
    NeedCommitted,
    NeedMetadata,
)
from oncelog.client.net.brokers import Brokers
from oncelog.client.net.connection import Connection
from oncelog.client.net.metadata import BrokerAddress
from oncelog.client.net.offsets import epoch_ends, list_offsets
from oncelog.client.net.tasks import Tasks
from oncelog.client.properties import ConsumerSettings
from oncelog.slots import AnyPlace
from oncelog.wire.fields import NO_LEADER as NO_LEADER_NAMED
from oncelog.wire.fields import NodeEndpoint
from oncelog.wire.frames import MalformedFrame
from oncelog.wire.hot import FETCH_TOPIC_IDS
from oncelog.wire.hot_client import (
    FETCH_KEY,
    FETCH_VERSIONS,
    FETCH_VERSIONS_BY_NAME,
    FetchPartition,
    pack_fetch,
    read_fetch_answer,
)

_log = logging.getLogger("oncelog.client")

FETCHES = "fetch"
NO_LEADER = -1

# Errors of no single partition, which do not pass before someone does something.
_TROUBLE = frozenset({KafkaError._ALL_BROKERS_DOWN, KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError._RESOLVE})

FindCommitted = Callable[[list[AnyPlace]], Coroutine[Any, Any, Mapping[AnyPlace, tuple[int, int]]]]


def limits_of(settings: ConsumerSettings) -> FetchLimits:
    return FetchLimits(
        min_bytes=settings.fetch_min_bytes,
        wait_ms=settings.fetch_wait_max_ms,
        max_bytes=max(settings.fetch_max_bytes, 1),
        partition_max_bytes=settings.max_partition_fetch_bytes,
        queued_bytes=settings.queued_max_messages_kbytes * 1024,
        queued_records=settings.queued_min_messages,
        read_committed=settings.isolation_level == "read_committed",
        reset=settings.auto_offset_reset,
        reports_end=settings.enable_partition_eof,
        retry_backoff_ms=settings.retry_backoff_ms,
        error_backoff_ms=settings.fetch_error_backoff_ms,
    )


@dataclass(frozen=True, slots=True)
class Told:
    error: KafkaError

    is_current = True


class Engine:
    """`notify` is called on the loop when there is something to take that was not there before."""

    def __init__(
        self,
        settings: ConsumerSettings,
        brokers: Brokers,
        find_committed: FindCommitted,
        notify: Callable[[], None],
        wake: Callable[[Callable[[], None]], object],
        purpose: str = FETCHES,
    ) -> None:
        self.fetcher = Fetcher(limits_of(settings))
        self._purpose = purpose  # of its connections
        self._settings = settings
        self._brokers = brokers
        self._find_committed = find_committed
        self._notify = notify
        self._wake = wake  # has a function called on the loop, from any thread
        self._events: deque[Event | Told] = deque()
        self._taken: deque[Chunk] = deque()
        self._connections: dict[int, Connection] = {}
        self._tasks = Tasks()
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._seen_metadata: object = None
        self.wanted_ids: dict[str, UUID] = {}  # of topics that are read by no other of their name
        self.on_trouble: Callable[[KafkaError], None] = self.tell
        self.on_fetched: Callable[[Iterable[Event]], None] | None = None
        self._trouble = 0  # what was told last
        self._is_closed = False

    async def close(self) -> None:
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        await self._tasks.close()
        self._events.clear()

    # --- the application's side

    @property
    def has_events(self) -> bool:
        return bool(self._events)

    def next_event(self) -> Event | Told | None:
        return self._events.popleft() if self._events else None

    def taken(self, chunk: Chunk) -> None:
        self._taken.append(chunk)
        if self.fetcher.is_held_back:
            self._wake(self.pump)

    def damaged(self, chunk: Chunk, position: Position) -> None:
        """The chunk cannot be read from there on. What is queued behind it is stale at once; the loop fetches it
        again."""
        chunk.cut()
        self._wake(lambda: self._fetch_again(chunk, position))

    def go_back(self, places: Mapping[AnyPlace, Position | None]) -> None:
        """The application stands there again, or where the partition was begun. What lies ready behind is stale at
        once; the loop fetches it again."""
        cursors = self.fetcher.cursors
        found = [(cursors.get(each), place) for each, place in places.items()]  # the loop may give one back meanwhile
        stale = [(cursor, cursor.version, place) for cursor, place in found if cursor is not None]
        for cursor, version, _ in stale:
            cursor.damaged_version = version
        self._wake(lambda: self._go_back(stale))

    # --- what the loop is told

    def tell(self, error: KafkaError) -> None:
        """Something that belongs to no partition, to be handed out like the others."""
        self._events.append(Told(error))
        self._notify()

    def _fetch_again(self, chunk: Chunk, position: Position) -> None:
        self.fetcher.fetch_again(chunk, position.offset, position.leader_epoch, self._now_ms())
        self.pump()

    def _go_back(self, stale: Iterable[tuple[Cursor, int, Position | None]]) -> None:
        for cursor, version, position in stale:
            if cursor.version == version and self.fetcher.cursors.get(cursor.partition) is cursor:
                self.fetcher.rewind(cursor.partition, position or cursor.began_at)
        self.pump()

    def pump(self) -> None:
        """Do whatever there is to do now, and be called again when there will be more."""
        if self._is_closed:
            return
        now_ms = self._now_ms()
        self._learn_leaders(now_ms)
        self._put_taken()
        for action in self.fetcher.actions(now_ms):
            self._do(action)
        if self.fetcher.is_held_back and self._taken:
            # It was taken when nobody had asked to be told yet.
            self._wake(self.pump)
        events = self.fetcher.events()
        if events:
            if self.on_fetched is not None:
                self.on_fetched(events)
            self._events.extend(events)
            self._notify()
        self._set_timer(now_ms)

    def _put_taken(self) -> None:
        while self._taken:
            self.fetcher.taken(self._taken.popleft())

    def _set_timer(self, now_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due_ms = self.fetcher.next_due_ms(now_ms)
        if due_ms is not None:
            self._timer = self._loop.call_later((due_ms - now_ms) / 1000, self.pump)

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def _do(self, action: Action) -> None:
        if isinstance(action, Fetch):
            connection = self._connections.get(action.node_id)
            if connection is not None and not connection.is_closed:
                self._send_fetch(connection, action)
            else:
                self._spawn(self._open_and_fetch(action), action.request_id)
        elif isinstance(action, FindOffsets):
            self._spawn(self._find_offsets(action), action.request_id)
        elif isinstance(action, FindEpochEnds):
            self._spawn(self._find_epoch_ends(action), action.request_id)
        elif isinstance(action, NeedCommitted):
            self._spawn(self._ask_committed(action), action.request_id)
        else:
            self._spawn(self._ask_metadata(action), 0)

    def _spawn(self, coroutine: Coroutine[Any, Any, None], request_id: int) -> None:
        self._tasks.begin(self._guarded(coroutine, request_id))

    async def _guarded(self, coroutine: Coroutine[Any, Any, None], request_id: int) -> None:
        try:
            await coroutine
        except KafkaException as failure:
            self.tell_trouble(failure.error)
            if request_id:
                self.fetcher.lost(request_id, failure.error.code(), self._now_ms())
            else:
                self.fetcher.metadata_failed(self._now_ms())
        except Exception:
            self._unexpected(request_id)
        self.pump()

    def _unexpected(self, request_id: int) -> None:
        """A defect, or an impossible answer. What waits for the request goes on all the same, and the
        application is told."""
        _log.exception("a consumer's question failed unexpectedly")
        if request_id:
            self.fetcher.lost(request_id, KafkaError._BAD_MSG, self._now_ms())
        else:
            self.fetcher.metadata_failed(self._now_ms())

    def tell_trouble(self, error: KafkaError) -> None:
        """Tell what keeps the whole consumer from reading, once until something has succeeded."""
        if error.code() in _TROUBLE and error.code() != self._trouble:
            self._trouble = error.code()
            self.on_trouble(error)

    def trouble_is_over(self) -> None:
        self._trouble = 0

    # --- metadata

    async def _ask_metadata(self, action: NeedMetadata) -> None:
        await self._brokers.refresh(action.topics)
        self.trouble_is_over()
        self._seen_metadata = None

    def _learn_leaders(self, now_ms: int) -> None:
        """However it was refreshed, new metadata is told to the machine once."""
        metadata = self._brokers.metadata
        if metadata is self._seen_metadata:
            return
        self._seen_metadata = metadata
        found: dict[AnyPlace, Leader] = {}
        refused: dict[AnyPlace, int] = {}
        for topic, index in self.fetcher.cursors:
            known = metadata.topics.get(topic)
            if known is None:
                continue
            partition = known.partitions.get(index)
            if known.topic_id not in (None, self.wanted_ids.get(topic, known.topic_id)):
                self.fetcher.cursors[topic, index].forget_leader()
                refused[topic, index] = KafkaError.UNKNOWN_TOPIC_ID
            elif partition is None:
                refused[topic, index] = known.error_code or KafkaError._UNKNOWN_PARTITION
            elif partition.leader == NO_LEADER:
                refused[topic, index] = partition.error_code or KafkaError.LEADER_NOT_AVAILABLE
            else:
                found[topic, index] = Leader(partition.leader, partition.leader_epoch, known.topic_id)
        self.fetcher.leaders(found, refused, now_ms)

    # --- fetches

    async def _open_and_fetch(self, action: Fetch) -> None:
        connection = await self._brokers.connection(action.node_id, self._purpose)
        self._send_fetch(connection, action)  # raises where the broker does not speak our versions
        self._connections[action.node_id] = connection

    def _send_fetch(self, connection: Connection, action: Fetch) -> None:
        topics: dict[str, list[FetchPartition]] = {}
        for (topic, index), offset, leader_epoch, max_bytes in action.asked:
            topics.setdefault(topic, []).append(FetchPartition(index, offset, max_bytes, leader_epoch))
        version, labels = self._labels(connection, topics)
        correlation_id = connection.next_correlation_id()
        frame = pack_fetch(
            version,
            correlation_id,
            connection.client_id,
            [(labels[topic], partitions) for topic, partitions in topics.items()],
            max_wait_ms=action.wait_ms,
            min_bytes=action.min_bytes,
            max_bytes=action.max_bytes,
            read_committed=self.fetcher.limits.read_committed,
            rack=self._settings.client_rack or "",
        )

        names = {label: topic for topic, label in labels.items()}

        def on_answer(answer: memoryview | None, error: KafkaError | None) -> None:
            try:
                self._fetched(action.request_id, version, connection, names, answer, error)
            except Exception:
                self._unexpected(action.request_id)
            self.pump()

        connection.send(frame, correlation_id, on_answer, self._settings.socket_timeout_ms + action.wait_ms)

    def _labels(self, connection: Connection, topics: Iterable[str]) -> tuple[int, dict[str, bytes]]:
        """The version to ask in, and how it calls topics: by their ids where every one is known, so that a topic that
        was made anew is not taken for the old one."""
        ids = {topic: known.topic_id for topic in topics if (known := self._brokers.metadata.topics.get(topic))}
        # Also where metadata does not know the topic any more: the leader that it had is asked all the same.
        ids |= {topic: self.wanted_ids[topic] for topic in topics if topic in self.wanted_ids}
        version = connection.version(FETCH_KEY, *FETCH_VERSIONS)
        if version >= FETCH_TOPIC_IDS and all(ids.get(topic) for topic in topics):
            return version, {topic: topic_id.bytes for topic, topic_id in ids.items() if topic_id}
        return connection.version(FETCH_KEY, *FETCH_VERSIONS_BY_NAME), {topic: topic.encode() for topic in topics}

    def _fetched(
        self,
        request_id: int,
        version: int,
        connection: Connection,
        names: Mapping[bytes, str],
        frame: memoryview | None,
        error: KafkaError | None,
    ) -> None:
        now_ms = self._now_ms()
        if frame is None:
            assert error is not None
            self.fetcher.lost(request_id, error.code(), now_ms)
        else:
            try:
                answer = read_fetch_answer(version, frame)
            except MalformedFrame as malformed:
                connection.close(KafkaError(KafkaError._BAD_MSG, f"{connection.endpoint}: {malformed}"))
                self.fetcher.lost(request_id, KafkaError._BAD_MSG, now_ms)
            else:
                if answer.error_code:
                    self.fetcher.lost(request_id, answer.error_code, now_ms)
                found = [
                    Fetched(
                        (names.get(each.topic, ""), each.partition),
                        each.error_code,
                        each.high_watermark,
                        each.last_stable_offset,
                        each.log_start_offset,
                        list(each.aborted),
                        each.preferred_read_replica,
                        each.records,
                        Leader(*each.leader) if each.leader is not NO_LEADER_NAMED else None,
                    )
                    for each in answer.partitions
                ]
                self._learn(found, answer.endpoints)
                if connection.traffic is not None:
                    connection.traffic.throttle_ms.add(answer.throttle_ms)
                self.fetcher.fetched(request_id, found, now_ms)

    def _learn(self, found: Iterable[Fetched], endpoints: Iterable[NodeEndpoint]) -> None:
        """A broker that leads no more may name who does: nobody need ask."""
        leaders = [
            (*each.partition, each.leader.node_id, each.leader.epoch) for each in found if each.leader is not None
        ]
        if leaders:
            self._brokers.learn(leaders, [BrokerAddress(*each) for each in endpoints])

    # --- the other questions

    async def _find_offsets(self, action: FindOffsets) -> None:
        found = await list_offsets(
            self._brokers, action.node_id, action.asked, read_committed=self.fetcher.limits.read_committed
        )
        self.fetcher.offsets_found(action.request_id, found, self._now_ms())

    async def _find_epoch_ends(self, action: FindEpochEnds) -> None:
        found = await epoch_ends(self._brokers, action.node_id, action.asked)
        self.fetcher.epoch_ends_found(action.request_id, found, self._now_ms())

    async def _ask_committed(self, action: NeedCommitted) -> None:
        found = await self._find_committed(action.partitions)
        self.fetcher.committed(action.request_id, found, self._now_ms())
