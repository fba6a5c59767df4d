"""Apache Kafka's rules for pids granted by InitProducerId, so that every stock client behaves as it does on Kafka.

Held against `ProducerAppendInfo` and `ProducerStateEntry` of Kafka's storage module, and against a running broker.
`TABLE` holds every case and its answer. The one improvement over Kafka is its row "surely in the log".
"""

from collections.abc import Callable
from typing import NamedTuple

from oncelog.producers.decision import Decision, Judgement
from oncelog.producers.sequences import SEQUENCE_WINDOW, records_behind, sequence_after

BATCHES_REMEMBERED = 5  # Kafka's number; clients keep at most this many requests in flight


class Remembered(NamedTuple):
    """One of the last batches of a producer."""

    first_sequence: int
    last_sequence: int
    base_offset: int


class KnownProducer(NamedTuple):
    epoch: int
    last_sequence: int
    accepted_records: int  # contiguous ones in this epoch, up to the last sequence; stops counting at the window
    remembered: tuple[Remembered, ...]  # oldest first


class Question(NamedTuple):
    known: KnownProducer | None
    epoch: int
    first_sequence: int
    record_count: int

    @property
    def last_sequence(self) -> int:
        return sequence_after(self.first_sequence, self.record_count - 1)

    @property
    def again(self) -> Remembered | None:
        """The remembered batch with the same numbers. Kafka compares nothing else, nor does a client need more."""
        if self.known is None or self.epoch != self.known.epoch:
            return None
        for batch in self.known.remembered:
            if batch.first_sequence == self.first_sequence and batch.last_sequence == self.last_sequence:
                return batch
        return None

    @property
    def is_next(self) -> bool:
        return self.known is not None and self.first_sequence == sequence_after(self.known.last_sequence)

    @property
    def is_forgotten(self) -> bool:
        """Wholly older than what is remembered, yet not older than the first record accepted in this epoch."""
        known = self.known
        if known is None or not known.remembered or self.first_sequence < 0:
            return False
        behind = records_behind(known.last_sequence, self.first_sequence)
        remembered_records = records_behind(known.last_sequence, known.remembered[0].first_sequence)
        return (
            behind < SEQUENCE_WINDOW
            and behind <= known.accepted_records
            and behind - self.record_count >= remembered_records
        )


class Rule(NamedTuple):
    case: str
    applies: Callable[[Question], bool]
    decision: Decision


def _same_epoch(q: Question) -> bool:
    return q.known is not None and q.epoch == q.known.epoch


TABLE: tuple[Rule, ...] = (
    Rule("unknown pid, any s", lambda q: q.known is None, Decision.APPEND),
    Rule("one of the last 5 batches again", lambda q: q.again is not None, Decision.DUPLICATE),
    Rule(
        "the next sequence",
        lambda q: _same_epoch(q) and q.again is None and q.is_next,
        Decision.APPEND,
    ),
    Rule(
        "an older batch again, surely in the log",
        lambda q: _same_epoch(q) and q.again is None and not q.is_next and q.is_forgotten,
        Decision.DUPLICATE_FORGOTTEN,
    ),
    Rule(
        "a gap, a partial overlap, or an older batch that may not be in the log",
        lambda q: _same_epoch(q) and q.again is None and not q.is_next and not q.is_forgotten,
        Decision.OUT_OF_ORDER,
    ),
    Rule(
        "higher epoch, s = 0",
        lambda q: q.known is not None and q.epoch > q.known.epoch and q.first_sequence == 0,
        Decision.APPEND,
    ),
    Rule(
        "higher epoch, s > 0",
        lambda q: q.known is not None and q.epoch > q.known.epoch and q.first_sequence != 0,
        Decision.OUT_OF_ORDER,
    ),
    Rule("lower epoch", lambda q: q.known is not None and q.epoch < q.known.epoch, Decision.FENCED),
)


def decide(question: Question) -> Judgement:
    """The table's answer; a DUPLICATE's detail is the original base offset."""
    for rule in TABLE:
        if rule.applies(question):
            original = question.again if rule.decision is Decision.DUPLICATE else None
            return rule.decision, original.base_offset if original else 0
    raise AssertionError(f"no rule of Kafka's table covers {question}")
