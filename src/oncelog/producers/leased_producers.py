"""The producers of one partition whose pids were leased: highwater rules over a ring in fixed memory."""

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import compress, islice
from typing import NamedTuple

from oncelog.clock import Now
from oncelog.producers import highwater
from oncelog.producers.ceilings import CAME_ONCE, CAME_ONCE_NOW, EPOCHS_KEPT, GOES_ON, LeaseCeiling
from oncelog.producers.decision import APPEND, Decision, Judgement
from oncelog.producers.entries import EXPIRED_AT_A_TIME, Entries
from oncelog.producers.grants import Grants
from oncelog.producers.highwater import Known, Question
from oncelog.producers.ring import PIDS, Ring
from oncelog.producers.sequences import SEQUENCE_MASK

LIFETIMES_KEPT = 2
PARTS_FREED = 8  # a full ring frees one of this many parts at a time
PARTS_FOR_NEW = 4  # one of this many parts is for those that wrote once so far; the others are for those that wrote on


class Floor(NamedTuple):
    """The level that a full ring leaves behind where it makes room: no pid up to this one passes as new any more, since
    it may have been here."""

    pid: int = 0  # 0: nobody gave way
    raised_ms: int = 0  # monotonic


class LeasedProducers:
    """An entry lives two lifetimes from the arrival of its first message.

    One lifetime is promised. The second closes the gap to `Grants.may_be_new`, which takes a pid for a new one until
    two lifetimes after its grant: an entry outlives that moment, so a first batch sent again never passes as new.

    Where a log begins without knowing who wrote before, a pid passes as new only if it was granted after that.

    A full ring makes room before that, and the floor then closes the same gap: who gave way is unknown here, and so is
    every pid below the floor that never wrote here. Neither can be appended again; both lease another pid.
    """

    def __init__(self, grants: Grants, lifetime_ms: int, capacity: int, ceiling: LeaseCeiling) -> None:
        self._grants = grants
        self._ceiling = ceiling
        self._epochs: tuple[int, ...] = ()  # where the log ended as each of the last ones began, oldest first
        self.lifetime_ms = lifetime_ms
        self.capacity = capacity
        self._kept_ms = lifetime_ms * LIFETIMES_KEPT
        self.clear()

    def clear(self) -> None:
        self.entries = Entries(self.capacity)
        self.ring = Ring(self.capacity)
        self.floor = Floor()
        self.blind_ms: int | None = None  # monotonic; who wrote before that is not known
        self._pid = 0  # the last pid looked up and found, since the same one usually comes again
        self._row = -1

    def __len__(self) -> int:
        return len(self.ring)

    def judge(self, pid: int, generation: int, first_sequence: int, record_count: int, now: Now) -> Judgement:
        if self.next_row(pid, generation, first_sequence) >= 0:
            return APPEND
        return self._judge_by_table(self.row(pid), pid, generation, first_sequence, record_count, now)

    def next_row(self, pid: int, generation: int, first_sequence: int) -> int:
        """The producer's row if this is the usual case, which the table need not be walked for; else -1."""
        row = self._row if pid == self._pid else self.row(pid)
        entries = self.entries
        if (
            row >= 0
            and first_sequence == (entries.last_sequence[row] + 1) & SEQUENCE_MASK
            and generation == entries.generation[row]
        ):
            return row
        return -1

    def wrote(self, pid: int, row: int, now: Now) -> None:
        """An entry's life counts from its first message, so nothing changes with another one."""

    def accept(
        self,
        pid: int,
        generation: int,
        first_sequence: int,
        record_count: int,
        base_offset: int,
        timestamp_ms: int,
        now: Now,
    ) -> None:
        row = self._row if pid == self._pid else self.row(pid)
        if row < 0:
            row = self._insert(pid, generation, now)
        else:
            self.entries.generation[row] = generation
        self.entries.remember(row, first_sequence, record_count, base_offset, timestamp_ms)

    def judge_fence(self, pid: int, generation: int, now: Now) -> Decision:
        known = self.known(pid)
        return highwater.decide_fence(known, known is None and self._may_be_new(pid, now), generation)

    def fence(self, pid: int, generation: int, now: Now) -> None:
        row = self.row(pid)
        if row < 0:
            self._insert(pid, generation, now)
        else:
            self.entries.generation[row] = generation

    def known(self, pid: int) -> Known | None:
        row = self.row(pid)
        return None if row < 0 else Known(self.entries.generation[row], self.entries.last_sequence[row])

    def row(self, pid: int) -> int:
        row = self.ring.find(pid)
        if row >= 0:
            self._pid, self._row = pid, row
        return row

    def pids(self) -> Iterable[int]:
        """The pids that are known now."""
        return self.ring.pids()

    def newest_rows(self) -> Iterator[tuple[int, int]]:
        return reversed(self.ring)

    def sampled_rows(self, most: int) -> Iterator[tuple[int, int]]:
        """`most` of them, evenly spread, oldest pid first."""
        count = len(self.ring)
        return map(self.ring.at, range(count) if count <= most else (n * count // most for n in range(most)))

    def lease_left_ms(self, row: int, now: Now) -> int:
        """The rest of a lease, by the arrival of its first message here; 0 for an entry that has outlived its
        lease."""
        return max(0, self.entries.seen_ms[row] + self.lifetime_ms - now.monotonic_ms)

    def places(self) -> "tuple[array[int], array[int]]":
        return self.ring.places()

    def put_back(self, pids: "array[int]", rows: "array[int]", entries: Entries) -> None:
        self.clear()
        self.entries = entries
        self.ring.put_back(pids, rows)

    def expire(self, now: Now) -> int:
        expired = 0
        while expired < EXPIRED_AT_A_TIME and len(self.ring) and self._oldest_is_over(now):
            self._drop_oldest()
            expired += 1
        return expired

    # --- what the ceiling of all partitions asks

    def epoch_begins(self, end_offset: int) -> None:
        self._epochs = (*self._epochs, end_offset)[-EPOCHS_KEPT - 1 :]

    def ranks(self) -> bytes:
        entries, epochs = self.entries, self._epochs[:-1]  # those that have begun and ended
        batches, base_offset, newest_place = entries.batches, entries.base_offset, entries.newest_place
        ended, since = len(epochs), epochs[-1] if epochs else 0
        found = bytearray()
        for row in self.ring.places()[1]:
            if batches[row] > 1:
                idle = ended - bisect_right(epochs, base_offset[newest_place(row)])
                found.append(EPOCHS_KEPT + 1 - idle if idle else GOES_ON)
            else:
                is_old = not batches[row] or base_offset[newest_place(row)] < since
                found.append(CAME_ONCE if is_old else CAME_ONCE_NOW)
        return bytes(found)

    def give_way(self, places: Sequence[int], now: Now) -> None:
        """Drop the producers at these places of the ring; the floor keeps them from coming back as new."""
        pids, rows = self.ring.places()
        stays = bytearray(b"\1") * len(rows)
        for place in places:
            stays[place] = 0
            self.entries.give_back(rows[place])
        self._raise_floor((pids[stays.rindex(0)] - 1) % PIDS + 1, now)
        self.ring.put_back(array("q", compress(pids, stays)), array("I", compress(rows, stays)))
        self._pid, self._row = 0, -1

    def _insert(self, pid: int, generation: int, now: Now) -> int:
        self._ceiling.take(now)
        if len(self.ring) >= self.capacity:
            self.expire(now)
        if len(self.ring) >= self.capacity:
            self._make_room(now)
        row = self.entries.take(generation, now.monotonic_ms)
        self.ring.insert(pid, row)
        self._pid, self._row = pid, row
        return row

    def _make_room(self, now: Now) -> None:
        """The longest idle give way: of the oldest that wrote once, or, where these are few, of those that wrote on."""
        rows = self.ring.places()[1]
        entries = self.entries
        batches, seen_ms, base_offset = entries.batches, entries.seen_ms, entries.base_offset
        part = self.capacity // PARTS_FOR_NEW
        candidates = list(islice((place for place, row in enumerate(rows) if batches[row] <= 1), part + 1))
        if len(candidates) > part:
            candidates.sort(key=lambda place: seen_ms[rows[place]])
        else:
            candidates = [place for place, row in enumerate(rows) if batches[row] > 1]
            offsets = [base_offset[entries.newest_place(row)] if batches[row] > 1 else -1 for row in rows]
            candidates.sort(key=offsets.__getitem__)
        self.give_way(candidates[: len(rows) - self.capacity + max(1, self.capacity // PARTS_FREED)], now)

    def _raise_floor(self, pid: int, now: Now) -> None:
        self.floor = Floor(self.floor.pid if self._is_below_floor(pid, now) else pid, now.monotonic_ms)

    def _is_below_floor(self, pid: int, now: Now) -> bool:
        """Whether the floor says that it is not new. The grants themselves know that after two lifetimes."""
        floor = self.floor
        is_up = floor.pid > 0 and now.monotonic_ms - floor.raised_ms < self._kept_ms
        return is_up and (floor.pid - pid) % PIDS < PIDS // 2

    def _may_be_new(self, pid: int, now: Now) -> bool:
        if self._is_below_floor(pid, now):
            return False
        if self.blind_ms is not None:  # two lifetimes after it, only what was granted since then is new
            now = now._replace(monotonic_ms=max(now.monotonic_ms, self.blind_ms + self._kept_ms))
        return self._grants.may_be_new(pid, now)

    def _judge_by_table(
        self, row: int, pid: int, generation: int, first_sequence: int, record_count: int, now: Now
    ) -> Judgement:
        if row >= 0:
            known = Known(self.entries.generation[row], self.entries.last_sequence[row])
            decision, detail = highwater.decide(Question(known, False, generation, first_sequence, record_count))
            if decision is Decision.DUPLICATE:
                return decision, self.entries.offset_of(row, first_sequence)
            return decision, detail
        may_be_new = first_sequence == 0 and self._may_be_new(pid, now)
        return highwater.decide(Question(None, may_be_new, generation, first_sequence, record_count))

    def _oldest_is_over(self, now: Now) -> bool:
        return now.monotonic_ms - self.entries.seen_ms[self.ring.oldest_row()] >= self._kept_ms

    def _drop_oldest(self) -> None:
        self.entries.give_back(self.ring.pop_oldest())
        self._pid, self._row = 0, -1
