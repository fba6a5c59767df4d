"""The one place where it is decided that a record stands in the log already.

A slot is filled when it is not beyond H, the last slot of its identity that the log or the broker has. So everything
here is arithmetic on sequences: how many slots were filled since one (`filled_since`), whether a batch fills slots that
one before it has filled (`stands_twice`), and which open batches are stored by that (`report_found`).

H itself is asked for, question by question: `TABLE` has, for each question, what the answer may say and what follows.
The engine (`client/saving/look_up.py`) asks and is told; it decides nothing.

    FENCE -> LOG_OF_LEASE   resume_pid keeps out what is under way, and answers H; the log has the offsets
    MEMORY -> LOG           the leader may have more than its followers: that is neither stored nor "not there". Were it
                            called so, it would be sent under another identity, and stored twice when they catch up
    MEMORY -> WATERMARK     nobody knows where in the log H is, so all that the leader has must count
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from oncelog.producers.sequences import (
    NO_SEQUENCE,
    SEQUENCE_MASK,
    SEQUENCE_WINDOW,
    is_newer_generation,
    records_behind,
    sequence_after,
)
from oncelog.slots.batch import Batch
from oncelog.slots.errors import CannotTell
from oncelog.slots.identity import HighWater, Place
from oncelog.slots.messages import Delivered, Found, LookUp, StoredSpan
from oncelog.slots.partition import Partition
from oncelog.slots.questions import Ask, End, Says
from oncelog.slots.stamping import cut
from oncelog.slots.tenure import Tenure

_new: Final = tuple.__new__

TABLE: Final[Mapping[Ask, Mapping[Says, Ask | End]]] = {
    Ask.FENCE: {
        Says.EMPTY: End.FOUND,
        Says.FILLED: Ask.LOG_OF_LEASE,
        Says.UNKNOWN: Ask.LOG_OF_LEASE,
    },
    Ask.MEMORY: {
        Says.FILLED: Ask.LOG,
        Says.UNPLACED: Ask.WATERMARK,
        Says.UNKNOWN: Ask.LOG,
        Says.OLDER_EPOCH: Ask.LOG,  # its sequences are not ours
        Says.NEWER_EPOCH: End.REFUSED,
    },
    Ask.WATERMARK: {
        Says.COUNTS: End.FOUND,
        Says.MAY_VANISH: End.ASK_AGAIN,
    },
    Ask.LOG: {
        Says.COUNTS: End.FOUND,
        Says.MAY_VANISH: End.ASK_AGAIN,
    },
    Ask.LOG_OF_LEASE: {
        Says.COUNTS: End.FOUND,  # what precedes a fence that is below the high watermark is below it too
    },
}


class SpansRead(NamedTuple):
    """The identity's batches below the high watermark, in the order of the log."""

    spans: Sequence[StoredSpan]


class Reach(NamedTuple):
    """The replication of a leader's log, some time after it ended there."""

    end_offset: int
    high_watermark: int
    is_one_leaders: bool  # another's high watermark says nothing about what this one has

    @property
    def is_reached(self) -> bool:
        return self.is_one_leaders and self.high_watermark >= self.end_offset


