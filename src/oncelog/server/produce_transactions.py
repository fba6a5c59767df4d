"""Produce in transactions: what is asked of a transaction's coordinator before a request is staged.

The connection stands still meanwhile, as where a thread looks into a request, and the request is served again from the
same bytes. What was found good the logs remember until it is used; what was not, this remembers.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from oncelog.clock import Now
from oncelog.log.partition import Staged
from oncelog.records.header import HEADER_BYTES, TRANSACTIONAL, BatchHeader, read_header
from oncelog.server.broker import Broker
from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.topics import Partition
from oncelog.server.transactions.verifying import question_of, told
from oncelog.transactions.machine import TopicPartition

ADDS, KNOWS_ABORTABLE = 12, 11  # versions of Produce
UNLISTED = "the batch is not part of an ongoing transaction of its producer"
NOT_ADDED = "Partition was not added to the transaction"
_RETRIED = (
    ErrorCode.network_exception,
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.coordinator_not_available,
    ErrorCode.not_coordinator,
)


class Wanted(NamedTuple):
    """A batch of a transaction, and where it is to go."""

    partition: Partition
    pid: int
    epoch: int

    @property
    def place(self) -> TopicPartition:
        return self.partition.topic.name, self.partition.index


def wanted_in(buffer: bytearray, batches: Iterable[tuple[Partition, int, int]]) -> Iterator[Wanted]:
    """The batches of which it is not known that they may be appended."""
    for partition, start, stop in batches:
        if stop - start >= HEADER_BYTES:
            header = read_header(buffer, start)
            if header.attributes & TRANSACTIONAL:
                pid, epoch = header.producer_id, header.producer_epoch
                if not partition.log.producers.may_write_in_transaction(pid, epoch):
                    yield Wanted(partition, pid, epoch)


class Verification:
    """The partitions of one request that must be verified at the coordinator of its transaction."""

    def __init__(
        self, broker: Broker, buffer: bytearray, transactional_id: str, version: int, wanted: Sequence[Wanted]
    ) -> None:
        self._broker = broker
        self._transactional_id = transactional_id
        self._version = version
        self._wanted = wanted
        self.refused: dict[TopicPartition, tuple[ErrorCode, str | None]] = {}

    def keep(self) -> None:
        """Keep what is needed: nothing of the buffer is."""

    async def run(self) -> None:
        by_producer: dict[tuple[int, int], list[Wanted]] = {}
        for each in self._wanted:
            if each.partition.is_open:
                by_producer.setdefault((each.pid, each.epoch), []).append(each)
        for (pid, epoch), some in by_producer.items():
            places = [each.place for each in some]
            if len(by_producer) > 1:
                self.refused |= dict.fromkeys(places, (ErrorCode.invalid_producer_id_mapping, None))
                continue
            adds = self._version >= ADDS
            asked = [question_of(each.partition, pid, adds=adds) for each in some]
            found = await self._broker.verifying.ask(self._transactional_id, pid, epoch, places, adds=adds)
            for each, question in zip(some, asked, strict=True):
                error = found[each.place]
                if error is not ErrorCode.none:
                    self.refused[each.place] = self._told(error)
                else:
                    question.verified(epoch)

    def _told(self, error: ErrorCode) -> tuple[ErrorCode, str | None]:
        error = told(error, knows_abortable=self._version >= KNOWS_ABORTABLE)
        if error in _RETRIED or (error is ErrorCode.concurrent_transactions and self._version < ADDS):
            message = "Unable to verify the partition has been added to the transaction. Underlying error: "
            return ErrorCode.not_enough_replicas, message + error.name.upper()
        return error, NOT_ADDED if error is ErrorCode.invalid_txn_state else None


class InTransaction(NamedTuple):
    """The transaction that a request names, as far as its coordinator was asked."""

    refused: Mapping[TopicPartition, tuple[ErrorCode, str | None]]
    adds: bool
    owner: str  # whose pids it may use

    def stage(self, partition: Partition, batch: memoryview, header: BatchHeader, now: Now) -> Staged:
        """Raises KafkaError."""
        refusal = self.refused.get((partition.topic.name, partition.index))
        if refusal is not None:
            raise KafkaError(*refusal)
        if not partition.log.producers.may_write_in_transaction(header.producer_id, header.producer_epoch):
            raise KafkaError(ErrorCode.invalid_txn_state, UNLISTED)  # it has ended meanwhile
        return partition.log.stage_in_transaction(batch, header, now, begins_at_zero=self.adds)


class VerifyFirst(Exception):
    """Nothing of the request was staged: this is to be done before."""

    def __init__(self, look: Verification) -> None:
        super().__init__("a transaction's coordinator has to be asked")
        self.look = look
