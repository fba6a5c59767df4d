"""Simulated brokers with the real rules: `ProducerMap` judges, the log is a list, a leader may move and cut its tail.

Faults that live here: a new leader without what was not yet replicated; a request that is refused before the append, or
answered with an error after it; batches that are too large; stock Kafka's memory, which forgets a producer by the
timestamps of its records, and remembers five batches.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

from oncelog.clock import Now
from oncelog.error_codes import ErrorCodes as Code
from oncelog.producers.decision import Decision
from oncelog.producers.leases import Lease, LeaseIssuer
from oncelog.producers.producer_map import FIRST_KAFKA_PID, ProducerLimits, ProducerMap
from oncelog.producers.sequences import is_newer_generation, sequence_after
from oncelog.slots import Identity, Place
from oncelog.slots.messages import Found, StoredSpan
from tests.slots.flavours import Flavour

NODES = 3
WALL_MS = 1_700_000_000_000

_CODES = {
    Decision.OUT_OF_ORDER: Code.OUT_OF_ORDER_SEQUENCE_NUMBER,
    Decision.UNKNOWN_PRODUCER: Code.UNKNOWN_PRODUCER_ID,
    Decision.FENCED: Code.INVALID_PRODUCER_EPOCH,
    Decision.FULL: Code.NOT_ENOUGH_REPLICAS,
    Decision.DUPLICATE_FORGOTTEN: Code.OUT_OF_ORDER_SEQUENCE_NUMBER,  # as stock Kafka, which has no better answer
}


class Wire(NamedTuple):
    """What of a batch a broker sees, as it was when it was sent."""

    place: Place
    pid: int
    generation: int
    first_sequence: int
    records: tuple[int, ...]
    timestamp_ms: int


class Stored(NamedTuple):
    base_offset: int
    wire: Wire

    @property
    def end_offset(self) -> int:
        return self.base_offset + max(1, len(self.wire.records))


Respond = Callable[[int, int], None]  # error code, base offset


class Producers:
    """A partition's memory of its producers. Each Kafka pid has a map of its own, so that it can be forgotten alone."""

    def __init__(self, flavour: Flavour, issuer: LeaseIssuer) -> None:
        self._flavour = flavour
        self._limits = ProducerLimits(
            lease_lifetime_ms=flavour.lifetime_ms, lease_entries=64, kafka_entries=4, kafka_expiration_ms=1 << 60
        )
        self._leased = ProducerMap(issuer, self._limits)
        self._kafka: dict[int, tuple[ProducerMap, int]] = {}

    def of(self, pid: int, now: Now) -> ProducerMap:
        if pid < FIRST_KAFKA_PID:
            self._leased.expire(now)
            return self._leased
        known = self._kafka.get(pid)
        if known is None or known[1] < now.wall_ms - self._flavour.forget_after_ms:
            known = self._kafka[pid] = ProducerMap(None, self._limits), now.wall_ms
        return known[0]

    def accept(self, stored: Stored, now: Now) -> None:
        wire = stored.wire
        producers = self.of(wire.pid, now)
        if not wire.records:
            producers.fence(wire.pid, wire.generation, now)
            return
        producers.accept(
            wire.pid,
            wire.generation,
            wire.first_sequence,
            len(wire.records),
            stored.base_offset,
            wire.timestamp_ms,
            now,
        )
        if wire.pid >= FIRST_KAFKA_PID:
            self._kafka[wire.pid] = producers, wire.timestamp_ms


