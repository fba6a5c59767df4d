"""The part of groups' memory that moves with the partitions of `__consumer_offsets`: see `server/moves.py`."""

from collections.abc import Callable, Iterable
from struct import error as StructError

from oncelog.clock import Clock
from oncelog.log.work_steps import Pauses
from oncelog.server.coordinator_topic import BadRecord
from oncelog.server.groups import records
from oncelog.server.groups.consumer import records as consumer_records
from oncelog.server.groups.consumer.group import ConsumerGroup
from oncelog.server.groups.consumer.values import LimitsOf
from oncelog.server.groups.group import Group
from oncelog.server.groups.messages import GroupLimits, StoredGroup
from oncelog.server.groups.offsets import TopicPartition
from oncelog.server.groups.records import CommittedOffset, GroupKey, OffsetKey
from oncelog.server.groups.store import AnyGroup, GroupStore
from oncelog.server.moves import READ_AT_A_TIME, IsOn, Records
from oncelog.server.topics import Partition

GROUPS_AT_A_TIME = 100


class GroupMemory:
    def __init__(
        self,
        store: GroupStore,
        limits: GroupLimits,
        consumer_limits_of: LimitsOf,
        clock: Clock,
        came: Callable[[AnyGroup], None],
        went: Callable[[AnyGroup], None],
    ) -> None:
        self.topic = store.topic
        self.store = store
        self.limits = limits
        self.consumer_limits_of = consumer_limits_of
        self.clock = clock
        self.came = came
        self._went = went

    def finding(self, partition: Partition) -> "FoundGroups":
        return FoundGroups(self, partition)

    def letting_go(self, partition: Partition, is_on: IsOn) -> Pauses:
        for count, group_id in enumerate(self.store.of_partition(partition), 1):
            if group_id is not None:
                group = self.store.groups.get(group_id)
                self.store.forget(group_id)
                if group is not None:
                    self._went(group)
            if count % GROUPS_AT_A_TIME == 0:
                yield
                if not is_on():
                    return


class FoundGroups:
    """The content of a partition, beside offsets. A group that has offsets and no record of its own is one of simple
    consumers."""

    def __init__(self, memory: GroupMemory, partition: Partition) -> None:
        self._memory = memory
        self._store = memory.store
        self._partition = partition
        self._groups: dict[str, StoredGroup] = {}
        self._consumer_groups: dict[str, ConsumerGroup] = {}
        self._committers: dict[str, None] = {}

    def note(self, key: bytes, offset: int, value: bytes | None) -> None:
        found = records.decode_key(key)
        if isinstance(found, GroupKey):
            if value is None:
                self._groups.pop(found.group, None)
            else:
                self._groups[found.group] = records.decode_group(value)
        elif isinstance(found, OffsetKey):
            if value is None:
                self._store.offsets.remove(*found)
            else:
                self._store.offsets.put(*found, records.decode_offset(value)._replace(end_offset=offset + 1))
                self._committers[found.group] = None
        else:
            self._note_change(key, value)

    def _note_change(self, data: bytes, value: bytes | None) -> None:
        key = consumer_records.decode_key(data)
        if key is None:
            return
        group = self._consumer_groups.get(key.group)
        if group is None:
            group = self._consumer_groups[key.group] = ConsumerGroup(key.group, self._memory.consumer_limits_of)
        group.members.apply(consumer_records.decode(key, value))

    def note_open(self, pid: int, open_records: Records) -> None:
        pending: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        for key, (offset, value) in open_records.items():
            try:
                found = records.decode_key(key)
                if isinstance(found, OffsetKey) and value is not None:
                    at = TopicPartition(found.topic, found.partition)
                    one = records.decode_offset(value)._replace(end_offset=offset + 1)
                    pending.setdefault(found.group, {})[at] = one
            except (BadRecord, StructError, UnicodeDecodeError):
                continue  # as unreadable as the ones that count, of which is said how many
        for group_id, committed in pending.items():
            self._store.pending.put(pid, group_id, committed)
            self._committers[group_id] = None

    def serving(self, epoch: int, is_on: IsOn) -> Pauses:
        """The members have one session timeout, from now on, to be heard of."""
        memory, store = self._memory, self._store
        now, limits = memory.clock.now(), memory.limits
        groups: dict[str, AnyGroup] = {}
        for count, (group_id, stored) in enumerate(self._groups.items(), 1):
            groups[group_id] = Group.restore(group_id, stored, limits, now)
            if count % GROUPS_AT_A_TIME == 0:
                yield
        for count, consumer_group in enumerate(self._consumer_groups.values(), 1):
            if not consumer_group.has_nothing:
                consumer_group.sharing.restored(now)
                groups[consumer_group.group_id] = consumer_group
            if count % GROUPS_AT_A_TIME == 0:
                yield
        for count, group_id in enumerate(self._committers, 1):
            if group_id not in groups and store.has_offsets(group_id):
                groups[group_id] = Group(group_id, limits, now)
            if count % READ_AT_A_TIME == 0:
                yield
        if not is_on():
            return
        store.serve(self._partition, epoch, groups)
        store.topic.loading.discard(self._partition.index)
        yield from self._noting(groups.values(), is_on)

    def _noting(self, groups: Iterable[AnyGroup], is_on: IsOn) -> Pauses:
        for count, group in enumerate(groups, 1):
            if self._store.groups.get(group.group_id) is group:
                self._memory.came(group)
            if count % GROUPS_AT_A_TIME == 0:
                yield
                if not is_on():
                    return
