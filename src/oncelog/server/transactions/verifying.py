"""Whether a transaction's coordinator knows that it writes to a partition (KIP-890): asked before its first batch there
is appended, so that none comes after its end. Clients of the second version leave it to the broker to add partitions.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from oncelog.producers import ProducerMap
from oncelog.replication.leadership import NOBODY
from oncelog.server.errors import ErrorCode
from oncelog.server.ports import Peers
from oncelog.server.settings import Settings
from oncelog.server.topics import Partition
from oncelog.server.transactions.coordinator import TransactionCoordinator
from oncelog.transactions.machine import TopicPartition
from oncelog.wire.frames import MalformedFrame

VERSION = 5  # of AddPartitionsToTxn
Errors = dict[TopicPartition, ErrorCode]


class Verifying:
    def __init__(self, coordinator: TransactionCoordinator, peers: Callable[[], Peers], settings: Settings) -> None:
        self._coordinator = coordinator
        self._peers = peers
        # Partitions that clients add themselves are taken on trust then.
        self._is_off = not settings.transaction_partition_verification_enable
        self._again_s = settings.add_partitions_to_txn_retry_backoff_ms / 1000
        self._most_attempts = 1 + settings.add_partitions_to_txn_retry_backoff_max_ms // (
            settings.add_partitions_to_txn_retry_backoff_ms
        )

    async def ask(
        self, transactional_id: str, pid: int, epoch: int, places: Sequence[TopicPartition], *, adds: bool
    ) -> Errors:
        """The coordinator's answer about each place. While the transaction before is ending, partitions of the next are
        added a little later: a client that is told so may wait for seconds before it asks again."""
        if self._is_off and not adds:
            return dict.fromkeys(places, ErrorCode.none)
        found: Errors = {}
        for attempt in range(self._most_attempts if adds else 1):
            if attempt:
                await asyncio.sleep(self._again_s)
            found = await self._ask(transactional_id, pid, epoch, places, adds=adds)
            if ErrorCode.concurrent_transactions not in found.values():
                break
        return found

    async def _ask(
        self, transactional_id: str, pid: int, epoch: int, places: Sequence[TopicPartition], *, adds: bool
    ) -> Errors:
        coordinator = self._coordinator
        partition = coordinator.partition_of(transactional_id)
        is_elsewhere = partition is not None and not partition.leads and partition.leadership is not None
        if partition is not None and is_elsewhere:
            return await self._ask_leader(partition, transactional_id, pid, epoch, places, adds=adds)
        if adds:
            error = await coordinator.add_partitions(transactional_id, pid, epoch, places)
            return dict.fromkeys(places, error)
        return coordinator.verify(transactional_id, pid, epoch, places)

    async def _ask_leader(
        self,
        partition: Partition,
        transactional_id: str,
        pid: int,
        epoch: int,
        places: Sequence[TopicPartition],
        *,
        adds: bool,
    ) -> Errors:
        leader = NOBODY if partition.leadership is None else partition.leadership.leader
        if leader == NOBODY:
            return dict.fromkeys(places, ErrorCode.coordinator_not_available)
        by_topic: dict[str, list[int]] = {}
        for topic, index in places:
            by_topic.setdefault(topic, []).append(index)

        def request(new: Callable[..., Any]) -> Any:
            topics = tuple(
                new("AddPartitionsToTxnTopic", name=name, partitions=tuple(indexes))
                for name, indexes in by_topic.items()
            )
            transaction = new(
                "AddPartitionsToTxnTransaction",
                transactional_id=transactional_id,
                producer_id=pid,
                producer_epoch=epoch,
                verify_only=not adds,
                topics=topics,
            )
            return new("AddPartitionsToTxnRequest", transactions=(transaction,))

        try:
            answer = await self._peers().ask(leader, "add_partitions_to_txn", VERSION, request)
        except (OSError, MalformedFrame):
            return dict.fromkeys(places, ErrorCode.network_exception)
        if answer.error_code:
            return dict.fromkeys(places, ErrorCode.invalid_txn_state)
        found = {
            (topic.name, each.partition_index): ErrorCode(each.partition_error_code)
            for result in answer.results_by_transaction
            for topic in result.topic_results
            for each in topic.results_by_partition
        }
        return {at: found.get(at, ErrorCode.network_exception) for at in places}

    async def ask_for_groups(
        self, partition: Partition, transactional_id: str, pid: int, epoch: int, *, adds: bool
    ) -> ErrorCode:
        """Verify a partition of `__consumer_offsets` that is here."""
        if not partition.log.producers.may_write_in_transaction(pid, epoch):
            at = partition.topic.name, partition.index
            question = question_of(partition, pid, adds=adds)
            error = (await self.ask(transactional_id, pid, epoch, [at], adds=adds))[at]
            if error is not ErrorCode.none:
                return told(error, knows_abortable=adds)
            if not question.verified(epoch):
                return ErrorCode.invalid_txn_state  # it has ended meanwhile
        return ErrorCode.none


class Question(NamedTuple):
    """The question whether a producer writes to a partition in its transaction, on its way to the coordinator."""

    producers: ProducerMap  # of that partition
    pid: int
    number: int | None

    def verified(self, epoch: int) -> bool:
        """The coordinator said so. Whether that still holds."""
        transactions = self.producers.transactions
        if self.number is not None and not transactions.is_asked(self.pid, self.number):
            return False
        transactions.verify(self.pid, epoch)
        return True


def question_of(partition: Partition, pid: int, *, adds: bool) -> Question:
    """A question that is about to be asked. If the coordinator is to add the partition, the marker of the transaction
    before may come meanwhile. Then nothing can come too late: each end of such a producer raises its epoch."""
    producers = partition.log.producers
    return Question(producers, pid, None if adds else producers.transactions.ask(pid))


def told(error: ErrorCode, *, knows_abortable: bool) -> ErrorCode:
    """The code for a producer that may not go on."""
    match error:
        case ErrorCode.producer_fenced:
            return ErrorCode.invalid_producer_epoch
        case ErrorCode.transaction_abortable if not knows_abortable:
            return ErrorCode.invalid_txn_state
        case _:
            return error