class Log:
    def __init__(self, cluster: "Cluster", place: Place, leader: int) -> None:
        self.cluster = cluster
        self.place = place
        self.leader = leader
        self.batches: list[Stored] = []
        self.end_offset = 0
        self.high_watermark = 0
        self.producers = cluster.new_producers()
        self.too_large_records = 1 << 30
        self.error: tuple[int, int, bool] = (0, 0, False)  # until when, code, whether the batch is appended first
        self._waiting: list[tuple[int, int, Respond]] = []

    def produce(self, wire: Wire, acks: int, now: Now, respond: Respond) -> None:
        until_ms, code, appends_first = self.error
        is_failing = now.monotonic_ms < until_ms
        if is_failing and not appends_first:
            respond(code, -1)
            return
        if len(wire.records) > self.too_large_records:
            respond(Code.MSG_SIZE_TOO_LARGE, -1)
            return
        if any(record in self.cluster.poisoned for record in wire.records):
            respond(Code.INVALID_RECORD, -1)
            return
        base_offset = self._append(wire, now)
        if base_offset < -1:
            respond(-base_offset, -1)
        elif is_failing:
            respond(code, -1)
        elif acks == -1 and self.high_watermark < self.end_offset:
            self._waiting.append((self.end_offset, base_offset, respond))
        else:
            respond(0, base_offset)

    def _append(self, wire: Wire, now: Now) -> int:
        """The base offset, or an error code with a minus before it."""
        decision, detail = Decision.APPEND, 0
        if wire.pid >= 0:
            decision, detail = self.producers.of(wire.pid, now).judge(
                wire.pid, wire.generation, wire.first_sequence, len(wire.records), now
            )
        if decision is Decision.DUPLICATE:
            return detail
        dropped = 0
        if decision is Decision.TRIM:
            dropped = detail
            wire = wire._replace(
                first_sequence=sequence_after(wire.first_sequence, dropped), records=wire.records[dropped:]
            )
        elif decision is not Decision.APPEND:
            return -_CODES[decision]
        return self._store(wire, now).base_offset - dropped

    def _store(self, wire: Wire, now: Now) -> Stored:
        stored = Stored(self.end_offset, wire)
        self.batches.append(stored)
        self.end_offset = stored.end_offset
        if wire.pid >= 0:
            self.producers.accept(stored, now)
        self.cluster.replicate(self, self.end_offset)
        return stored

    def replicated(self, offset: int) -> None:
        if offset > self.end_offset:
            return  # it was cut meanwhile
        self.high_watermark = max(self.high_watermark, offset)
        waiting, self._waiting = self._waiting, []
        for end_offset, base_offset, respond in waiting:
            if end_offset <= self.high_watermark:
                respond(0, base_offset)
            else:
                self._waiting.append((end_offset, base_offset, respond))

    def move(self, leader: int, keeps_all: bool, now: Now) -> None:
        """Another replica leads. It may lack what was not replicated, and its producers are made from its log."""
        self.leader = leader
        waiting, self._waiting = self._waiting, []
        for _, _, respond in waiting:
            respond(Code.NOT_LEADER_FOR_PARTITION, -1)
        if not keeps_all:
            self.batches = [stored for stored in self.batches if stored.end_offset <= self.high_watermark]
        self.end_offset = self.batches[-1].end_offset if self.batches else 0
        self.high_watermark = self.end_offset
        self.producers = self.cluster.new_producers()
        for stored in self.batches:
            if stored.wire.pid >= 0:
                self.producers.accept(stored, now)

    def look_up(
        self, identity: Identity, from_offset: int, must_fence: bool, fence_with: int, now: Now
    ) -> Found | None:
        """What an engine does for a LookUp, in one step. None: not now, something is not replicated yet."""
        if self.high_watermark < self.end_offset:
            return None
        pid, generation, _ = identity
        if must_fence:
            producers = self.producers.of(pid, now)
            known = producers.highwater(pid)
            if known is not None and not is_newer_generation(known[0], fence_with):
                fence_with = (known[0] + 1) % 32_768
            decision = producers.judge_fence(pid, fence_with, now)
            if decision is Decision.APPEND:
                self._store(Wire(self.place, pid, fence_with, -1, (), -1), now)
                generation = fence_with
                if known is not None:
                    return Found(known[1], generation, self._spans(pid, -1, None))
                return Found(-1, generation)
        spans = self._spans(pid, from_offset, None if must_fence else generation)
        return Found(spans[-1].last_sequence if spans else -1, generation, spans)

    def _spans(self, pid: int, from_offset: int, epoch: int | None) -> list[StoredSpan]:
        return [
            StoredSpan(wire.first_sequence, sequence_after(wire.first_sequence, len(wire.records) - 1), base_offset)
            for base_offset, wire in self.batches
            if wire.pid == pid
            and wire.records
            and base_offset + len(wire.records) > from_offset
            and (epoch is None or wire.generation == epoch)
        ]

    def offsets(self) -> dict[int, list[int]]:
        """Where each record lies."""
        where: dict[int, list[int]] = {}
        for base_offset, wire in self.batches:
            for index, record in enumerate(wire.records):
                where.setdefault(record, []).append(base_offset + index)
        return where

    def records(self, without: Sequence[Wire] = ()) -> list[int]:
        """`without`: the last time that each of these was stored."""
        batches = list(self.batches)
        for wire in without:
            batches.remove(next(stored for stored in reversed(batches) if stored.wire is wire))
        return [record for stored in batches for record in stored.wire.records]


class Cluster:
    def __init__(self, flavour: Flavour, rng: Random, after: "Callable[[int, Callable[[], None]], None]") -> None:
        self.flavour = flavour
        self.rng = rng
        self._after = after
        self._reserved = 1
        self._kafka_pid = FIRST_KAFKA_PID
        self.issuer = LeaseIssuer(self._reserve, lifetime_ms=flavour.lifetime_ms, random=rng)
        self.poisoned: set[int] = set()
        self.replication_ms = rng.choice((0, 0, 5, 30))
        self.down_until = [0] * NODES
        self.paused_until = [0] * NODES
        places = [Place("t", index) for index in range(flavour.partitions)]
        self.logs = {place: Log(self, place, rng.randrange(NODES)) for place in places}

    def new_producers(self) -> Producers:
        return Producers(self.flavour, self.issuer)

    def lease(self, now: Now) -> Lease:
        return self.issuer.grant(now)

    def kafka_pid(self) -> int:
        self._kafka_pid += 1
        return self._kafka_pid - 1

    def replicate(self, log: Log, end_offset: int) -> None:
        if self.replication_ms == 0:
            log.replicated(end_offset)
        else:
            self._after(self.rng.randrange(1, self.replication_ms + 1), lambda: log.replicated(end_offset))

    def _reserve(self, count: int) -> int:
        first, self._reserved = self._reserved, self._reserved + count
        return first
