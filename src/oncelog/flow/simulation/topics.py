"""Partitions in memory. Batches get in by Kafka's rules for producers, the table that the server goes by as well.

What was appended stays as it is, so a fork of a partition shares everything until one of the two is written to.
"""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Any, Final, NamedTuple

from oncelog.error_codes import ErrorCodes as Code
from oncelog.flow.formats import TIME
from oncelog.flow.messages import JournalBatch, Outputs, ReadBack, Records
from oncelog.producers.decision import APPEND, Decision, Judgement
from oncelog.producers.kafka_rules import BATCHES_REMEMBERED, KnownProducer, Question, Remembered, decide
from oncelog.slots import Identity, Place
from oncelog.slots.batch import Batch
from oncelog.slots.comparing import Headers
from oncelog.slots.messages import Found, LookUp, StoredSpan
from oncelog.slots.replay import Output, Slot

NOBODYS: Final = Identity(-1, -1)  # without a producer id, as claims are


class Wire(NamedTuple):
    """A batch as it was when it was sent."""

    place: Place
    identity: Identity
    first_sequence: int
    outputs: Outputs
    timestamp_ms: int

    @property
    def records(self) -> int:
        return len(self.outputs.keys)


def wire_of(batch: Batch) -> Wire:
    outputs = batch.payload
    if not isinstance(outputs, Outputs):  # a journal's
        assert isinstance(outputs, tuple)
        keys, values = zip(*outputs, strict=True)
        outputs = Outputs(keys, values)
    return Wire(batch.place, batch.identity, batch.first_sequence, outputs, batch.max_timestamp_ms)


@dataclass(eq=False)
class Stored:
    base_offset: int
    wire: Wire
    end: int

    @cached_property
    def as_journal(self) -> JournalBatch:
        wire = self.wire
        return JournalBatch(self.base_offset, self.end - 1, wire.identity, wire.outputs.keys, wire.outputs.values)

    @property
    def span(self) -> StoredSpan:
        first = self.wire.first_sequence
        return StoredSpan(first, first + self.wire.records - 1, self.base_offset)


class Log:
    """The log of one partition."""

    def __init__(self) -> None:
        self.batches: list[Stored] = []
        self.end = 0
        self._producers: dict[int, KnownProducer] = {}
        self._offsets, self._times, self._headers = list[int](), list[int](), list[Headers]()
        self._keys, self._values = list[bytes | None](), list[bytes | None]()
        self._gone: frozenset[int] = frozenset()  # offsets that compaction took
        self._is_shared = False

    def fork(self) -> "Log":
        self._is_shared = True
        other = Log.__new__(Log)
        vars(other).update(vars(self))
        return other

    def append(self, wire: Wire) -> tuple[int, int]:
        """(error code, base offset)"""
        decision, detail = self._judged(wire)
        if decision is Decision.DUPLICATE:
            return 0, detail
        if decision is Decision.APPEND:
            return 0, self.store(wire)
        fenced = decision is Decision.FENCED
        return Code.INVALID_PRODUCER_EPOCH if fenced else Code.OUT_OF_ORDER_SEQUENCE_NUMBER, -1

    def _judged(self, wire: Wire) -> Judgement:
        pid, epoch, _ = wire.identity
        if pid < 0:
            return APPEND
        return decide(Question(self._producers.get(pid), epoch, wire.first_sequence, wire.records))

    def store(self, wire: Wire) -> int:
        """Store it without a question."""
        if self._is_shared:
            self._part()
        stored = Stored(self.end, wire, self.end + wire.records)
        self.batches.append(stored)
        outputs, columns = wire.outputs, wire.outputs.headers
        if columns:  # else it is a journal's, which nobody reads by its columns
            headers = (tuple(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True))
            self.add(outputs.keys, outputs.values, map(int, columns[TIME]), headers)
        else:
            self.end += wire.records
        if wire.identity.pid >= 0:
            self._remember(stored)
        return stored.base_offset

    def add(
        self,
        keys: Iterable[bytes | None],
        values: Iterable[bytes | None],
        times: Iterable[int],
        headers: Iterable[Headers],
    ) -> None:
        """Records, whichever producer wrote them."""
        self._keys.extend(keys)
        self._values.extend(values)
        self._times.extend(times)
        self._headers.extend(headers)
        self._offsets.extend(range(self.end, len(self._keys)))
        self.end = len(self._keys)

    def compact(self, end: int) -> None:
        """Keep the last record of each key of what stands before this offset."""
        last = {key: offset for offset, key in enumerate(self._keys[:end])}
        self._gone |= frozenset(range(end)).difference(last.values())

    def _part(self) -> None:
        self._is_shared = False
        self.batches = list(self.batches)
        self._producers = dict(self._producers)
        self._offsets, self._times, self._headers = list(self._offsets), list(self._times), list(self._headers)
        self._keys, self._values = list(self._keys), list(self._values)

    def _remember(self, stored: Stored) -> None:
        (pid, epoch, _), span = stored.wire.identity, stored.span
        known = self._producers.get(pid)
        before = known if known is not None and known.epoch == epoch else KnownProducer(epoch, -1, 0, ())
        remembered = (*before.remembered, Remembered(*span))[-BATCHES_REMEMBERED:]
        accepted = before.accepted_records + stored.wire.records
        self._producers[pid] = KnownProducer(epoch, span.last_sequence, accepted, remembered)

    # --- what is read

    def records(self, first: int, end: int) -> Records:
        here = slice(first, min(end, self.end))
        columns = self._offsets, self._keys, self._values, self._times, self._headers
        if self._gone:
            there = [offset for offset in range(self.end)[here] if offset not in self._gone]
            return Records(*([column[offset] for offset in there] for column in columns))  # type: ignore[arg-type]
        return Records(*(column[here] for column in columns))  # type: ignore[arg-type]

    @property
    def rows(self) -> dict[bytes | None, bytes | None]:
        """The last value of each key."""
        return dict(zip(self._keys, self._values, strict=True))

    def journal(self, from_offset: int) -> list[JournalBatch]:
        return [each.as_journal for each in self._from(from_offset)]

    def found(self, asked: LookUp) -> Found:
        known = self._producers.get(asked.identity.pid)
        last = known.last_sequence if known is not None and known.epoch == asked.identity.generation else -1
        own = [each.span for each in self._from(asked.from_offset) if each.wire.identity == asked.identity]
        return Found(last, asked.identity.generation, own)

    def remembers(self, pid: int) -> bool:
        return pid in self._producers

    def slots(self, asked: ReadBack) -> list[Slot]:
        return [
            Slot(asked.identity, sequence, each.base_offset + at, *row[:3], each.wire.timestamp_ms)
            for each in self._from(asked.from_offset)
            if each.wire.identity == asked.identity
            for at, row in enumerate(each.wire.outputs.each())
            if 0 <= (sequence := each.wire.first_sequence + at) - asked.first_sequence < asked.records
        ]

    def _from(self, offset: int) -> list[Stored]:
        """The batches that do not end before this offset."""
        return self.batches[bisect_right(self.batches, offset, key=attrgetter("end")) :]

    def written_by(self, pid: int) -> list[Output]:
        return [row for each in self.batches if each.wire.identity.pid == pid for row in each.wire.outputs.each()]


Topics = dict[Place, Log]


Files = dict[tuple[str, str], list[dict[str, Any]]]  # rows, by URL and name


def forked(topics: Topics) -> Topics:
    return {place: log.fork() for place, log in topics.items()}
