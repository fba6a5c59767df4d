"""One partition's producers: what it decides about a batch that names one, and what it remembers.

The map changes only through what is appended to the log, so any replica can make it from the log. The kind of a
producer is told by its pid: up to 0 nobody's, up to 2^32 - 1 leased, from 2^32 on granted by InitProducerId.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import NamedTuple

from oncelog.clock import DAY_MS, Now
from oncelog.producers import snapshot
from oncelog.producers.bound_pids import number_of
from oncelog.producers.ceilings import Ceilings
from oncelog.producers.decision import APPEND, Decision, Judgement
from oncelog.producers.grants import AnyGrant, Grants
from oncelog.producers.kafka_producers import KafkaProducers
from oncelog.producers.leased_producers import LeasedProducers
from oncelog.producers.markers import NO_COORDINATOR, NO_TRANSACTION, Marker
from oncelog.producers.run import Run
from oncelog.producers.sequences import SEQUENCE_MASK
from oncelog.producers.transactions import Transactions

FIRST_KAFKA_PID = 1 << 32
MOST_KEPT_BACK = 32  # between two chunks of bytes; within one there are as many as it holds


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerLimits:
    lease_lifetime_ms: int = DAY_MS
    lease_entries: int = 65_536
    kafka_expiration_ms: int = DAY_MS
    kafka_entries: int = 65_536


class LiveProducer(NamedTuple):
    pid: int
    generation: int
    last_sequence: int  # -1: fenced, but nothing accepted yet
    timestamp_ms: int  # of its last batch, -1 where there was none
    last_offset: int  # of its last record, -1 where that is not known
    lease_left_ms: int  # 0 when the lease is over, -1 where the pid is not leased
    coordinator_epoch: int = NO_COORDINATOR  # of who ended its last transaction
    first_open_offset: int = NO_TRANSACTION  # of its open transaction


class ProducerMap:
    __slots__ = (
        "_bounds",
        "_kafka",
        "duplicates",
        "fenced",
        "full",
        "leased",
        "out_of_order",
        "run",
        "transactions",
        "trimmed",
        "unknown",
    )

    def __init__(
        self, grants: Grants | None = None, limits: ProducerLimits | None = None, ceilings: Ceilings | None = None
    ) -> None:
        limits, ceilings = limits or ProducerLimits(), ceilings or Ceilings()
        grants, lifetime_ms = grants or AnyGrant(), limits.lease_lifetime_ms
        self._bounds = grants, limits
        self.leased = LeasedProducers(grants, lifetime_ms, limits.lease_entries, ceilings.leases)
        self._kafka = KafkaProducers(limits.kafka_expiration_ms, limits.kafka_entries, ceilings.kafka)
        self.transactions: Transactions = self._kafka.transactions
        self.run = Run(self._kafka)
        # Answers since the start, for /metrics.
        self.duplicates = 0
        self.trimmed = 0
        self.out_of_order = 0
        self.unknown = 0
        self.fenced = 0
        self.full = 0

    def another(self) -> "ProducerMap":
        """An empty one for the same log, which counts below no ceiling of all logs."""
        return ProducerMap(*self._bounds)

    def judge(self, pid: int, generation: int, first_sequence: int, record_count: int, now: Now) -> Judgement:
        """The decision and its detail (see `Decision`); changes nothing but the counters of refusals."""
        judgement = self._judgement(pid, generation, first_sequence, record_count, now)
        if judgement is not APPEND:
            self._count(judgement[0])
        return judgement

    def has(self, pid: int, generation: int, first_sequence: int, record_count: int, now: Now) -> bool:
        """Whether the whole batch is in the log already."""
        decision, _ = self._judgement(pid, generation, first_sequence, record_count, now)
        return decision in (Decision.DUPLICATE, Decision.DUPLICATE_FORGOTTEN)

    def overlap(self, pid: int, generation: int, first_sequence: int, record_count: int, now: Now) -> int:
        """The number of records that are there already, of a batch that is to be trimmed; 0 for any other."""
        if self.run.goes_on(pid, generation, first_sequence):
            return 0
        decision, detail = self._judgement(pid, generation, first_sequence, record_count, now)
        return detail if decision is Decision.TRIM else 0

    def _judgement(self, pid: int, generation: int, first_sequence: int, record_count: int, now: Now) -> Judgement:
        self.run.pass_on()
        if pid >= FIRST_KAFKA_PID:
            return self._kafka.judge(pid, generation, first_sequence, record_count, now)
        return self.leased.judge(pid, generation, first_sequence, record_count, now) if pid > 0 else APPEND

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
        """A batch was appended, or is read again from the log; never refuses.

        `record_count` is the number of sequences spanned: last offset delta + 1, also where compaction took some out.
        """
        self.run.end()
        if pid >= FIRST_KAFKA_PID:
            self._kafka.accept(pid, generation, first_sequence, record_count, base_offset, timestamp_ms, now)
        elif pid > 0:
            self.leased.accept(pid, generation, first_sequence, record_count, base_offset, timestamp_ms, now)

    def accept_next(
        self,
        pid: int,
        generation: int,
        first_sequence: int,
        record_count: int,
        base_offset: int,
        timestamp_ms: int,
        now: Now,
    ) -> bool:
        """`judge` and `accept` at once for the usual case; False, with nothing done, for all others."""
        run = self.run
        if first_sequence != run.next_sequence or pid != run.pid or generation != run.generation:
            if pid <= 0:
                return False
            kind = self._kafka if pid >= FIRST_KAFKA_PID else self.leased
            run.pass_on()
            row = kind.next_row(pid, generation, first_sequence)
            if row < 0:
                return False
            run.begin(kind, row, pid, generation)
        run.next_sequence = (first_sequence + record_count) & SEQUENCE_MASK
        run.batches.append((first_sequence, record_count, base_offset, timestamp_ms, now))
        return True

    def pass_on_many(self) -> None:
        """Pass on what `accept_next` puts off, now and then, so that it stays little. Nobody sees a difference."""
        if len(self.run.batches) >= MOST_KEPT_BACK:
            self.run.pass_on()

    # In transactions, where all pids are Kafka's

    def judge_in_transaction(self, pid: int, epoch: int, first_sequence: int, record_count: int, now: Now) -> Judgement:
        """The same of a batch that belongs to a transaction."""
        self.run.pass_on()
        judgement = self._kafka.judge_in_transaction(pid, epoch, first_sequence, record_count, now)
        if judgement[0] is not Decision.APPEND:
            self._count(judgement[0])
        return judgement

    def judge_unsequenced(self, pid: int, epoch: int, now: Now) -> Decision:
        """The decision about a batch that a coordinator writes for a transaction: it has no sequences."""
        self.run.pass_on()
        return self._kafka.judge_unsequenced(pid, epoch, now)

    def may_write_in_transaction(self, pid: int, epoch: int) -> bool:
        """Whether its coordinator is known to know of it: its transaction is open here, or that was asked."""
        transactions = self.transactions
        if pid in transactions.open:
            known = self.highwater(pid)
            return known is not None and known[0] == epoch
        return transactions.verified.get(pid) == epoch

    def judge_marker(self, pid: int, epoch: int, coordinator_epoch: int, *, is_newer: bool) -> Decision:
        """APPEND, FENCED, COORDINATOR_FENCED, or UNKNOWN_PRODUCER: no other pid is ever in a transaction."""
        if pid < FIRST_KAFKA_PID:
            return Decision.UNKNOWN_PRODUCER
        self.run.pass_on()
        return self._kafka.judge_marker(pid, epoch, coordinator_epoch, is_newer=is_newer)

    def accept_in_transaction(
        self,
        pid: int,
        epoch: int,
        first_sequence: int,
        record_count: int,
        base_offset: int,
        timestamp_ms: int,
        now: Now,
    ) -> None:
        """The same as `accept`, and the transaction is open from here on, if it was not before."""
        if first_sequence < 0:
            self.run.end()
            self._kafka.accept_unsequenced(pid, epoch, timestamp_ms, now)
        else:
            self.accept(pid, epoch, first_sequence, record_count, base_offset, timestamp_ms, now)
        self.transactions.began(pid, base_offset)

    def end_transaction(
        self, pid: int, epoch: int, marker: Marker, marker_offset: int, timestamp_ms: int, now: Now
    ) -> None:
        """A marker was appended there, or is read again from the log. Where there is no room, who wrote nothing here
        that it could end is not remembered: that would drive out those who write."""
        self.run.end()
        if pid not in self.transactions.open and self._kafka.row(pid) < 0 and self._kafka.is_full(now):
            self.transactions.forget_answers(pid)
            return
        self._kafka.accept_unsequenced(pid, epoch, timestamp_ms, now)
        self.transactions.ended(pid, marker.coordinator_epoch, marker_offset)

    def judge_fence(self, pid: int, generation: int, now: Now) -> Decision:
        """Whether a control batch may raise the pid's generation: APPEND, FENCED or UNKNOWN_PRODUCER."""
        if not 0 < pid < FIRST_KAFKA_PID:
            return Decision.UNKNOWN_PRODUCER
        self.run.pass_on()
        decision = self.leased.judge_fence(pid, generation, now)
        if decision is not Decision.APPEND:
            self._count(decision)
        return decision

    def fence(self, pid: int, generation: int, now: Now) -> None:
        """Our control batch was appended, or is read again from the log."""
        self.run.end()
        if 0 < pid < FIRST_KAFKA_PID:
            self.leased.fence(pid, generation, now)

    def highwater(self, pid: int) -> tuple[int, int] | None:
        """(generation, last sequence); the latter is -1 for a producer that was only fenced here so far."""
        self.run.pass_on()
        known = self._kafka.known(pid) if pid >= FIRST_KAFKA_PID else self.leased.known(pid)
        return (known[0], known[1]) if known is not None else None

    def live(self, now: Now) -> Iterator[LiveProducer]:
        """Every producer that has not expired at this moment, each as it is when its turn comes; who has gone by then
        is left out."""
        self.expire(now)
        return chain.from_iterable(self._each_live(kind, kind.pids(), now) for kind in (self.leased, self._kafka))

    def _each_live(
        self, kind: LeasedProducers | KafkaProducers, pids: Iterable[int], now: Now
    ) -> Iterator[LiveProducer]:
        for pid in pids:
            self.run.pass_on()
            row = kind.row(pid)
            if row >= 0:
                yield _live(kind, pid, row, now)

    def live_pids(self, now: Now) -> frozenset[int]:
        self.expire(now)
        return frozenset(chain(self.leased.pids(), self._kafka.pids()))

    def newest(self, now: Now, most: int) -> list[LiveProducer]:
        """`most` of each kind, the newest first, without a look at the others; some may have expired. Nothing
        changes."""
        self.run.pass_on()
        kinds = (self.leased, self._kafka)
        return [_live(kind, pid, row, now) for kind in kinds for pid, row in islice(kind.newest_rows(), most)]

    def sampled_leases(self, now: Now, most: int) -> list[tuple[int, int]]:
        """(pid, lease left in ms) of `most` leased producers, evenly spread over the ring, oldest pid first."""
        return [(pid, self.leased.lease_left_ms(row, now)) for pid, row in self.leased.sampled_rows(most)]

    @property
    def highest_kafka_number(self) -> int:
        """The highest number by which a pid that is known was granted; -1 where none is known."""
        return max(map(number_of, self._kafka.pids()), default=-1)

    @property
    def lease_capacity(self) -> int:
        """The number of leased producers that there is room for."""
        return self.leased.capacity

    @property
    def lease_lifetime_ms(self) -> int:
        return self.leased.lifetime_ms

    @property
    def leases_live(self) -> int:
        return len(self.leased)

    @property
    def kafka_live(self) -> int:
        return len(self._kafka)

    def expire(self, now: Now) -> int:
        """Drop what has outlived its time; how many that were. Where they are many it is the oldest of them, and the
        others are as good as before until it is asked again."""
        self.run.end()
        return self.leased.expire(now) + self._kafka.expire(now)

    def kinds(self) -> tuple[LeasedProducers, KafkaProducers]:
        """Both kinds, for the ceilings of all partitions, below which some may have to give way."""
        self.run.end()
        return self.leased, self._kafka

    def clear(self) -> None:
        self.run.drop()
        self.leased.clear()
        self._kafka.clear()

    def encode(self, now: Now, *, blind: bool = False) -> bytes:
        """`blind`: who wrote here before now is not known, but for those who are in it."""
        self.run.pass_on()
        blind_ms = now.monotonic_ms if blind else self.leased.blind_ms
        kept = self.transactions.kept()
        return snapshot.encode(self.leased, self._kafka, self.leased.floor, blind_ms, now, kept)

    def decode(self, data: bytes, now: Now) -> None:
        """Put the snapshot's producers in the place of all that is here; `CorruptSnapshot` leaves all as it was."""
        tables = snapshot.decode(data)
        self.run.drop()
        snapshot.restore(tables.leased, self.leased, tables.taken_ms, now)
        snapshot.restore(tables.kafka, self._kafka, tables.taken_ms, now)
        self.transactions.put_back(tables.transactions)
        aged_ms = now.monotonic_ms - tables.taken_ms
        self.leased.floor = tables.floor._replace(raised_ms=tables.floor.raised_ms + aged_ms)
        self.leased.blind_ms = None if tables.blind_ms is None else tables.blind_ms + aged_ms

    def size_bytes(self) -> int:
        """The bytes of the columns and the ring; a dictionary entry of about 150 bytes a Kafka pid comes on top."""
        return self.leased.entries.size_bytes() + self.leased.ring.size_bytes() + self._kafka.entries.size_bytes()

    def _count(self, decision: Decision) -> None:
        match decision:
            case Decision.DUPLICATE | Decision.DUPLICATE_FORGOTTEN:
                self.duplicates += 1
            case Decision.TRIM:
                self.trimmed += 1
            case Decision.OUT_OF_ORDER:
                self.out_of_order += 1
            case Decision.UNKNOWN_PRODUCER:
                self.unknown += 1
            case Decision.FENCED:
                self.fenced += 1
            case Decision.FULL:
                self.full += 1
            case Decision.APPEND | Decision.IN_TRANSACTION | Decision.COORDINATOR_FENCED:
                pass


def _live(kind: LeasedProducers | KafkaProducers, pid: int, row: int, now: Now) -> LiveProducer:
    entries = kind.entries
    live = LiveProducer(
        pid,
        entries.generation[row],
        entries.last_sequence[row],
        entries.timestamp_ms[row],
        entries.last_offset(row),
        kind.lease_left_ms(row, now),
    )
    if isinstance(kind, KafkaProducers) and kind.transactions:
        known = kind.transactions
        first_offset = known.open.get(pid, NO_TRANSACTION)
        return live._replace(coordinator_epoch=known.coordinator_epoch(pid), first_open_offset=first_offset)
    return live
