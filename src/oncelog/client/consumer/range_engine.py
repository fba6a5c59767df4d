"""The consumer's engine for one partition up to one offset, over connections that outlive it."""

import asyncio
import threading
from collections.abc import Mapping
from typing import Final, NamedTuple
from uuid import UUID

from oncelog.client.consumer.chunk_readers import Position
from oncelog.client.consumer.engine import Engine, Told
from oncelog.client.errors import KafkaError, KafkaException, error_of, exception_of
from oncelog.client.fetching.events import Chunk, EndReached, Failed
from oncelog.client.fetching.values import EARLIEST, LATEST
from oncelog.client.net.offsets import list_offsets
from oncelog.client.net.tasks import Tasks
from oncelog.client.net.warm_connections import Warm
from oncelog.client.properties import ConsumerSettings
from oncelog.clock import monotonic_s
from oncelog.slots import AnyPlace
from oncelog.waiting import until_set

# The time without records before the reader looks why.
IDLE_S: Final = 2.0
PAUSE_S: Final = 0.2
# Of what is asked for first: what a record takes, at a guess; more if it turns out to be too little.
GUESSED_RECORD_BYTES: Final = 512
LEAST_BYTES: Final = 64 << 10


class Idle:
    """Nothing has come for `IDLE_S`."""


class Bounds(NamedTuple):
    start: int
    end: int
    committed_end: int


class RangeEngine:
    """Made and used in the reader's thread; the engine itself works on the loop of its connections."""

    def __init__(self, client: Warm, partition: AnyPlace, start: int, end: int, *, topic_id: str = "") -> None:
        """With a `topic_id` no other topic of this name is read."""
        self._client = client
        self._topic_id = UUID(topic_id) if topic_id else None
        self._partition = partition
        self._start = start
        self._end = end
        self._something_came = threading.Event()
        self._made: Engine | None = None
        self._is_closed = False
        client.thread.call_soon(self._begin)

    @property
    def settings(self) -> ConsumerSettings:
        return self._client.settings

    def _begin(self) -> None:
        engine = Engine(
            self._client.settings,
            self._client.brokers,
            self._find_committed,
            self._something_came.set,
            self._client.thread.call_soon,
        )
        if self._topic_id is not None:
            engine.wanted_ids[self._partition[0]] = self._topic_id
        engine.fetcher.assign(self._partition, self._start, stop_at=self._end)
        first_bytes = max(LEAST_BYTES, (self._end - self._start) * GUESSED_RECORD_BYTES)
        place = engine.fetcher.cursors[self._partition]
        place.max_bytes = min(place.max_bytes, first_bytes)
        self._made = engine
        engine.pump()

    async def _find_committed(self, partitions: list[AnyPlace]) -> Mapping[AnyPlace, tuple[int, int]]:
        raise AssertionError("a range begins at an offset")

    def close(self) -> None:
        """Close without waiting: what still goes on is of no use, and does no harm."""
        self._client.thread.call_soon(self._end_engine)

    def _end_engine(self) -> None:
        if self._made is not None:
            _closing.begin(self._made.close())

    def next_event(self) -> Chunk | Failed | EndReached | Told | Idle:
        """The next thing that is not stale, waited for."""
        give_up_s = monotonic_s() + IDLE_S
        while True:
            engine = self._made
            event = None if engine is None else engine.next_event()
            if event is not None:
                if isinstance(event, Chunk) and engine is not None:
                    engine.taken(event)
                if event.is_current:
                    return event
                continue
            self._something_came.clear()
            if self._made is not None and self._made.has_events:
                continue
            left_s = give_up_s - monotonic_s()
            if left_s <= 0:
                return Idle()
            until_set(self._something_came, left_s)

    def fetch_again(self, chunk: Chunk, offset: int) -> None:
        assert self._made is not None
        self._made.damaged(chunk, Position(offset))

    def seek(self, offset: int, *, is_later: bool = False) -> None:
        async def seek() -> None:
            assert self._made is not None
            if is_later:
                await asyncio.sleep(PAUSE_S)
            self._made.fetcher.seek(self._partition, offset)
            self._made.pump()

        self._client.thread.run(seek())

    def bounds(self) -> Bounds | KafkaError:
        """The bounds of the log now, or the reason why they are not known now."""
        try:
            return self._client.thread.run(self._ask_bounds())
        except KafkaException as failure:
            return failure.error

    async def _ask_bounds(self) -> Bounds:
        brokers = self._client.brokers
        topic, index = self._partition
        metadata = await brokers.refresh([topic])
        known = metadata.topics.get(topic)
        if known is None or index not in known.partitions:
            code = known.error_code if known is not None else 0
            raise exception_of(code or KafkaError.UNKNOWN_TOPIC_OR_PART, f"{topic}-{index}")
        if self._topic_id is not None and known.topic_id not in (None, self._topic_id):
            raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_ID, f"topic {topic} was deleted and made again"))
        leader, epoch = metadata.leader(topic, index)
        if leader < 0:
            raise exception_of(KafkaError.LEADER_NOT_AVAILABLE, f"{topic}-{index}")

        async def offset(time: int, *, read_committed: bool = False) -> int:
            asked = [(self._partition, epoch, time)]
            (answer,) = await list_offsets(brokers, leader, asked, read_committed=read_committed)
            if answer.error_code:
                raise KafkaException(error_of(answer.error_code, f"{topic}-{index}"))
            return answer.offset

        end = await offset(LATEST)
        is_committed = self.settings.isolation_level == "read_committed"
        committed_end = await offset(LATEST, read_committed=True) if is_committed else end
        return Bounds(await offset(EARLIEST), end, committed_end)


_closing: Final = Tasks()
