"""The state of a coordinator moves with its partition of the coordinator's topic (see `coordinator_topic.py`).

Who is elected to lead it reads back from the log what is kept there, in turns; requests about it are answered
COORDINATOR_LOAD_IN_PROGRESS meanwhile. It is served once all that was read is below the high watermark: what is told
and then lost would go back. Who resigns forgets it, and answers those that wait. Each move ends the one before it,
however far that had come, and one of an older epoch came late and is ignored.

A server that stands alone is elected for all partitions when it starts, and has read them before it serves.
"""

import logging
from collections.abc import Callable
from itertools import islice
from struct import error as StructError
from typing import Protocol

from oncelog.log.errors import LogStorageError
from oncelog.log.partition import End, Fate
from oncelog.log.work_steps import Pauses
from oncelog.server.alarms import InTurns
from oncelog.server.coordinator_topic import BadRecord, CoordinatorTopic
from oncelog.server.high_watermark import when_settled
from oncelog.server.topic_replay import EndOfTransaction, kept_in
from oncelog.server.topics import Partition

logger = logging.getLogger(__name__)

READ_AT_A_TIME = 500  # records: a millisecond or two

IsOn = Callable[[], bool]  # whether the move is still the last one
Kept = tuple[int, bytes | None]  # the offset of a record, and its value
Records = dict[bytes, Kept]


class Found(Protocol):
    """The state as it is read from a partition. It is in nobody's way before it is served."""

    def note(self, key: bytes, offset: int, value: bytes | None) -> None:
        """The newest record of a key. Raises BadRecord, struct.error or UnicodeDecodeError for what is none."""
        ...

    def note_open(self, pid: int, records: Records) -> None:
        """The records of a transaction that has not ended."""
        ...

    def serving(self, epoch: int, is_on: IsOn) -> Pauses:
        """Everything is read, and safe."""
        ...


class Memory(Protocol):
    """The memory of a coordinator."""

    topic: CoordinatorTopic

    def finding(self, partition: Partition) -> Found: ...

    def letting_go(self, partition: Partition, is_on: IsOn) -> Pauses:
        """Forget what is kept there; those that wait for it are told."""
        ...


class Move:
    """An election or a resignation of this broker."""

    __slots__ = ("epoch", "partition")

    def __init__(self, partition: Partition, epoch: int) -> None:
        self.partition = partition
        self.epoch = epoch


class Moves:
    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._last: dict[int, Move] = {}  # of each partition
        self._held: set[int] = set()  # partitions of which something may be in memory

    def elected(self, partition: Partition, epoch: int, in_turns: InTurns) -> None:
        last = self._last.get(partition.index)
        if last is None or last.epoch < epoch:
            move = self._begin(partition, epoch)
            self._memory.topic.loading.add(partition.index)
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
        """Begin a move: the partition is no longer served or read, and nobody waits any more for what was stored in
        it."""
        topic = self._memory.topic
        topic.served.pop(partition.index, None)
        topic.loading.discard(partition.index)
        move = self._last[partition.index] = Move(partition, epoch)
        partition.wake()
        return move

    def _is_on(self, move: Move) -> bool:
        return self._last.get(move.partition.index) is move

    def _letting_go(self, move: Move) -> Pauses:
        index = move.partition.index
        if index in self._held:
            yield from self._memory.letting_go(move.partition, lambda: self._is_on(move))
            if self._is_on(move):
                self._held.discard(index)

    def _taking(self, move: Move, in_turns: InTurns) -> Pauses:
        partition = move.partition
        yield from self._letting_go(move)
        if not self._is_on(move):
            return
        self._held.add(partition.index)
        end = End(partition.log.next_offset, move.epoch)
        found = self._memory.finding(partition)
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
                self._memory.topic.loading.discard(partition.index)

        when_settled(partition, end, settled)

    def _serving(self, move: Move, found: Found) -> Pauses:
        return found.serving(move.epoch, lambda: self._is_on(move))

    def _reading(self, partition: Partition, found: Found) -> Pauses:
        """Read what was found; only the newest record of each key is looked into."""
        log, name = partition.log, self._memory.topic.kind.topic
        if log.offline is not None:
            logger.error("%s-%d is offline: %s", name, partition.index, log.offline)
            return
        newest: Records = {}
        opened: dict[int, Records] = {}
        unreadable, unread = 0, kept_in(log)
        try:
            while some := list(islice(unread, READ_AT_A_TIME)):
                for pid, each in some:
                    if isinstance(each, EndOfTransaction):
                        _end(opened.pop(pid, {}), newest, is_commit=each.is_commit)
                    elif each.key is None:
                        unreadable += 1
                    else:
                        records = opened.setdefault(pid, {}) if pid >= 0 else newest
                        records[each.key] = each.offset, each.value
                yield
        except LogStorageError as damage:
            # Half of what is stored would be told as if it were all.
            log.go_offline(
                f"{damage}. Clients are told to try again later, until the file is restored from a copy. To go on "
                f"without what was stored there, stop the server and empty the folder {log.folder}"
            )
            return
        yield from _taking_away(opened, newest)
        keys = iter(list(newest))
        while raw_keys := list(islice(keys, READ_AT_A_TIME)):
            for raw_key in raw_keys:
                try:
                    found.note(raw_key, *newest.pop(raw_key))
                except (BadRecord, StructError, UnicodeDecodeError):
                    unreadable += 1
            yield
        for pid, records in opened.items():
            found.note_open(pid, records)
            yield
        if unreadable:
            logger.error("%d records of %s cannot be read; they are left out", unreadable, name)


def _end(ended: Records, newest: Records, *, is_commit: bool) -> None:
    """Records of a transaction count from where they were written on, as in Kafka."""
    for key, (offset, value) in ended.items() if is_commit else ():
        known = newest.get(key)
        if known is None or known[0] < offset:
            newest[key] = offset, value


def _taking_away(opened: dict[int, Records], newest: Records) -> Pauses:
    """Records that were taken away since a transaction wrote them do not come back with its end."""
    for records in opened.values():
        later = {key: newest[key] for key in records if key in newest}
        for key, (offset, value) in later.items():
            if value is None and records[key][0] < offset:
                del records[key]
        yield
