"""Groups and their offsets, in memory and in `__consumer_offsets`: every change is appended first, then remembered."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import contextmanager
from struct import error as StructError

from oncelog.clock import Now
from oncelog.log.partition import End, Fate
from oncelog.log.steps import Pauses, Steps
from oncelog.server.errors import ErrorCode
from oncelog.server.groups import records
from oncelog.server.groups.group import Group
from oncelog.server.groups.messages import GroupLimits, StoredGroup
from oncelog.server.groups.offsets import Offsets, TopicPartition
from oncelog.server.groups.offsets_topic import OffsetsTopic
from oncelog.server.groups.records import BadRecord, CommittedOffset, GroupKey, KeyValue, OffsetKey
from oncelog.server.groups.state import State
from oncelog.server.settings import Settings
from oncelog.server.topics import Partition, Topic, Topics

logger = logging.getLogger(__name__)

TOMBSTONES_A_BATCH = 5_000  # many records are taken away in batches well below max.message.bytes

Settled = ErrorCode | asyncio.Future[ErrorCode]


class GroupStore:
    def __init__(self, settings: Settings, topics: Topics, request_flush: Callable[[Partition], None]) -> None:
        self.groups: dict[str, Group] = {}
        self._listed: tuple[Group, ...] | None = None
        self.offsets = Offsets()
        self._settings = settings
        self._made_by: Counter[str] = Counter()  # by host, since the start: the log does not say it
        self._going: set[str] = set()
        self._topic = OffsetsTopic(settings, topics, request_flush)

    def load(self, limits: GroupLimits, now: Now) -> None:
        """Read everything back; only the newest record of each key is looked into. A group that has offsets and no
        record of its own is one of simple consumers."""
        stored: dict[str, StoredGroup] = {}
        unreadable = 0
        newest: dict[bytes, bytes | None] = {}
        for raw_key, raw_value in self._topic.replay():
            newest[raw_key] = raw_value
        for raw_key, raw_value in newest.items():
            try:
                self._replay(raw_key, raw_value, stored)
            except (BadRecord, StructError, UnicodeDecodeError):
                unreadable += 1
        if unreadable:
            logger.error("%d records of __consumer_offsets cannot be read; they are left out", unreadable)
        if self._topic.has_lost_any:
            for group_id in [each for each in {*stored, *self.offsets.groups()} if self._topic.is_lost(each)]:
                stored.pop(group_id, None)
                self.offsets.forget(group_id)
        for group_id, value in stored.items():
            self.groups[group_id] = Group.restore(group_id, value, limits, now)
        for group_id in self.offsets.groups():
            if group_id not in self.groups:
                self.groups[group_id] = Group(group_id, limits, now)

    def _replay(self, raw_key: bytes, raw_value: bytes | None, stored: dict[str, StoredGroup]) -> None:
        key = records.decode_key(raw_key)
        if isinstance(key, GroupKey):
            if raw_value is None:
                stored.pop(key.group, None)
            else:
                stored[key.group] = records.decode_group(raw_value)
        elif isinstance(key, OffsetKey):
            if raw_value is None:
                self.offsets.remove(*key)
            else:
                self.offsets.put(*key, records.decode_offset(raw_value))

    # Changes

    @property
    def is_made(self) -> bool:
        """Whether there is where to store anything; else the first change makes it, and all wait for the disk."""
        return self._topic.is_made

    def making(self, now: Now) -> Steps[Topic]:
        return self._topic.making(now)

    def put_group(self, group_id: str, group: StoredGroup, now: Now) -> Settled:
        self._topic.check_size(group_id, group.said_bytes)
        return self._append(group_id, [(records.encode_group_key(group_id), records.encode_group(group))], now)

    def put_offsets(
        self,
        group_id: str,
        committed: Mapping[TopicPartition, CommittedOffset],
        now: Now,
        encoded: Collection[KeyValue] = (),
    ) -> Settled:
        encoded = encoded or [records.encode_committed(group_id, *at, each) for at, each in committed.items()]
        settled = self._append(group_id, encoded, now)
        for (topic, partition), each in committed.items():
            self.offsets.put(group_id, topic, partition, each)
        return settled

    def remove_offsets(self, group_id: str, partitions: Iterable[TopicPartition], now: Now) -> Settled:
        settled: Settled = ErrorCode.none
        gone = list(partitions)
        for start in range(0, len(gone), TOMBSTONES_A_BATCH):
            some = gone[start : start + TOMBSTONES_A_BATCH]
            settled = self._append(group_id, [(records.encode_offset_key(group_id, *at), None) for at in some], now)
            for topic, partition in some:
                self.offsets.remove(group_id, topic, partition)
        return settled

    def remove_group(self, group_id: str, now: Now) -> Settled:
        """Its offsets first: a crash in between leaves a group without offsets, never offsets of a deleted group."""
        self.remove_offsets(group_id, [place for place, _ in self.offsets.of_group(group_id)], now)
        settled = self._append(group_id, [(records.encode_group_key(group_id), None)], now)
        self._forget(group_id)
        return settled

    def settled(self, group_id: str) -> Settled:
        """Whether everything that is remembered of this group would survive a crash."""
        if self.is_lost(group_id):
            return ErrorCode.not_coordinator
        partition = self._topic.partition_of(group_id)
        return ErrorCode.none if partition is None else self._settled_at(partition, partition.log.end)

    def is_lost(self, group_id: str) -> bool:
        """Whether nobody can say, now, what the group has stored, or add to it."""
        return group_id in self._going or self._topic.is_lost(group_id)

    @contextmanager
    def taking_away(self, group_id: str) -> Pauses:
        """A group of which only a part may be left."""
        self._going.add(group_id)
        try:
            yield
        finally:
            self._going.discard(group_id)

    def _append(self, group_id: str, key_values: Collection[KeyValue], now: Now) -> Settled:
        return self._settled_at(*self._topic.append(group_id, key_values, now))

    def _settled_at(self, partition: Partition, end: End) -> Settled:
        if partition.fate(end) is Fate.SAFE:
            return ErrorCode.none
        future: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

        def settled(error: ErrorCode) -> None:
            if not future.done():
                future.set_result(error)

        self._topic.when_settled(partition, end, settled)
        return future

    def forget_if_void(self, group: Group) -> None:
        """A group without any member in the end leaves nothing behind."""
        is_void = group.state is State.EMPTY and group.is_simple and not group.has_pending_ids
        is_current = self.groups.get(group.group_id) is group
        if is_void and is_current and not self.offsets.has_any(group.group_id):
            self._forget(group.group_id)

    def listed(self) -> tuple[Group, ...]:
        """All groups, as they are now. One list for many who ask: each would take memory, and the garbage collector's
        time."""
        if self._listed is None:
            self._listed = tuple(self.groups.values())
        return self._listed

    # Groups by who made them

    def has_room(self, client_host: str) -> bool:
        """A host may make a group as long as it has made fewer than are left for all. So none takes the last one, and
        the others find room whatever one of them does."""
        return self._made_by[client_host] < self._settings.oncelog_max_groups - len(self.groups)

    def make(self, group_id: str, limits: GroupLimits, client_host: str, now: Now) -> Group:
        group = self.groups[group_id] = Group(group_id, limits, now, client_host)
        self._listed = None
        self._made_by[client_host] += 1
        return group

    def _forget(self, group_id: str) -> None:
        group = self.groups.pop(group_id, None)
        self._listed = None
        if group is not None and group.made_by in self._made_by:
            self._made_by[group.made_by] -= 1
            if not self._made_by[group.made_by]:
                del self._made_by[group.made_by]
