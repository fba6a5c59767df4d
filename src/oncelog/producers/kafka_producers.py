"""The producers of one partition whose pids came from InitProducerId: Kafka's rules over bounded columns.

Kafka forgets a producer by the time since its last batch, so these leave in any order and need no ring: a dictionary
leads from pid to row.
"""

from array import array
from collections.abc import Iterator
from heapq import nsmallest

from oncelog.clock import Now
from oncelog.producers import kafka_rules
from oncelog.producers.decision import APPEND, Decision, Judgement
from oncelog.producers.entries import Entries
from oncelog.producers.kafka_rules import KnownProducer, Question
from oncelog.producers.sequences import SEQUENCE_MASK

OVERFLOW = 2  # replay may hold so many times the capacity


class KafkaProducers:
    def __init__(self, expiration_ms: int, capacity: int) -> None:
        self._expiration_ms = expiration_ms
        self._capacity = capacity
        self.clear()

    def clear(self) -> None:
        self.entries = Entries(self._capacity)
        self._rows: dict[int, int] = {}
        self._none_expires_before_ms = 0  # spares a walk over all producers while none can be over

    def __len__(self) -> int:
        return len(self._rows)

    def judge(self, pid: int, epoch: int, first_sequence: int, record_count: int, now: Now) -> Judgement:
        row = self._rows.get(pid, -1)
        entries = self.entries
        # The usual case without walking the table. Five batches never hold a whole turn of the circle, so a batch with
        # the next sequence is not one of them.
        if (
            row >= 0
            and first_sequence == (entries.last_sequence[row] + 1) & SEQUENCE_MASK
            and epoch == entries.generation[row]
        ):
            return APPEND
        known = None if row < 0 else self._known(row)
        judgement = kafka_rules.decide(Question(known, epoch, first_sequence, record_count))
        return (Decision.FULL, 0) if known is None and self.is_full(now) else judgement

    def accept(
        self,
        pid: int,
        epoch: int,
        first_sequence: int,
        record_count: int,
        base_offset: int,
        timestamp_ms: int,
        now: Now,
    ) -> None:
        row = self._rows.get(pid, -1)
        entries = self.entries
        if row < 0:
            row = self._insert(pid, epoch, now)
        elif epoch != entries.generation[row]:
            entries.generation[row] = epoch
            entries.forget_batches(row)
        entries.seen_ms[row] = now.monotonic_ms
        entries.remember(row, first_sequence, record_count, base_offset, timestamp_ms)

    def known(self, pid: int) -> KnownProducer | None:
        row = self._rows.get(pid, -1)
        return None if row < 0 else self._known(row)

    def rows(self) -> Iterator[tuple[int, int]]:
        return iter(self._rows.items())

    def places(self) -> "tuple[array[int], array[int]]":
        return array("q", self._rows.keys()), array("I", self._rows.values())

    def put_back(self, pids: "array[int]", rows: "array[int]", entries: Entries) -> None:
        self.clear()
        self.entries = entries
        self._rows = dict(zip(pids, rows, strict=True))

    def expire(self, now: Now) -> int:
        if now.monotonic_ms < self._none_expires_before_ms:
            return 0
        seen_ms, limit_ms = self.entries.seen_ms, now.monotonic_ms - self._expiration_ms
        over = [pid for pid, row in self._rows.items() if seen_ms[row] <= limit_ms]
        for pid in over:
            self.entries.give_back(self._rows.pop(pid))
        oldest_ms = min((seen_ms[row] for row in self._rows.values()), default=now.monotonic_ms)
        self._none_expires_before_ms = oldest_ms + self._expiration_ms
        return len(over)

    def is_full(self, now: Now) -> bool:
        if len(self._rows) < self._capacity or now.monotonic_ms < self._none_expires_before_ms:
            return len(self._rows) >= self._capacity
        seen_ms, limit_ms = self.entries.seen_ms, now.monotonic_ms - self._expiration_ms
        return not any(seen_ms[row] <= limit_ms for row in self._rows.values())

    def insert(self, pid: int, epoch: int, seen_ms: int) -> int:
        """A new entry. The longest idle make room only at a bound that no leader fills (see docs/producers.md)."""
        if len(self._rows) >= self._capacity * OVERFLOW:
            self._drop_idle(max(1, self._capacity // 8))
        row = self._rows[pid] = self.entries.take(epoch, seen_ms)
        return row

    def _drop_idle(self, count: int) -> None:
        """Many at once, since to find them takes a walk over all."""
        seen_ms = self.entries.seen_ms
        for pid in nsmallest(count, self._rows, key=lambda known: seen_ms[self._rows[known]]):
            self.entries.give_back(self._rows.pop(pid))

    def _insert(self, pid: int, epoch: int, now: Now) -> int:
        if len(self._rows) >= self._capacity:
            self.expire(now)
        return self.insert(pid, epoch, now.monotonic_ms)

    def _known(self, row: int) -> KnownProducer:
        entries = self.entries
        return KnownProducer(
            entries.generation[row], entries.last_sequence[row], entries.accepted_records[row], entries.remembered(row)
        )
