"""Offsets that are committed in a transaction: they wait beside those that count until it ends."""

from collections.abc import Callable, Collection, Iterable, Mapping

from oncelog.clock import Now
from oncelog.log.work_steps import Pauses
from oncelog.server.coordinator_topic import InTransaction
from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.groups.consumer.values import Place
from oncelog.server.groups.offsets import TopicPartition
from oncelog.server.groups.records import CommittedOffset
from oncelog.server.groups.store import AnyGroup, GroupStore, Settled
from oncelog.server.topics import Partition

NewGroup = Callable[[str, str, Now], AnyGroup | None]
FindPlaces = Callable[[Collection[TopicPartition]], Iterable[Place]]


class CommitsInTransactions:
    def __init__(
        self, store: GroupStore, new_group: NewGroup, check_name: Callable[[str], ErrorCode], places: FindPlaces
    ) -> None:
        self._store = store
        self._new_group = new_group
        self._check_name = check_name
        self._places = places

    def put(
        self,
        group_id: str,
        committed: Mapping[TopicPartition, CommittedOffset],
        within: InTransaction,
        now: Now,
        client_host: str = "",
    ) -> Settled:
        """Put offsets, after `check`. They count once the transaction is committed."""
        growth_bytes = self._store.pending.growth_bytes(within.pid, group_id, committed)
        if not self._store.has_room_for_offsets(growth_bytes):
            return ErrorCode.coordinator_not_available
        group = self._store.groups.get(group_id) or self._new_group(group_id, client_host, now)
        if group is None:
            return ErrorCode.group_max_size_reached
        try:
            return self._store.put_pending(group_id, committed, within, now)
        except KafkaError as refusal:
            self._store.forget_if_void(group)
            return refusal.code

    def check(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        now: Now,
        committed: Collection[TopicPartition] = (),
    ) -> ErrorCode:
        error = self._check_name(group_id)
        group = self._store.groups.get(group_id)
        if error is not ErrorCode.none:
            return error
        if group is None:
            return ErrorCode.none if generation < 0 else ErrorCode.illegal_generation
        is_anybody = generation < 0 and not member_id and instance_id is None
        if not is_anybody:
            error = group.check_commit(member_id, instance_id, generation, now, lambda: self._places(committed))
        if error is ErrorCode.stale_member_epoch:
            return ErrorCode.illegal_generation  # producers know no other word
        return ErrorCode.none if error is ErrorCode.rebalance_in_progress else error

    def ending(self, partition: Partition, pid: int, *, is_commit: bool) -> Pauses:
        """End a transaction, a group at a time: its marker is in that partition, below the high watermark."""
        for group_id in self._store.ending_transaction(partition, pid, is_commit=is_commit):
            group = self._store.groups.get(group_id)
            if group is not None:
                self._store.forget_if_void(group)
            yield

    def serves(self, partition: Partition) -> bool:
        """Whether the groups of that partition are here."""
        return partition.leads and self._store.topic.served.get(partition.index) == partition.log.leader_epoch

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        return self._store.pending.is_pending(group_id, topic, partition)
