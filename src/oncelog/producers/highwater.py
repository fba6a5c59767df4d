"""The proposal's rules for leased pids: here a duplicate is refused.

A partition keeps for each leased pid the generation G and the highwater mark H, the last sequence accepted from it.
A batch carries a generation g and the sequences s ... e. `TABLE` holds every case and its answer, in the words of the
design; exactly one row applies to any question. All comparisons wrap (see `sequences`).
"""

from collections.abc import Callable
from typing import NamedTuple

from oncelog.producers.decision import Decision, Judgement
from oncelog.producers.sequences import (
    NO_SEQUENCE,
    SEQUENCE_WINDOW,
    is_newer_generation,
    records_behind,
)


class Known(NamedTuple):
    """The entry of a pid in a partition."""

    generation: int  # G
    last_sequence: int  # H; NO_SEQUENCE when the pid was only fenced here so far


class Question(NamedTuple):
    known: Known | None
    may_be_new: bool  # granted within the last two lifetimes, and above the floor; asked only where a pid is unknown
    generation: int  # g
    first_sequence: int  # s
    record_count: int  # e - s + 1

    @property
    def is_first(self) -> bool:
        """A grant's generation is never negative, so what carries one was never granted."""
        return self.known is None and self.may_be_new and self.first_sequence == 0 and self.generation >= 0

    @property
    def is_current(self) -> bool:
        """g = G or newer."""
        return self.known is not None and (
            self.generation == self.known.generation or is_newer_generation(self.known.generation, self.generation)
        )

    @property
    def records_known(self) -> int | None:
        """The number of records, counted from the first, at or below H; None when s leaves a gap above H."""
        assert self.known is not None
        if self.first_sequence < 0:
            return None
        behind = records_behind(self.known.last_sequence, self.first_sequence)
        if behind == 0:
            return 0
        if behind >= SEQUENCE_WINDOW or self.known.last_sequence == NO_SEQUENCE:
            return None
        return min(behind, self.record_count)


class Rule(NamedTuple):
    case: str
    applies: Callable[[Question], bool]
    decision: Decision


TABLE: tuple[Rule, ...] = (
    Rule(
        "pid unknown here, s = 0, granted within the last two lifetimes, and above the floor",
        lambda q: q.is_first,
        Decision.APPEND,
    ),
    Rule(
        "pid unknown here otherwise",
        lambda q: q.known is None and not q.is_first,
        Decision.UNKNOWN_PRODUCER,
    ),
    Rule(
        "g = G or newer, s = H+1",
        lambda q: q.is_current and q.records_known == 0,
        Decision.APPEND,
    ),
    Rule(
        "g = G or newer, e <= H",
        lambda q: q.is_current and q.records_known == q.record_count,
        Decision.DUPLICATE,
    ),
    Rule(
        "g = G or newer, s <= H < e",
        lambda q: q.is_current and 0 < (q.records_known or 0) < q.record_count,
        Decision.TRIM,
    ),
    Rule(
        "g = G or newer, s > H+1",
        lambda q: q.is_current and q.records_known is None,
        Decision.OUT_OF_ORDER,
    ),
    Rule(
        "g older than G",
        lambda q: q.known is not None and not q.is_current,
        Decision.FENCED,
    ),
)


def decide(question: Question) -> Judgement:
    """The table's answer; a TRIM's detail says how many records to drop."""
    for rule in TABLE:
        if rule.applies(question):
            if rule.decision is Decision.TRIM:
                return Decision.TRIM, question.records_known or 0
            return rule.decision, 0
    raise AssertionError(f"no rule of the highwater table covers {question}")


def decide_fence(known: Known | None, may_be_new: bool, generation: int) -> Decision:
    """Whether a control batch may raise G to `generation`.

    Only a newer generation fences. An equal one belongs to somebody else, be it the zombie or another resumer, and two
    owners of one generation would not fence each other. Who lost the answer of a fence takes the next generation.
    A pid that never wrote here is fenced before it does, or its zombie could still write the first batch.
    """
    if known is None:
        return Decision.APPEND if may_be_new and generation >= 0 else Decision.UNKNOWN_PRODUCER
    return Decision.APPEND if is_newer_generation(known.generation, generation) else Decision.FENCED
