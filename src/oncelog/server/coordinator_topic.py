"""A topic in which a coordinator keeps what it coordinates, in the log itself: `__consumer_offsets` for groups,
`__transaction_state` for transactions.

The topic is made when the first of them needs it. The records of a name all go to one partition, found as Kafka finds
it; who leads that coordinates the name. What one request stores is one batch: after a crash it is there as a whole or
not at all.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple, TypeVar

from oncelog.clock import Now
from oncelog.log.errors import LogStorageError
from oncelog.log.partition import End, Fate, PartitionLog, Staged
from oncelog.log.work_steps import Steps, at_once
from oncelog.producers import Decision
from oncelog.records.build import build_batch
from oncelog.records.header import NO_PRODUCER_ID, read_header
from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.high_watermark import when_settled
from oncelog.server.names import MOST_ID_CHARACTERS
from oncelog.server.topics import Partition, Topic, Topics

logger = logging.getLogger(__name__)

NOT_MADE = -1  # among the partitions in trouble: there is none yet

OnSettled = Callable[[ErrorCode], None]
KeyValue = tuple[bytes, bytes | None]
N = TypeVar("N")

# The size of a batch that holds one request: its keys and values, and some bytes of framing for each record.
RECORD_OVERHEAD_BYTES = 32


class BadRecord(Exception):
    """Bytes in such a topic that are not what Kafka would have written."""


class Kind(NamedTuple):
    """The purpose of the topic, and how it is made."""

    topic: str
    what: str  # is kept there
    partitions: int
    copies: int
    segment_bytes: int
    too_large: ErrorCode


class InTransaction(NamedTuple):
    """The transaction that records belong to: they count once it is committed."""

    pid: int
    epoch: int


def bytes_of_record(record: KeyValue) -> int:
    key, value = record
    return len(key) + len(value or b"") + RECORD_OVERHEAD_BYTES


def java_hash(text: str) -> int:
    """String.hashCode of Java: over UTF-16 units, in 32 bits."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return value - 2**32 if value >= 2**31 else value


def partition_of_name(name: str, partition_count: int) -> int:
    """Kafka's choice."""
    return (_known_number if len(name) <= MOST_ID_CHARACTERS else _number)(name) % partition_count


def _number(name: str) -> int:
    """Its abs() turns the one number without a positive counterpart into 0."""
    value = java_hash(name)
    return 0 if value == -(2**31) else abs(value)


_known_number = lru_cache(maxsize=4096)(_number)  # of names that may be used; any others would only take memory


