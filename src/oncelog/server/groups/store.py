"""Groups and their offsets, in memory and in `__consumer_offsets`: every change is appended first, then remembered."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager

from oncelog.clock import Now
from oncelog.log.partition import End, Fate
from oncelog.log.work_steps import Pauses
from oncelog.server.coordinator_topic import CoordinatorTopic, InTransaction, KeyValue, Kind
from oncelog.server.errors import ErrorCode
from oncelog.server.groups import records
from oncelog.server.groups.consumer.group import ConsumerGroup
from oncelog.server.groups.consumer.records import encode
from oncelog.server.groups.group import Group
from oncelog.server.groups.messages import StoredGroup
from oncelog.server.groups.offsets import Offsets, TopicPartition
from oncelog.server.groups.pending import PendingOffsets
from oncelog.server.groups.records import CommittedOffset
from oncelog.server.names import OFFSETS_TOPIC
from oncelog.server.settings import Settings
from oncelog.server.shares import Shares
from oncelog.server.topics import Partition, Topics

Settled = ErrorCode | asyncio.Future[ErrorCode]
AnyGroup = Group | ConsumerGroup


OFFSETS_BYTES = 512 * 2**20  # what all groups have committed, with its metadata


class GroupStore:
    def __init__(
        self,
        settings: Settings,
        topics: Topics,
        request_flush: Callable[[Partition], None],
        broker_count: Callable[[], int],
        made: Callable[[], None],
    ) -> None:
        self.groups: dict[str, AnyGroup] = {}
        self._listed: tuple[AnyGroup, ...] | None = None
        self.offsets = Offsets()
        self.pending = PendingOffsets()
        self._settings = settings
        self._shares = Shares()  # by host, since the start: the log does not say it
        self._going: set[str] = set()
        kind = Kind(
            topic=OFFSETS_TOPIC,
            what="group",
            partitions=settings.offsets_topic_num_partitions,
            copies=settings.offsets_topic_replication_factor,
            segment_bytes=settings.offsets_topic_segment_bytes,
            too_large=ErrorCode.invalid_commit_offset_size,
        )
        self.topic = CoordinatorTopic(kind, settings.message_max_bytes, topics, request_flush, broker_count, made)

    # What moves here with its partition, and away

    def serve(self, partition: Partition, epoch: int, groups: Mapping[str, AnyGroup]) -> None:
        self.groups.update(groups)
        self._listed = None
        self.topic.served[partition.index] = epoch

    def of_partition(self, partition: Partition) -> Iterator[str | None]:
        """The groups that are stored there, and None for each of the others. They may change in between."""
        for group_id in list(dict.fromkeys((*self.groups, *self.offsets.groups(), *self.pending.groups()))):
            yield group_id if self.topic.partition_of(group_id) is partition else None

    # Changes

    def put_group(self, group_id: str, group: StoredGroup, now: Now) -> Settled:
        self.topic.check_size(group_id, group.said_bytes)
        return self._append(group_id, [records.encode_stored(group_id, group)], now)

    def put_records(self, group_id: str, key_values: Collection[KeyValue], now: Now) -> Settled:
        return self._append(group_id, key_values, now)

    def put_offsets(
        self,
        group_id: str,
        committed: Mapping[TopicPartition, CommittedOffset],
        now: Now,
        encoded: Collection[KeyValue] = (),
    ) -> Settled:
        encoded = encoded or [records.encode_committed(group_id, *at, each) for at, each in committed.items()]
        partition, end = self.topic.append(group_id, encoded, now)
        self.offsets.put_all(group_id, committed, end.offset)
        return self._settled_at(partition, end)

    # In transactions

    def put_pending(
        self, group_id: str, committed: Mapping[TopicPartition, CommittedOffset], within: InTransaction, now: Now
    ) -> Settled:
        """Store offsets that count once the transaction is committed."""
        encoded = [records.encode_committed(group_id, *at, each) for at, each in committed.items()]
        partition, end = self.topic.append(group_id, encoded, now, within)
        found = {at: each._replace(end_offset=end.offset) for at, each in committed.items()}
        self.pending.put(within.pid, group_id, found)
        return self._settled_at(partition, end)

    def ending_transaction(self, partition: Partition, pid: int, *, is_commit: bool) -> Iterator[str]:
        """The marker of it is in the partition. Each group that has lost what was pending."""
        for group_id, committed in self.pending.take(pid, lambda each: self.topic.partition_of(each) is partition):
            for (topic, index), each in committed.items() if is_commit else ():
                known = self.offsets.get(group_id, topic, index)
                if known is None or known.end_offset < each.end_offset:
                    self.offsets.put(group_id, topic, index, each)
            yield group_id

    def has_offsets(self, group_id: str) -> bool:
        return self.offsets.has_any(group_id) or self.pending.has_any(group_id)

    def remove_offsets(self, group_id: str, partitions: Iterable[TopicPartition], now: Now) -> Settled:
        settled: Settled = ErrorCode.none
        tombstones = ((at, (records.encode_offset_key(group_id, *at), None)) for at in list(partitions))
        for some in self.topic.in_batches(group_id, tombstones):
            partition, end = self.topic.append(group_id, some.values(), now)
            settled = self._settled_at(partition, end)
            for topic, index in some:
                self.offsets.remove(group_id, topic, index)
            self.pending.take_away(group_id, some, end.offset)
        return settled

    def remove_group(self, group_id: str, now: Now) -> Settled:
        """Remove a group, its offsets first: a crash in between leaves a group without offsets, never the other way
        round."""
        self.remove_offsets(group_id, [place for place, _ in self.offsets.of_group(group_id)], now)
        group = self.groups.get(group_id)
        settled = ErrorCode.none if group is None else self._append(group_id, self.tombstones(group), now)
        self.forget(group_id)
        return settled

    def tombstones(self, group: AnyGroup) -> list[KeyValue]:
        """The records that take the group's own records out of the log."""
        if isinstance(group, ConsumerGroup):
            return [encode(group.group_id, each) for each in group.sharing.tombstones()]
        return [(records.encode_group_key(group.group_id), None)]

    def settled(self, group_id: str) -> Settled:
        """Whether everything that is remembered of this group would survive a crash."""
        refused = self.refusal(group_id)
        if refused is not ErrorCode.none:
            return refused
        partition = self.topic.partition_of(group_id)
        return ErrorCode.none if partition is None else self._settled_at(partition, partition.log.end)

    def refusal(self, group_id: str) -> ErrorCode:
        """The reason why nobody can say now what the group has stored, or add to it."""
        return ErrorCode.not_coordinator if group_id in self._going else self.topic.refusal(group_id)

    def epoch_of(self, group_id: str) -> int | None:
        """The epoch of what is remembered of the group; None where its partition is not served here."""
        partition = self.topic.partition_of(group_id)
        return None if partition is None else self.topic.served.get(partition.index)

    @contextmanager
    def taking_away(self, group_id: str) -> Pauses:
        """A group of which only a part may be left."""
        self._going.add(group_id)
        try:
            yield
        finally:
            self._going.discard(group_id)

    def _append(self, group_id: str, key_values: Collection[KeyValue], now: Now) -> Settled:
        return self._settled_at(*self.topic.append(group_id, key_values, now))

    def _settled_at(self, partition: Partition, end: End) -> Settled:
        if partition.fate(end) is Fate.SAFE:
            return ErrorCode.none
        future: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

        def settled(error: ErrorCode) -> None:
            if not future.done():
                future.set_result(error)

        self.topic.when_settled(partition, end, settled)
        return future

    def has_room_for_offsets(self, growth_bytes: int) -> bool:
        """Whether there is room for this much more of offsets, those of open transactions included."""
        return growth_bytes <= 0 or self.offsets.held_bytes + self.pending.held_bytes + growth_bytes <= OFFSETS_BYTES

    def forget_if_void(self, group: AnyGroup) -> None:
        """A group without any member in the end leaves nothing behind."""
        is_void = group.is_empty and group.is_simple and not group.has_pending_ids
        is_current = self.groups.get(group.group_id) is group
        if is_void and is_current and not self.has_offsets(group.group_id):
            self.forget(group.group_id)

    def listed(self) -> tuple[AnyGroup, ...]:
        """All groups, as they are now. One list for many who ask: each would take memory, and the garbage collector's
        time."""
        if self._listed is None:
            self._listed = tuple(self.groups.values())
        return self._listed

    # Groups by who made them

    def has_room(self, client_host: str) -> bool:
        return self._shares.has_room(client_host, self._settings.oncelog_max_groups - len(self.groups))

    def add(self, group: AnyGroup) -> None:
        self.replace(group)
        self._shares.take(group.made_by)

    def replace(self, group: AnyGroup) -> None:
        """The one of its name, by one of another protocol."""
        self.groups[group.group_id] = group
        self._listed = None

    def forget(self, group_id: str) -> None:
        """Here alone; the log keeps it."""
        self.offsets.forget(group_id)
        self.pending.forget(group_id)
        group = self.groups.pop(group_id, None)
        self._listed = None
        if group is not None:
            self._shares.give_back(group.made_by)
