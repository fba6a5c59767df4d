"""A register under writers that race, sleep and die, on a log that loses answers, stores twice, compacts and lags."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.slots.register import Fact, Gap, Record, Subject
from tests.slots.register_world import Plan, Rules, World

STEPS = 400


@given(seed=st.integers(0, 1 << 32))
def test_of_facts_that_exclude_each_other_one_counts_for_everybody_and_for_ever(seed: int) -> None:
    World(seed).run(STEPS)


class TheLastCounts(Plan):
    def take(self, fact: Fact, offset: int = -1) -> None:
        for subject in fact.subjects:
            if fact.opens is None and fact.term == self.term:
                self.open.pop(subject, None)
        super().take(fact, offset)


class AnyTermCounts(Plan):
    def _is_due(self, fact: Fact) -> bool:
        return self.term is not None or fact.opens is not None


class GapsArePassedOver(Plan):
    def take(self, fact: Fact, offset: int = -1) -> None:
        try:
            super().take(fact, offset)
        except Gap:
            pass


class ReadingBeginsAtTheNewestState(Plan):
    @classmethod
    def start_of(cls, tail: Sequence[Record], back: int = 0) -> int | None:
        states = [each for each in tail if each.value is not None and each.value.startswith(b"state")]
        return states[-1].offset if states else None


class AStateMayLeaveOutAClaim(Plan):
    def admits(self, fact: Fact, subject: Subject) -> bool:
        return True


MUTANTS: dict[str, tuple[type[Plan], Rules]] = {
    "the last counts instead of the first": (TheLastCounts, Rules()),
    "a fact of another term counts": (AnyTermCounts, Rules()),
    "a gap is passed over": (GapsArePassedOver, Rules()),
    "reading begins at the newest state": (ReadingBeginsAtTheNewestState, Rules()),
    "nonces are not compared": (Plan, Rules(compares_nonces=False)),
    "its own record is not read up to": (Plan, Rules(reads_up_to_its_own=False)),
    "writers share a key": (Plan, Rules(has_a_key_of_its_own=False)),
    "attempts of one writer share a key": (Plan, Rules(has_a_key_for_each_attempt=False)),
    "what a leader does not show yet is passed over": (Plan, Rules(waits_for_what_is_not_shown=False)),
    "claims of the open term are removed": (Plan, Rules(removes_only_what_is_closed=False)),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_the_model_catches_it_when(name: str) -> None:
    plan, rules = MUTANTS[name]
    with pytest.raises((AssertionError, Gap)):
        for seed in range(1000):
            World(seed, plan, rules).run(STEPS)
