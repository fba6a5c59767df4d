"""The sink's topic: `oncelog.sink.NAME` on the destination cluster, one partition, compacted.

It is read from its end, as little as there must be: the last state and what was appended behind it. What the records
come to is `standing.py`'s; here they are fetched, appended and removed. All of it runs on the loop of `Brokers`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from typing import Any, Final, NamedTuple, TypeVar

from oncelog.client import KafkaError, KafkaException, NewTopic
from oncelog.client.door import (
    EARLIEST,
    Brokers,
    ConfigResource,
    ResourceType,
    Timeouts,
    create_topics,
    describe_configs,
    end_offsets,
    error_of,
    is_retriable,
)
from oncelog.clock import monotonic_s, wall_s
from oncelog.records.build import build_batch
from oncelog.records.codecs import GZIP, NONE
from oncelog.records.header import headers
from oncelog.records.read import records_of
from oncelog.slots import Place
from oncelog.spark.sink.errors import BadState, SinkRefused
from oncelog.spark.sink.lane import topic_of
from oncelog.spark.sink.standing import Entry, Standing, start_of
from oncelog.wire.hot_client import PRODUCE_KEY, PRODUCE_VERSIONS_BY_NAME, pack_produce, read_produce_answer

T = TypeVar("T")

MOST_VALUE_BYTES: Final = 64 << 20  # of a state before it is compressed
RECORD_BYTES: Final = 32  # that a record takes beside its key and value, at most
MOST_BATCH_BYTES: Final = 8 << 20  # of a state as it is stored
COMPRESS_FROM_BYTES: Final = 1024
CONFIG: Final = {
    "cleanup.policy": "compact",
    "max.message.bytes": str(MOST_BATCH_BYTES),
    "segment.bytes": str(32 << 20),
    "min.cleanable.dirty.ratio": "0.1",
    "delete.retention.ms": "3600000",
}
FETCH_BYTES: Final = 1 << 20
TAIL_RECORDS: Final = 32  # of the topic's end, at the first try
PAUSE_S: Final = 0.1
TOPIC_PATIENCE_MS: Final = 30_000  # for making the topic
OFFSET_OUT_OF_RANGE: Final = 1
UNKNOWN_S: Final = 3.0  # so long a broker may lag behind that does not know a topic yet
_UNKNOWN: Final = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.UNKNOWN_TOPIC_ID)


class TooOld(Exception):
    """What was read before is not the beginning of what stands there now."""


class Fetched(NamedTuple):
    entries: list[Entry]
    next_offset: int
    high_watermark: int


class SinkTopic:
    """The topic of one sink."""

    def __init__(self, brokers: Brokers, sink: str, patience_ms: int) -> None:
        self._brokers = brokers
        self._place = Place(topic_of(sink), 0)
        self._patience_ms = patience_ms

    # --- its being there

    async def exists(self) -> bool:
        metadata = await self.patiently(lambda: self._brokers.refresh([self._place.topic]))
        topic = metadata.topics.get(self._place.topic)
        if topic is None or not topic.partitions:
            return False
        if len(topic.partitions) != 1:
            raise BadState(f"topic {topic.name} has {len(topic.partitions)} partitions, and a sink's has one")
        return True

    async def create(self) -> None:
        name = self._place.topic
        topic = NewTopic(name, 1, -1, config=CONFIG)
        patience = Timeouts(self._patience_ms, TOPIC_PATIENCE_MS)
        outcome = (await create_topics(self._brokers, [topic], patience, validate_only=False))[name]
        is_there = isinstance(outcome, KafkaException) and outcome.error.code() == KafkaError.TOPIC_ALREADY_EXISTS
        if outcome is not None and not is_there:
            raise SinkRefused(f"topic {name}, for the sink's state, cannot be made: {outcome.error.str()}")
        await self.patiently(self._until_led)

    async def check_config(self) -> None:
        """That the topic keeps what is written, as far as we may know: somebody else may have made it."""
        resource = ConfigResource(ResourceType.TOPIC, self._place.topic)
        patience = Timeouts(self._patience_ms, TOPIC_PATIENCE_MS)
        found = (await describe_configs(self._brokers, [resource], patience))[resource]
        if isinstance(found, KafkaException):
            if found.error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                return  # whoever may not look believes
            raise found
        policy = found["cleanup.policy"].value
        if policy != "compact":
            raise SinkRefused(
                f"topic {self._place.topic} has cleanup.policy={policy}, and would lose the sink's state: set it to "
                "compact, or remove the topic so that it is made as it should be"
            )

    async def _until_led(self) -> None:
        metadata = await self._brokers.refresh([self._place.topic])
        if metadata.leader(*self._place)[0] < 0:
            raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE, retriable=True))

    # --- reading

    async def read(self, known: Standing | None = None, *, back: int = 0) -> Standing:
        """What stands there now. `known`, which may be changed, is what was read before. `back`: so many states more
        are looked at, so that what lies between is known by its keys."""
        if known is not None:
            try:
                await self._go_on(known)
                return known
            except TooOld:
                pass
        return await self.patiently(lambda: self._read_end(back))

    async def read_to(self, known: Standing, offset: int) -> Standing:
        """`known`, with what was appended up to this offset."""
        give_up_s = monotonic_s() + self._patience_ms / 1000
        while True:
            try:
                await self._go_on(known)
            except TooOld:
                words = f"topic {self._place.topic}: what was read or acknowledged up to offset {offset} is not there"
                raise KafkaException(KafkaError(KafkaError._LOG_TRUNCATION, words)) from None
            if known.next_offset > offset:
                return known
            if monotonic_s() > give_up_s:
                raise self._no_answer(f"offset {offset}, which was acknowledged, is not below the high watermark")
            await asyncio.sleep(PAUSE_S)

    async def _go_on(self, known: Standing) -> None:
        while True:
            fetched = await self.patiently(lambda: self._fetch(known.next_offset))
            known.read(fetched.entries)
            known.next_offset = max(known.next_offset, fetched.next_offset)
            if known.next_offset >= fetched.high_watermark:
                return

    async def _read_end(self, back: int) -> Standing:
        first, end = await self._bounds()
        entries: list[Entry] = []
        at, step = end, TAIL_RECORDS
        while at > first:
            wanted = start_of(entries, back)
            if wanted is not None and wanted >= at:
                break
            since = max(first, at - step if wanted is None else wanted)
            entries = [*await self._between(since, at), *entries]
            at, step = since, step * 8
        standing = Standing(next_offset=at)
        standing.read(entries, from_offset=start_of(entries) or 0)
        standing.next_offset = max(standing.next_offset, end)
        return standing

    async def _bounds(self) -> tuple[int, int]:
        ends, starts = await asyncio.gather(
            end_offsets(self._brokers, [self._place]), end_offsets(self._brokers, [self._place], EARLIEST)
        )
        return starts[self._place], ends[self._place]

    async def _between(self, start: int, end: int) -> list[Entry]:
        entries: list[Entry] = []
        at = start
        while at < end:
            try:
                fetched = await self._fetch(at)
            except TooOld:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "the topic was cut", retriable=True)) from None
            entries += [entry for entry in fetched.entries if entry.offset < end]
            if fetched.next_offset <= at:
                # A new leader may not know yet how far the old one got. What it does not show is there, and may be the
                # very claim that decides: passed over, it would never be read, so it is waited for.
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "a fetch brought nothing", retriable=True))
            at = fetched.next_offset
        return entries

    async def _fetch(self, offset: int) -> Fetched:
        """What is there from an offset on, without waiting for more."""
        max_bytes = FETCH_BYTES
        while True:
            found = await self._ask_fetch(offset, max_bytes)
            records = found.records or b""
            entries: list[Entry] = []
            next_offset = offset
            for at, header in headers(records):
                next_offset = max(next_offset, header.last_offset + 1)
                if not header.is_control and header.last_offset >= offset:
                    entries += [
                        Entry(record.offset, record.key, record.value)
                        for record in records_of(records, at, limit_bytes=MOST_VALUE_BYTES)
                        if record.offset >= offset
                    ]
            if entries or next_offset > offset or not records:
                return Fetched(entries, next_offset, found.high_watermark)
            max_bytes *= 4  # not even one batch had room

    async def _ask_fetch(self, offset: int, max_bytes: int) -> Any:
        leader = self._leader()

        def build(schema: Any) -> Any:
            partition = schema.new("FetchPartition", partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
            return schema.new(
                "FetchRequest",
                replica_id=-1,
                max_wait=timedelta(0),
                min_bytes=0,
                max_bytes=max_bytes,
                topics=(schema.new("FetchTopic", topic=self._place.topic, partitions=(partition,)),),
                forgotten_topics_data=(),
            )

        answer = await self._brokers.request(leader, "fetch", build, versions=(4, 12))
        (found,) = (each for topic in answer.responses for each in topic.partitions)
        code = int(found.error_code)
        if code == OFFSET_OUT_OF_RANGE:
            raise TooOld
        if code:
            raise KafkaException(error_of(code, f"topic {self._place.topic}"))
        return found

    def _leader(self) -> int:
        metadata = self._brokers.metadata
        leader, _ = metadata.leader(*self._place)
        if leader < 0:
            known = metadata.topics.get(self._place.topic)
            is_there = known is not None and known.partitions
            code = KafkaError.LEADER_NOT_AVAILABLE if is_there else KafkaError.UNKNOWN_TOPIC_OR_PART
            raise KafkaException(KafkaError(code, retriable=True))
        return leader

    # --- appending

    async def append(self, records: Iterable[tuple[bytes, bytes | None]]) -> int:
        """The offset of the first, once all in-sync replicas have them. Sent again until it is answered: of what is
        there twice the readers take the first."""
        pairs = [(key, value, (), None) for key, value in records]
        plain_bytes = sum(RECORD_BYTES + len(key) + len(value or b"") for key, value, _, _ in pairs)
        if plain_bytes > MOST_VALUE_BYTES:  # it would be stored, and nobody could read it again
            raise self._too_large(f"{plain_bytes} bytes, and may be {MOST_VALUE_BYTES}")
        is_large = plain_bytes >= COMPRESS_FROM_BYTES
        batch = build_batch(pairs, codec=GZIP if is_large else NONE, timestamp_ms=int(wall_s() * 1000))
        if len(batch) > MOST_BATCH_BYTES:
            raise self._too_large(f"{len(batch)} bytes, compressed, and may be {MOST_BATCH_BYTES}")
        return await self.patiently(lambda: self._produce(batch))

    def _too_large(self, what: str) -> SinkRefused:
        return SinkRefused(
            f"the state of {self._place.topic} is {what}: there are too many lanes for so many partitions; use fewer "
            "tasks (coalesce) or fewer topics"
        )

    async def _produce(self, batch: bytearray) -> int:
        leader = self._leader()
        connection = await self._brokers.connection(leader)
        version = connection.version(PRODUCE_KEY, *PRODUCE_VERSIONS_BY_NAME)
        answered: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()

        def on_answer(frame: memoryview | None, error: KafkaError | None) -> None:
            if answered.done():
                return
            if frame is not None:
                answered.set_result(frame)
            else:
                answered.set_exception(KafkaException(error or KafkaError(KafkaError._TRANSPORT, retriable=True)))

        correlation_id = connection.next_correlation_id()
        timeout_ms = min(self._patience_ms, self._brokers.settings.socket_timeout_ms)
        topics = [(self._place.topic.encode(), [(0, batch)])]
        buffers = pack_produce(version, correlation_id, connection.client_id, topics, acks=-1, timeout_ms=timeout_ms)
        connection.send(buffers, correlation_id, on_answer)
        (found,) = read_produce_answer(version, await answered).partitions
        if found.error_code:
            raise KafkaException(error_of(found.error_code, found.error_message or f"topic {self._place.topic}"))
        return found.base_offset

    # --- patience

    async def patiently(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Asked again while the failure is a passing one, for as long as a record of the query may take, too."""
        began_s = monotonic_s()
        while True:
            try:
                async with asyncio.timeout(began_s + self._patience_ms / 1000 - monotonic_s()):
                    return await ask()
            except TimeoutError:
                servers = ", ".join(f"{host}:{port}" for host, port in self._brokers.settings.bootstrap_servers)
                raise self._no_answer(f"nobody answers at {servers}") from None
            except KafkaException as failure:
                error = failure.error
                if not error.retriable() and not is_retriable(error.code()):
                    raise
            waited_s = monotonic_s() - began_s
            if error.code() in _UNKNOWN and waited_s > UNKNOWN_S:
                raise SinkRefused(f"topic {self._place.topic}, which holds the sink's state, is not there any more")
            if waited_s > self._patience_ms / 1000:
                raise self._no_answer(error.str())
            await asyncio.sleep(PAUSE_S)
            try:
                await self._brokers.refresh([self._place.topic])
            except KafkaException:
                continue  # the next try tells

    def _no_answer(self, why: str) -> KafkaException:
        words = f"topic {self._place.topic} could not be asked for {self._patience_ms / 1000:g} s: {why}"
        return KafkaException(KafkaError(KafkaError._TIMED_OUT, words))
