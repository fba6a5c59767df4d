"""Groups move with their partition of `__consumer_offsets`.

Who is elected to lead it reads its groups back from the log, in turns; requests for them are answered
COORDINATOR_LOAD_IN_PROGRESS meanwhile. They are served once all that was read is below the high watermark: an offset
that is told and then lost would go back. Who resigns forgets them, and answers those that wait. Each move ends the one
before it, however far that had come, and one of an older epoch came late and is ignored.

A server that stands alone is elected for all partitions when it starts, and has read them before it serves.
"""

import logging
from collections.abc import Callable, Iterable
from itertools import islice
from struct import error as StructError
from typing import NamedTuple

from oncelog.clock import Clock
from oncelog.log.errors import LogStorageError
from oncelog.log.partition import End, Fate
from oncelog.log.steps import Pauses
from oncelog.server.groups import records
from oncelog.server.groups.alarms import InTurns
from oncelog.server.groups.group import Group
from oncelog.server.groups.messages import GroupLimits, StoredGroup
from oncelog.server.groups.records import BadRecord, GroupKey, OffsetKey
from oncelog.server.groups.store import GroupStore
from oncelog.server.high_watermark import when_settled
from oncelog.server.names import OFFSETS_TOPIC
from oncelog.server.replay import records_in
from oncelog.server.topics import Partition

logger = logging.getLogger(__name__)

READ_AT_A_TIME = 500  # records: a millisecond or two
GROUPS_AT_A_TIME = 100


class Move:
    """An election or a resignation of this broker."""

    __slots__ = ("epoch", "partition")

    def __init__(self, partition: Partition, epoch: int) -> None:
        self.partition = partition
        self.epoch = epoch


class Found(NamedTuple):
    """What a partition holds, beside offsets. A group that has offsets and no record of its own is one of simple
    consumers."""

    groups: dict[str, StoredGroup]
    committers: dict[str, None]


class Moves:
    def __init__(
        self,
        store: GroupStore,
        limits: GroupLimits,
        clock: Clock,
        came: Callable[[Group], None],
        went: Callable[[Group], None],
    ) -> None:
        self._store = store
        self._limits = limits
        self._clock = clock
        self._came = came
        self._went = went
        self._last: dict[int, Move] = {}  # of each partition
        self._held: set[int] = set()  # partitions of which something may be in memory

    def elected(self, partition: Partition, epoch: int, in_turns: InTurns) -> None:
        last = self._last.get(partition.index)
        if last is None or last.epoch < epoch:
            move = self._begin(partition, epoch)
            self._store.topic.loading.add(partition.index)
            in_turns(self._taking(move, in_turns))

    def resigned(self, partition: Partition, epoch: int, in_turns: InTurns) -> None:
        """`epoch` is the latest that is known: another broker leads in it, or this one leaves it."""
        last = self._last.get(partition.index)
        if last is None or last.epoch <= epoch:
            in_turns(self._letting_go(self._begin(partition, epoch)))

    def stop(self) -> None:
        self._last.clear()

    # Below

    def _begin(self, partition: Partition, epoch: int) -> Move:
        """What was served or being read of it is so no longer, and nobody waits for what was stored in it."""
        topic = self._store.topic
        topic.served.pop(partition.index, None)
        topic.loading.discard(partition.index)
        move = self._last[partition.index] = Move(partition, epoch)
        partition.wake()
        return move

    def _is_on(self, move: Move) -> bool:
        return self._last.get(move.partition.index) is move

    def _letting_go(self, move: Move) -> Pauses:
        index = move.partition.index
        if index not in self._held:
            return
        for count, group_id in enumerate(self._store.of_partition(move.partition), 1):
            if group_id is not None:
                group = self._store.groups.get(group_id)
                self._store.forget(group_id)
                if group is not None:
                    self._went(group)
            if count % GROUPS_AT_A_TIME == 0:
                yield
                if not self._is_on(move):
                    return
        self._held.discard(index)

    def _taking(self, move: Move, in_turns: InTurns) -> Pauses:
        partition = move.partition
        yield from self._letting_go(move)
        if not self._is_on(move):
            return
        self._held.add(partition.index)
        end = End(partition.log.next_offset, move.epoch)
        found = Found({}, {})
        for _ in self._reading(partition, found):
            yield
            if not self._is_on(move):
                return
            if partition.fate(end) is Fate.LOST:
                break

        def settled(fate: Fate) -> None:
            if not self._is_on(move):
                return
            if fate is Fate.SAFE and partition.log.offline is None:
                in_turns(self._serving(move, found))
            else:
                self._store.topic.loading.discard(partition.index)

        when_settled(partition, end, settled)

    def _reading(self, partition: Partition, found: Found) -> Pauses:
        """Only the newest record of each key is looked into."""
        log = partition.log
        if log.offline is not None:
            logger.error("%s-%d is offline: %s", OFFSETS_TOPIC, partition.index, log.offline)
            return
        newest: dict[bytes, bytes | None] = {}
        unread = ((each.key, each.value) for each in records_in(log) if each.key is not None)
        try:
            while some := list(islice(unread, READ_AT_A_TIME)):
                newest.update(some)
                yield
        except LogStorageError as damage:
            # Half of what groups stored would be told as if it were all.
            log.go_offline(
                f"{damage}. Its groups are told to try again later, until the file is restored from a copy. To go "
                f"on without what they stored, stop the server and empty the folder {log.folder}"
            )
            return
        unreadable = 0
        keys = iter(list(newest))
        while raw_keys := list(islice(keys, READ_AT_A_TIME)):
            for raw_key in raw_keys:
                try:
                    self._note(raw_key, newest.pop(raw_key), found)
                except (BadRecord, StructError, UnicodeDecodeError):
                    unreadable += 1
            yield
        if unreadable:
            logger.error("%d records of %s cannot be read; they are left out", unreadable, OFFSETS_TOPIC)

    def _note(self, raw_key: bytes, raw_value: bytes | None, found: Found) -> None:
        key = records.decode_key(raw_key)
        if isinstance(key, GroupKey):
            if raw_value is None:
                found.groups.pop(key.group, None)
            else:
                found.groups[key.group] = records.decode_group(raw_value)
        elif isinstance(key, OffsetKey):
            if raw_value is None:
                self._store.offsets.remove(*key)
            else:
                self._store.offsets.put(*key, records.decode_offset(raw_value))
                found.committers[key.group] = None

    def _serving(self, move: Move, found: Found) -> Pauses:
        """The members have one session timeout, from now on, to be heard of."""
        now, limits = self._clock.now(), self._limits
        groups: dict[str, Group] = {}
        for count, (group_id, stored) in enumerate(found.groups.items(), 1):
            groups[group_id] = Group.restore(group_id, stored, limits, now)
            if count % GROUPS_AT_A_TIME == 0:
                yield
        for count, group_id in enumerate(found.committers, 1):
            if group_id not in groups and self._store.offsets.has_any(group_id):
                groups[group_id] = Group(group_id, limits, now)
            if count % READ_AT_A_TIME == 0:
                yield
        if not self._is_on(move):
            return
        self._store.serve(move.partition, move.epoch, groups)
        self._store.topic.loading.discard(move.partition.index)
        yield from self._noting(move, groups.values())

    def _noting(self, move: Move, groups: Iterable[Group]) -> Pauses:
        for count, group in enumerate(groups, 1):
            if self._store.groups.get(group.group_id) is group:
                self._came(group)
            if count % GROUPS_AT_A_TIME == 0:
                yield
                if not self._is_on(move):
                    return