class LookingUp:
    """One `LookUp`. `asks` is the next question, or how it ended; then `found` says how far the identity got."""

    def __init__(self, asked: LookUp) -> None:
        self.asked = asked
        self.asks: Ask | End = Ask.FENCE if asked.must_fence else Ask.MEMORY
        self.found = Found(NO_SEQUENCE, asked.identity.generation)
        self._known: HighWater | None = None  # as far as it is ours

    def answered(self, answer: HighWater | SpansRead | Reach | None) -> None:
        """The answer to what it asks. Raises CannotTell where it ends as refused."""
        assert isinstance(self.asks, Ask)
        says = self._says(answer)
        self.asks = TABLE[self.asks][says]
        if self.asks is End.REFUSED:
            assert isinstance(answer, HighWater)
            raise CannotTell(
                f"{self.where}: somebody called InitProducerId for producer {self.asked.identity.pid}: the broker "
                f"knows epoch {answer.generation}, ours is {self.asked.identity.generation}"
            )

    def _says(self, answer: HighWater | SpansRead | Reach | None) -> Says:
        if answer is None:
            return Says.UNKNOWN
        if isinstance(answer, HighWater):
            return self._fenced(answer) if self.asks is Ask.FENCE else self._remembered(answer)
        if isinstance(answer, Reach):
            return Says.COUNTS if answer.is_reached else Says.MAY_VANISH
        if self.asks is Ask.LOG_OF_LEASE and self._known is not None:
            self.found = self.found._replace(spans=answer.spans)
            return Says.COUNTS
        last = answer.spans[-1].last_sequence if answer.spans else NO_SEQUENCE
        self.found = self.found._replace(last_sequence=last, spans=answer.spans)
        return Says.MAY_VANISH if self._beyond(last) else Says.COUNTS

    def _fenced(self, known: HighWater) -> Says:
        self._known = known
        self.found = Found(known.last_sequence, known.generation)
        return Says.EMPTY if known.last_sequence == NO_SEQUENCE else Says.FILLED

    def _remembered(self, known: HighWater) -> Says:
        ours = self.asked.identity.generation
        if known.generation != ours:
            return Says.NEWER_EPOCH if is_newer_generation(ours, known.generation) else Says.OLDER_EPOCH
        self._known = known
        self.found = Found(known.last_sequence, ours)
        return Says.UNPLACED if self.asked.from_offset < 0 else Says.FILLED

    def _beyond(self, last_sequence: int) -> int:
        """The number of slots that the leader knows to be filled behind the last one that was read, or else behind
        those known to be done. Where neither is known, 0."""
        is_told = last_sequence != NO_SEQUENCE or self.asked.acknowledged >= 0
        if self._known is None or not is_told:
            return 0
        due = sequence_after(last_sequence) if last_sequence != NO_SEQUENCE else self.asked.acknowledged
        return filled_since(self._known.last_sequence, due) or 0

    @property
    def where(self) -> str:
        return f"{self.asked.place.topic}-{self.asked.place.partition}"


def filled_since(last_sequence: int, next_sequence: int) -> int | None:
    """The number of filled slots from `next_sequence` on, where the last one is `last_sequence`; None where that lies
    before `next_sequence`, so that a slot which was filled is not any more."""
    ahead = records_behind(last_sequence, next_sequence)
    return ahead if ahead < SEQUENCE_WINDOW else None


def gone(place: Place, offset: int, up_to: int | None, log_start_offset: int) -> CannotTell:
    """The log begins later than what is to be read of it."""
    return CannotTell(
        f"{place.topic}-{place.partition}: the log would have to be read from offset {offset} up to {up_to}, and the "
        f"log begins at {log_start_offset} now. What was written since is gone by retention or deletion, so it cannot "
        "be told how far the producer got",
        "Start without a saved producer from an input position of which you know that nothing after it was written; "
        "and keep the topic longer than a job may stand still",
    )


def stands_twice(spans: Sequence[StoredSpan]) -> StoredSpan | None:
    """The first batch, in the order of the log, with a slot that one before it has filled."""
    last = NO_SEQUENCE
    for span in spans:
        if last != NO_SEQUENCE and filled_since(last, span.first_sequence):
            return span
        last = span.last_sequence
    return None


def not_beyond(tenure: Tenure, sequence: int) -> int:
    """Another process that fills the same slots may be further than this one."""
    return tenure.next_sequence if filled_since(sequence - 1, tenure.next_sequence) else sequence


def report_found(partition: Partition, found: Found) -> bool:
    """Reports what lies at or below H; the batch that H cuts is cut there. Says whether there was anything."""
    is_any = False
    while partition.open:
        batch = partition.open[0]
        records = filled_since(found.last_sequence, batch.first_sequence)
        if not records or (records < batch.record_count and not partition.cuts):
            break
        batch.in_doubt = True
        if records < batch.record_count:
            batch, _ = cut(partition, batch, records)
        partition.open.popleft()
        is_any = True
        base_offset = _offset_of(batch, found.spans)
        if base_offset >= 0:
            partition.from_offset = partition.next_offset = base_offset + batch.record_count
        if not batch.is_reported:
            deliver(partition, batch, base_offset)
    return is_any


def deliver(partition: Partition, batch: Batch, base_offset: int, append_time_ms: int = -1) -> None:
    context = partition.context
    context.counters.batches_delivered += 1
    context.actions.append(_new(Delivered, (batch, base_offset, append_time_ms, batch.in_doubt)))


def _offset_of(batch: Batch, spans: Sequence[StoredSpan]) -> int:
    for first, last, base_offset in spans:
        ahead = (batch.first_sequence - first) & SEQUENCE_MASK
        if ahead <= (last - first) & SEQUENCE_MASK:
            return base_offset + ahead
    return -1
