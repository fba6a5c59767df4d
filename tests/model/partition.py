"""A partition as its leader has it: a list of batches, of which the server's own rules of producers let each one in."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from oncelog.clock import Now
from oncelog.error_codes import ErrorCodes as Code
from oncelog.producers.decision import Decision
from oncelog.producers.grants import Grants
from oncelog.producers.producer_map import FIRST_KAFKA_PID, ProducerLimits, ProducerMap
from oncelog.producers.sequences import sequence_after
from oncelog.slots import Place
from oncelog.slots.messages import StoredSpan

FOREVER = 1 << 40

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
    records: tuple[Any, ...]
    timestamp_ms: int


class Stored(NamedTuple):
    base_offset: int
    wire: Wire

    @property
    def end_offset(self) -> int:
        return self.base_offset + max(1, len(self.wire.records))


class Producers:
    """A partition's memory of its producers. Each Kafka pid has a map of its own, so that it can be forgotten alone."""

    def __init__(
        self, grants: Grants | None = None, lifetime_ms: int = FOREVER, forget_after_ms: int = FOREVER
    ) -> None:
        self._forget_after_ms = forget_after_ms
        self._limits = ProducerLimits(
            lease_lifetime_ms=lifetime_ms, lease_entries=64, kafka_entries=4, kafka_expiration_ms=1 << 60
        )
        self._leased = ProducerMap(grants, self._limits)
        self._kafka: dict[int, tuple[ProducerMap, int]] = {}

    def of(self, pid: int, now: Now) -> ProducerMap:
        if pid < FIRST_KAFKA_PID:
            self._leased.expire(now)
            return self._leased
        known = self._kafka.get(pid)
        if known is None or known[1] < now.wall_ms - self._forget_after_ms:
            known = self._kafka[pid] = ProducerMap(None, self._limits), now.wall_ms
        return known[0]

    def last_timestamp_ms(self, pid: int) -> int:
        return self._kafka[pid][1]

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


class Partition:
    def __init__(self, producers: Producers) -> None:
        self.batches: list[Stored] = []
        self.end_offset = 0
        self.producers = producers

    def append(self, wire: Wire, now: Now) -> tuple[int, int]:
        """(error code, base offset)"""
        decision, detail = Decision.APPEND, 0
        if wire.pid >= 0:
            decision, detail = self.producers.of(wire.pid, now).judge(
                wire.pid, wire.generation, wire.first_sequence, len(wire.records), now
            )
        if decision is Decision.DUPLICATE:
            return 0, detail
        dropped = 0
        if decision is Decision.TRIM:
            dropped = detail
            wire = wire._replace(
                first_sequence=sequence_after(wire.first_sequence, dropped), records=wire.records[dropped:]
            )
        elif decision is not Decision.APPEND:
            return _CODES[decision], -1
        return 0, self.store(wire, now).base_offset - dropped

    def store(self, wire: Wire, now: Now) -> Stored:
        """Without a question."""
        stored = Stored(self.end_offset, wire)
        self.batches.append(stored)
        self.end_offset = stored.end_offset
        if wire.pid >= 0:
            self.producers.accept(stored, now)
        return stored

    def taken_over(self, end_offset: int, producers: Producers, now: Now) -> None:
        """By a leader that has the batches up to this offset, and makes its producers from them."""
        batches = [stored for stored in self.batches if stored.end_offset <= end_offset]
        self.batches, self.end_offset, self.producers = [], 0, producers
        for stored in batches:
            self.store(stored.wire, now)

    def highwater(self, pid: int, now: Now) -> tuple[int, int] | None:
        return self.producers.of(pid, now).highwater(pid)

    def last_timestamp_ms(self, pid: int, now: Now) -> int | None:
        """None where the producer is forgotten, or was never known."""
        return None if self.highwater(pid, now) is None else self.producers.last_timestamp_ms(pid)

    def spans(self, pid: int, from_offset: int = -1, generation: int | None = None) -> list[StoredSpan]:
        return [
            StoredSpan(wire.first_sequence, sequence_after(wire.first_sequence, len(wire.records) - 1), base_offset)
            for base_offset, wire in self.batches
            if wire.pid == pid
            and wire.records
            and base_offset + len(wire.records) > from_offset
            and (generation is None or wire.generation == generation)
        ]

    def offsets(self) -> dict[Any, list[int]]:
        """Where each record lies."""
        where: dict[Any, list[int]] = {}
        for base_offset, wire in self.batches:
            for index, record in enumerate(wire.records):
                where.setdefault(record, []).append(base_offset + index)
        return where

    def records(self, without: Sequence[Wire] = ()) -> list[Any]:
        """`without`: the last time that each of these was stored."""
        batches = list(self.batches)
        for wire in without:
            batches.remove(next(stored for stored in reversed(batches) if stored.wire is wire))
        return [record for stored in batches for record in stored.wire.records]
