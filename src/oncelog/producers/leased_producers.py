"""The producers of one partition whose pids were leased: highwater rules over a ring in fixed memory."""

from array import array
from collections.abc import Iterator

from oncelog.clock import Now
from oncelog.producers import highwater
from oncelog.producers.decision import APPEND, Decision, Judgement
from oncelog.producers.entries import Entries
from oncelog.producers.grants import Grants
from oncelog.producers.highwater import Known, Question
from oncelog.producers.ring import Ring
from oncelog.producers.sequences import SEQUENCE_MASK

LIFETIMES_KEPT = 2
OVERFLOW = 2  # replay may fill the ring to so many times its capacity


class LeasedProducers:
    """An entry lives two lifetimes from the arrival of its first message.

    One lifetime is promised. The second closes the gap to `Grants.may_be_new`, which takes a pid for a new one until
    two lifetimes after its grant: an entry outlives that moment, so a first batch sent again never passes as new.
    """

    def __init__(self, grants: Grants, lifetime_ms: int, capacity: int) -> None:
        self._grants = grants
        self.lifetime_ms = lifetime_ms
        self.capacity = capacity
        self._kept_ms = lifetime_ms * LIFETIMES_KEPT
        self.clear()

    def clear(self) -> None:
        self.entries = Entries(self.capacity)
        self.ring = Ring(self.capacity)
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
        may_be_new = known is None and self._grants.may_be_new(pid, now)
        decision = highwater.decide_fence(known, may_be_new, generation)
        return Decision.FULL if decision is Decision.APPEND and known is None and self.is_full(now) else decision

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

    def rows(self) -> Iterator[tuple[int, int]]:
        return iter(self.ring)

    def newest_rows(self) -> Iterator[tuple[int, int]]:
        return reversed(self.ring)

    def sampled_rows(self, most: int) -> Iterator[tuple[int, int]]:
        """So many of them, evenly spread, oldest pid first."""
        count = len(self.ring)
        return map(self.ring.at, range(count) if count <= most else (n * count // most for n in range(most)))

    def lease_left_ms(self, row: int, now: Now) -> int:
        """By the arrival of its first message here; 0 for an entry that has outlived its lease."""
        return max(0, self.entries.seen_ms[row] + self.lifetime_ms - now.monotonic_ms)

    def places(self) -> "tuple[array[int], array[int]]":
        return self.ring.places()

    def put_back(self, pids: "array[int]", rows: "array[int]", entries: Entries) -> None:
        self.clear()
        self.entries = entries
        self.ring.put_back(pids, rows)

    def expire(self, now: Now) -> int:
        expired = 0
        while len(self.ring) and self._oldest_is_over(now):
            self._drop_oldest()
            expired += 1
        return expired

    def is_full(self, now: Now) -> bool:
        return len(self.ring) >= self.capacity and not self._oldest_is_over(now)

    def insert(self, pid: int, generation: int, seen_ms: int) -> int:
        """A new entry. The oldest makes room only at a bound that no live entry can reach (see docs/producers.md)."""
        if len(self.ring) >= self.capacity * OVERFLOW:
            self._drop_oldest()
        row = self.entries.take(generation, seen_ms)
        self.ring.insert(pid, row)
        self._pid, self._row = pid, row
        return row

    def _insert(self, pid: int, generation: int, now: Now) -> int:
        if len(self.ring) >= self.capacity:
            self.expire(now)
        return self.insert(pid, generation, now.monotonic_ms)

    def _judge_by_table(
        self, row: int, pid: int, generation: int, first_sequence: int, record_count: int, now: Now
    ) -> Judgement:
        if row >= 0:
            known = Known(self.entries.generation[row], self.entries.last_sequence[row])
            decision, detail = highwater.decide(Question(known, False, generation, first_sequence, record_count))
            if decision is Decision.DUPLICATE:
                return decision, self.entries.offset_of(row, first_sequence)
            return decision, detail
        may_be_new = first_sequence == 0 and self._grants.may_be_new(pid, now)
        judgement = highwater.decide(Question(None, may_be_new, generation, first_sequence, record_count))
        return (Decision.FULL, 0) if judgement[0] is Decision.APPEND and self.is_full(now) else judgement

    def _oldest_is_over(self, now: Now) -> bool:
        return now.monotonic_ms - self.entries.seen_ms[self.ring.oldest_row()] >= self._kept_ms

    def _drop_oldest(self) -> None:
        self.entries.give_back(self.ring.pop_oldest())
        self._pid, self._row = 0, -1