class CoordinatorTopic:
    def __init__(
        self,
        kind: Kind,
        most_bytes: int,
        topics: Topics,
        request_flush: Callable[[Partition], None],
        broker_count: Callable[[], int],
        made: Callable[[], None],
    ) -> None:
        """`broker_count` says how many there are, also those that are down; `made` is called when the topic was made
        here. `most_bytes` may a batch have as long as the topic does not say it."""
        self.kind = kind
        self._most_bytes = most_bytes
        self._topics = topics
        self._request_flush = request_flush
        self._broker_count = broker_count
        self._made = made
        self._in_trouble: set[int] = set()  # partitions whose last append failed: said once, as clients go on trying
        self.served: dict[int, int] = {}  # partitions of which everything is here, by the epoch that they were read in
        self.loading: set[int] = set()  # those that are being read

    def led(self) -> list[Partition]:
        topic = self._topics.get(self.kind.topic)
        return [] if topic is None else [each for each in topic.partitions if each.leads]

    def is_here(self, name: str) -> bool:
        """Whether this broker coordinates it, and has read it back."""
        partition = self.partition_of(name)
        if partition is None:
            return not self._topics.is_replicated
        return partition.leads and self.served.get(partition.index) == partition.log.leader_epoch

    def refusal(self, name: str) -> ErrorCode:
        """The reason why nothing can be said of this name, or stored for it: it is elsewhere, on its way here, or
        damaged."""
        partition = self.partition_of(name)
        if self.is_here(name):
            is_well = partition is None or partition.log.offline is None
            return ErrorCode.none if is_well else ErrorCode.not_coordinator
        is_coming = partition is not None and partition.leads and partition.index in self.loading
        return ErrorCode.coordinator_load_in_progress if is_coming else ErrorCode.not_coordinator

    def partition_of(self, name: str) -> Partition | None:
        """None as long as the topic is not made."""
        topic = self._topics.get(self.kind.topic)
        return None if topic is None else topic.partitions[partition_of_name(name, len(topic.partitions))]

    @property
    def is_made(self) -> bool:
        return self._topics.get(self.kind.topic) is not None

    def in_batches(self, name: str, records: Iterable[tuple[N, KeyValue]]) -> Iterator[dict[N, KeyValue]]:
        """Records of which each may stand by itself, by their names, cut into what fits into one batch."""
        limit_bytes, held_bytes = self._limit_bytes(name), 0
        some: dict[N, KeyValue] = {}
        for of, record in records:
            more_bytes = bytes_of_record(record)
            if some and held_bytes + more_bytes > limit_bytes:
                yield some
                some, held_bytes = {}, 0
            some[of] = record
            held_bytes += more_bytes
        if some:
            yield some

    def _limit_bytes(self, name: str) -> int:
        """The most that one batch may hold."""
        partition = self.partition_of(name)
        return self._most_bytes if partition is None else partition.topic.log_config.max_message_bytes

    def check_size(self, name: str, held_bytes: int) -> None:
        """Check the size of one batch, or of a part of it that is known before the batch is made."""
        limit_bytes = self._limit_bytes(name)
        if held_bytes > limit_bytes:
            raise KafkaError(
                self.kind.too_large,
                f"{held_bytes} bytes for the {self.kind.what} {name} are more than max.message.bytes={limit_bytes}",
            )

    def append(
        self, name: str, records: Collection[KeyValue], now: Now, within: InTransaction | None = None
    ) -> tuple[Partition, End]:
        """Append; returns where the records end. To be sure of them, wait with `when_settled`."""
        if not self.is_made and not self._topics.is_replicated:
            at_once(self.making(now))
        partition, refused = self.partition_of(name), self.refusal(name)
        if partition is None or refused is not ErrorCode.none:
            raise KafkaError(refused)
        self.check_size(name, sum(map(bytes_of_record, records)))
        batch = build_batch(
            [(key, value, (), None) for key, value in records],
            timestamp_ms=now.wall_ms,
            producer_id=NO_PRODUCER_ID if within is None else within.pid,
            producer_epoch=-1 if within is None else within.epoch,
            is_transactional=within is not None,
        )
        try:
            staged = _append(partition.log, batch, now, is_in_transaction=within is not None)
        except LogStorageError as refusal:
            if partition.index not in self._in_trouble:
                logger.warning("the %s %r, and maybe others, could not be stored: %s", self.kind.what, name, refusal)
            self._in_trouble.add(partition.index)
            # A client takes this as: find the coordinator again, and then try again.
            raise KafkaError(ErrorCode.not_coordinator, str(refusal)) from refusal
        self._in_trouble.discard(partition.index)
        partition.appended()
        if partition.fate(staged.end) is Fate.WAITS:
            self._request_flush(partition)
        return partition, staged.end

    def when_settled(self, partition: Partition, end: End, settled: OnSettled) -> None:
        """Call back when it is safe: at once, unless answers wait for the disk."""
        when_settled(
            partition,
            end,
            lambda fate: settled(ErrorCode.none if fate is Fate.SAFE else ErrorCode.not_coordinator),
        )

    def making(self, now: Now) -> Steps[Topic]:
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(self.kind.segment_bytes),
        }
        name, count = self.kind.topic, self.kind.partitions
        copies = min(self.kind.copies, self._broker_count())
        try:
            creating = self._topics.creating(name, count, configs, now, is_internal=True, replication=copies)
            return (yield from creating)
        except KafkaError as refusal:
            is_there = refusal.code is ErrorCode.topic_already_exists  # another broker was faster
            if NOT_MADE not in self._in_trouble and not is_there:
                logger.error("%s could not be made: %s", self.kind.topic, refusal)
                self._in_trouble.add(NOT_MADE)
            raise KafkaError(ErrorCode.coordinator_not_available, str(refusal)) from refusal
        finally:
            self._made()


def _append(log: PartitionLog, batch: bytearray, now: Now, *, is_in_transaction: bool) -> Staged:
    header = read_header(batch)
    if not is_in_transaction:
        return log.append(batch, header, now)
    staged = log.stage_in_transaction(batch, header, now)
    if staged.decision is not Decision.APPEND:
        is_full = staged.decision is Decision.FULL
        raise KafkaError(ErrorCode.coordinator_not_available if is_full else ErrorCode.invalid_producer_epoch)
    log.commit()
    return staged
