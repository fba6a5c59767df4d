"""The producers of one partition whose pids came from InitProducerId: Kafka's rules over bounded columns.

Kafka forgets a producer by the time since its last batch, so these leave in the order of their last batches: an ordered
dictionary, the longest idle first, leads from pid to row. Who has a transaction open is not idle.
"""

from array import array
from collections import OrderedDict
from collections.abc import Iterable, Iterator

from oncelog.clock import Now
from oncelog.producers import kafka_rules
from oncelog.producers.ceilings import KafkaCeiling
from oncelog.producers.decision import APPEND, Decision, Judgement
from oncelog.producers.entries import EXPIRED_AT_A_TIME, Entries
from oncelog.producers.kafka_rules import KnownProducer, Question
from oncelog.producers.sequences import NO_SEQUENCE, SEQUENCE_MASK
from oncelog.producers.transactions import Transactions

OVERFLOW = 2  # replay may hold this many times the capacity
# A client sends a batch again until delivery.timeout.ms, two minutes by default, then gives it up. So a client
# that sent nothing for five times as long has nothing under way that could arrive twice; it may give way when full.
GRACE_MS = 600_000
NO_LEASE = -1


class KafkaProducers:
    def __init__(self, expiration_ms: int, capacity: int, ceiling: KafkaCeiling) -> None:
        self._ceiling = ceiling
        self._expiration_ms = expiration_ms
        self._grace_ms = min(GRACE_MS, expiration_ms)
        self._capacity = capacity
        self.transactions = Transactions()
        self.clear()

    def clear(self) -> None:
        self.entries = Entries(self._capacity)
        self._rows: OrderedDict[int, int] = OrderedDict()
        self.transactions.clear()

    def __len__(self) -> int:
        return len(self._rows)

    def judge(self, pid: int, epoch: int, first_sequence: int, record_count: int, now: Now) -> Judgement:
        """The judgement on a batch outside of any transaction."""
        if self.next_row(pid, epoch, first_sequence) >= 0:
            return APPEND
        judgement = self.judge_in_transaction(pid, epoch, first_sequence, record_count, now)
        if judgement[0] is Decision.APPEND and pid in self.transactions.open:
            return Decision.IN_TRANSACTION, 0
        return judgement

    def judge_in_transaction(self, pid: int, epoch: int, first_sequence: int, record_count: int, now: Now) -> Judgement:
        known = self.known(pid)
        judgement = kafka_rules.decide(Question(known, epoch, first_sequence, record_count))
        return (Decision.FULL, 0) if known is None and self.is_full(now) else judgement

    def judge_unsequenced(self, pid: int, epoch: int, now: Now) -> Decision:
        """The decision about a transactional batch that a coordinator writes for a producer: it has no sequences."""
        row = self.row(pid)
        if row < 0:
            return Decision.FULL if self.is_full(now) else Decision.APPEND
        return Decision.FENCED if epoch < self.entries.generation[row] else Decision.APPEND

    def judge_marker(self, pid: int, epoch: int, coordinator_epoch: int, *, is_newer: bool) -> Decision:
        """`is_newer`: the coordinator raises the epoch with each end (KIP-890), so an equal one is a marker that is
        there already, which is written again, or one that comes late."""
        row = self.row(pid)
        known_epoch = -1 if row < 0 else self.entries.generation[row]
        is_open = pid in self.transactions.open
        if epoch < known_epoch or (is_newer and epoch == known_epoch and is_open):
            return Decision.FENCED
        is_old = coordinator_epoch < self.transactions.coordinator_epoch(pid)
        return Decision.COORDINATOR_FENCED if is_old else Decision.APPEND

    def next_row(self, pid: int, epoch: int, first_sequence: int) -> int:
        """The producer's row if this is the usual case, which the table need not be walked for; else -1.

        Five batches never hold a whole turn of the circle, so a batch with the next sequence is not one of them.
        """
        row = self._rows.get(pid, -1)
        entries = self.entries
        if (
            row >= 0
            and first_sequence == (entries.last_sequence[row] + 1) & SEQUENCE_MASK
            and epoch == entries.generation[row]
            and not (self.transactions.open and pid in self.transactions.open)
        ):
            return row
        return -1

    def wrote(self, pid: int, row: int, now: Now) -> None:
        self._rows.move_to_end(pid)
        self.entries.seen_ms[row] = now.monotonic_ms

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
        row = self._row_of(pid, epoch, now)
        self.entries.remember(row, first_sequence, record_count, base_offset, timestamp_ms)

    def accept_unsequenced(self, pid: int, epoch: int, timestamp_ms: int, now: Now) -> None:
        """A coordinator's batch or marker: what comes next in a new epoch is its sequence 0."""
        row, entries = self.row(pid), self.entries
        is_same = row >= 0 and entries.generation[row] == epoch
        row = self._row_of(pid, epoch, now)
        if not is_same:
            entries.last_sequence[row] = NO_SEQUENCE
        entries.timestamp_ms[row] = timestamp_ms

    def _row_of(self, pid: int, epoch: int, now: Now) -> int:
        """The row of this pid, which writes now, in that epoch."""
        row = self._rows.get(pid, -1)
        entries = self.entries
        if row < 0:
            row = self._insert(pid, epoch, now)
        else:
            self._rows.move_to_end(pid)
            if epoch != entries.generation[row]:
                entries.generation[row] = epoch
                entries.forget_batches(row)
        entries.seen_ms[row] = now.monotonic_ms
        return row

    def known(self, pid: int) -> KnownProducer | None:
        row = self.row(pid)
        return None if row < 0 else self._known(row)

    def row(self, pid: int) -> int:
        return self._rows.get(pid, -1)

    def pids(self) -> Iterable[int]:
        """The pids that are known now."""
        return tuple(self._rows)

    def newest_rows(self) -> Iterator[tuple[int, int]]:
        """The rows, with the producer that wrote last first."""
        return reversed(self._rows.items())

    def lease_left_ms(self, row: int, now: Now) -> int:
        """These pids are not leased."""
        return NO_LEASE

    def places(self) -> "tuple[array[int], array[int]]":
        return array("q", self._rows.keys()), array("I", self._rows.values())

    def put_back(self, pids: "array[int]", rows: "array[int]", entries: Entries) -> None:
        self.clear()
        self.entries = entries
        self._rows = OrderedDict(sorted(zip(pids, rows, strict=True), key=lambda place: entries.seen_ms[place[1]]))

    def expire(self, now: Now) -> int:
        return self._drop_idle(now.monotonic_ms - self._expiration_ms, down_to=max(0, len(self) - EXPIRED_AT_A_TIME))

    def is_full(self, now: Now) -> bool:
        """No room, here or over all partitions, and nobody who may give way."""
        if len(self._rows) < self._capacity:
            return self._ceiling.refuses(len(self._rows), now)
        since_ms = now.monotonic_ms - self._grace_ms
        self._spare_the_busy(since_ms)
        return self.entries.seen_ms[self._longest_idle()] > since_ms

    def insert(self, pid: int, epoch: int, seen_ms: int) -> int:
        """A new entry. One within its grace makes room only at a bound that no leader fills (see docs/producers.md)."""
        if len(self._rows) >= self._capacity * OVERFLOW:
            self._drop_longest_idle()
        self._ceiling.take()
        row = self._rows[pid] = self.entries.take(epoch, seen_ms)
        return row

    def _insert(self, pid: int, epoch: int, now: Now) -> int:
        self._drop_idle(now.monotonic_ms - self._grace_ms, down_to=self._capacity - 1)
        return self.insert(pid, epoch, now.monotonic_ms)

    def drop_graced(self, most: int, now: Now) -> int:
        return self._drop_idle(now.monotonic_ms - self._grace_ms, down_to=max(0, len(self._rows) - most))

    def _drop_idle(self, since_ms: int, down_to: int) -> int:
        """Drops those idle since then or longer, the longest idle first, until the number is left."""
        before, seen_ms = len(self._rows), self.entries.seen_ms
        while len(self._rows) > down_to and seen_ms[self._longest_idle()] <= since_ms:
            if self.transactions.open:
                self._spare_the_busy(since_ms)
                if seen_ms[self._longest_idle()] > since_ms:
                    break
            self._drop_longest_idle()
        return before - len(self._rows)

    def _spare_the_busy(self, since_ms: int) -> None:
        """The longest idle that have a transaction open move to the end, until one comes that has none."""
        opened, seen_ms = self.transactions.open, self.entries.seen_ms
        while opened and (pid := next(iter(self._rows))) in opened and seen_ms[self._rows[pid]] <= since_ms:
            seen_ms[self._rows[pid]] = since_ms + 1
            self._rows.move_to_end(pid)

    def _longest_idle(self) -> int:
        return next(iter(self._rows.values()))

    def _drop_longest_idle(self) -> None:
        pid, row = self._rows.popitem(last=False)
        self.transactions.forget_producer(pid)
        self.entries.give_back(row)

    def _known(self, row: int) -> KnownProducer:
        entries = self.entries
        return KnownProducer(
            entries.generation[row], entries.last_sequence[row], entries.accepted_records[row], entries.remembered(row)
        )
