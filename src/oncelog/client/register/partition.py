"""One partition of a small topic: where it begins and ends, what stands from an offset on, a batch more.

Each is asked once; whether again is for the keeper to decide. All of it runs on the loop of `Brokers`.
"""

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from oncelog.client.admin.configs import describe_configs
from oncelog.client.admin.timeouts import Timeouts
from oncelog.client.admin.topics import create_topics
from oncelog.client.admin.values import ConfigResource, ResourceType
from oncelog.client.errors import KafkaError, KafkaException, error_of, exception_of
from oncelog.client.fetching.batches import without_aborted
from oncelog.client.fetching.values import EARLIEST
from oncelog.client.net.offsets import end_offsets
from oncelog.client.net.retry import Patience
from oncelog.client.types import NewTopic
from oncelog.error_codes import ErrorCodes as Code
from oncelog.records.header import headers
from oncelog.records.read import batches_with_records, records_of
from oncelog.settings import INT_MAX
from oncelog.slots import Place
from oncelog.slots.register import Record
from oncelog.wire.hot_client import (
    PRODUCE_KEY,
    PRODUCE_VERSIONS_BY_NAME,
    PRODUCE_VERSIONS_IN_TRANSACTION,
    pack_produce,
    read_produce_answer,
)

if TYPE_CHECKING:
    from oncelog.client.net.brokers import Brokers

FETCH_BYTES: Final = 1 << 20
FETCH_VERSIONS: Final = (4, 12)
MAKING_MS: Final = 30_000
CLUSTER_DEFAULT: Final = -1
MOST_VALUE_BYTES: Final = 64 << 20  # of a batch before it is compressed


class OutOfRange(Exception):
    """The log does not reach as far as it did."""


class Fetched(NamedTuple):
    records: list[Record]
    next_offset: int
    end_offset: int  # what stands from here on is not shown


class Log(Protocol):
    """The cluster, as a keeper sees it; the tests have a twin of it in memory."""

    topic: str

    @property
    def servers(self) -> str:
        """The addresses of the brokers, for the message that none of them answers."""

    async def partition_count(self) -> int:
        """The number of partitions now; 0 where there is no such topic."""

    async def create(self, config: Mapping[str, str]) -> KafkaError | None:
        """Make the topic; the reason where that cannot be."""

    async def cleanup_policy(self) -> str | None:
        """None where it may not be asked for."""

    async def bounds(self) -> tuple[int, int]:
        """The first offset, and the end offset."""

    async def fetch(self, offset: int) -> Fetched:
        """The batches from an offset on, without waiting for more. Raises OutOfRange."""

    async def produce(self, batch: bytearray, transactional_id: str | None = None) -> int:
        """The offset of its first record, once all in-sync replicas have it."""


async def fetch_once(
    brokers: "Brokers",
    leader: int,
    place: Place,
    offset: int,
    max_bytes: int,
    max_wait: timedelta,
    *,
    purpose: str = "",
    read_committed: bool = False,
) -> Any:
    """The answer to a Fetch of one partition; the caller must look at its error code."""

    def build(spoken: Any) -> Any:
        partition = spoken.new(
            "FetchPartition", partition=place.partition, fetch_offset=offset, partition_max_bytes=max_bytes
        )
        return spoken.new(
            "FetchRequest",
            replica_id=-1,
            max_wait=max_wait,
            min_bytes=1 if max_wait else 0,
            max_bytes=max_bytes,
            isolation_level=int(read_committed),
            topics=(spoken.new("FetchTopic", topic=place.topic, partitions=(partition,)),),
            forgotten_topics_data=(),
        )

    answer = await brokers.request(leader, "fetch", build, versions=FETCH_VERSIONS, purpose=purpose)
    (found,) = (each for topic in answer.responses for each in topic.partitions)
    return found


class TopicLog:
    """A log of records. It shows what transactions have committed, and nothing behind one that is open."""

    def __init__(self, brokers: "Brokers", topic: str, patience: Patience, partition: int = 0) -> None:
        self.topic = topic
        self._brokers = brokers
        self._place = Place(topic, partition)
        self._patience = patience

    async def partition_count(self) -> int:
        metadata = await self._brokers.refresh([self.topic])
        topic = metadata.topics.get(self.topic)
        return 0 if topic is None else len(topic.partitions)

    @property
    def servers(self) -> str:
        return ", ".join(f"{host}:{port}" for host, port in self._brokers.settings.bootstrap_servers)

    async def create(self, config: Mapping[str, str]) -> KafkaError | None:
        made = NewTopic(self.topic, 1, CLUSTER_DEFAULT, config=config)
        outcome = (await create_topics(self._brokers, [made], self._timeouts(), validate_only=False))[self.topic]
        return outcome.error if isinstance(outcome, KafkaException) else None

    async def cleanup_policy(self) -> str | None:
        resource = ConfigResource(ResourceType.TOPIC, self.topic)
        found = (await describe_configs(self._brokers, [resource], self._timeouts()))[resource]
        if not isinstance(found, KafkaException):
            policy: str | None = found["cleanup.policy"].value
            return policy
        if found.error.code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
            raise found
        return None

    def _timeouts(self) -> Timeouts:
        return Timeouts(int(min(self._patience.total_s * 1000, INT_MAX)), MAKING_MS)

    async def bounds(self) -> tuple[int, int]:
        starts, ends = await asyncio.gather(
            end_offsets(self._brokers, [self._place], EARLIEST, patience=self._patience),
            end_offsets(self._brokers, [self._place], read_committed=True, patience=self._patience),
        )
        return starts[self._place], ends[self._place]

    # --- reading

    async def fetch(self, offset: int) -> Fetched:
        max_bytes = FETCH_BYTES
        while True:
            found = await self._ask_fetch(offset, max_bytes)
            data = found.records or b""
            records: list[Record] = []
            next_offset = max([offset, *(header.last_offset + 1 for _, header in headers(data))])
            aborted = [(each.producer_id, each.first_offset) for each in found.aborted_transactions or ()]
            kept = without_aborted(data, aborted)
            for at, header in batches_with_records(kept):
                if header.last_offset >= offset:
                    records += [
                        Record(each.offset, each.key, each.value)
                        for each in records_of(kept, at, limit_bytes=MOST_VALUE_BYTES)
                        if each.offset >= offset
                    ]
            if records or next_offset > offset or not data:
                return Fetched(records, next_offset, found.last_stable_offset)
            max_bytes *= 4  # not even one batch had room

    async def _ask_fetch(self, offset: int, max_bytes: int) -> Any:
        found = await fetch_once(
            self._brokers, self._leader(), self._place, offset, max_bytes, timedelta(0), read_committed=True
        )
        if int(found.error_code) == Code.OFFSET_OUT_OF_RANGE:
            raise OutOfRange
        self._check(int(found.error_code))
        return found

    # --- appending

    async def produce(self, batch: bytearray, transactional_id: str | None = None) -> int:
        connection = await self._brokers.connection(self._leader())
        versions = PRODUCE_VERSIONS_BY_NAME if transactional_id is None else PRODUCE_VERSIONS_IN_TRANSACTION
        version = connection.version(PRODUCE_KEY, *versions)
        answered: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()

        def on_answer(frame: memoryview | None, error: KafkaError | None) -> None:
            if answered.done():
                return
            if frame is not None:
                answered.set_result(frame)
            else:
                answered.set_exception(KafkaException(error or KafkaError(KafkaError._TRANSPORT, retriable=True)))

        correlation_id = connection.next_correlation_id()
        timeout_ms = int(min(self._patience.total_s * 1000, self._brokers.settings.socket_timeout_ms))
        topics = [(self.topic.encode(), [(self._place.partition, batch)])]
        buffers = pack_produce(
            version,
            correlation_id,
            connection.client_id,
            topics,
            acks=-1,
            timeout_ms=timeout_ms,
            transactional_id=transactional_id,
        )
        connection.send(buffers, correlation_id, on_answer)
        (found,) = read_produce_answer(version, await answered).partitions
        self._check(found.error_code, found.error_message)
        return found.base_offset

    # --- both

    def _leader(self) -> int:
        metadata = self._brokers.metadata
        leader, _ = metadata.leader(*self._place)
        if leader < 0:
            known = metadata.topics.get(self.topic)
            is_there = known is not None and known.partitions
            code = KafkaError.LEADER_NOT_AVAILABLE if is_there else KafkaError.UNKNOWN_TOPIC_OR_PART
            raise exception_of(code, f"topic {self.topic}")
        return leader

    def _check(self, code: int, message: str | None = None) -> None:
        if code:
            raise KafkaException(error_of(code, message or f"topic {self.topic}"))
