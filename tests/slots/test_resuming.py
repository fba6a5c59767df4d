"""Where a resume decides: whatever was saved, killed, forgotten and slept through, the output is exact or refused."""

from collections.abc import Callable, Mapping
from typing import Any
from unittest.mock import patch

import pytest

from oncelog.slots import resuming
from oncelog.slots.identity import HighWater, Identity, Span
from oncelog.slots.questions import Ask, End, Says
from oncelog.slots.resuming import TABLE
from tests.slots import resuming_copies, resuming_world
from tests.slots.resuming_world import World

SEEDS = 300
STEPS = 60


@pytest.mark.parametrize("is_leased", [False, True], ids=["kafka", "oncelog"])
def test_the_output_of_many_resumes_is_exact(is_leased: bool) -> None:
    for seed in range(SEEDS):
        World(seed, is_leased=is_leased).run(STEPS)


def test_every_row_of_the_table_is_reached() -> None:
    seen: set[tuple[Ask, Says]] = set()

    class Watched(resuming.Resuming):
        def _says(self, answer: resuming.Answer) -> Says:
            assert isinstance(self.asks, Ask)
            seen.add((self.asks, says := super()._says(answer)))
            return says

    with patch.object(resuming_copies, "Resuming", Watched):
        for check in resuming_copies.CHECKS:
            check()
    with patch.object(resuming_world, "Resuming", Watched):
        for seed in range(SEEDS):
            for is_leased in (False, True):
                World(seed, is_leased=is_leased).run(STEPS)
    never = {(Ask.MEMORY, Says.OTHER_EPOCH)}  # nobody calls InitProducerId for it there
    assert seen == {(asked, says) for asked, rows in TABLE.items() for says in rows} - never


@pytest.mark.parametrize("check", resuming_copies.CHECKS, ids=lambda check: check.__name__)
def test_a_copy_goes_on_behind_all_that_was_filled_or_asks_again(check: Callable[[], None]) -> None:
    check()


COPY_MUTANTS: Mapping[str, Callable[[], Any]] = {
    "what the leader alone has is read past": lambda: _follows(Ask.MEMORY, Says.TO_COMPARE, Ask.LOG),
    "what may vanish is read": lambda: _follows(Ask.WATERMARK, Says.MAY_VANISH, Ask.LOG),
    "what is not there any more is passed over": lambda: _follows(Ask.LOG, Says.MAY_VANISH, End.IN_PLACE),
    "what is gone was nothing": lambda: _follows(Ask.LOG, Says.GONE, End.IN_PLACE),
    "what is remembered is not asked for": lambda: patch.object(resuming, "memory_says", lambda *given: Says.UNKNOWN),
    "what is remembered is not counted": lambda: patch.object(resuming, "filled_since", lambda *given: 0),
    "an end that is too early is passed over": lambda: patch.object(resuming, "ends_before", lambda *given: False),
}


@pytest.mark.parametrize("name", COPY_MUTANTS)
def test_the_logs_of_copies_catch_it_when(name: str) -> None:
    with COPY_MUTANTS[name](), pytest.raises(AssertionError):
        for check in resuming_copies.CHECKS:
            check()


def _follows(asked: Ask, says: Says, what: Ask | End) -> Any:
    return patch.dict(TABLE[asked], {says: what})


def _without_a_newer_generation(answered: Callable[..., None]) -> Callable[..., None]:
    def broken(self: Any, answer: Any) -> None:
        answered(self, answer)
        self._identity = self.saved.last.identity

    return broken


MUTANTS: Mapping[str, tuple[bool, Any]] = {
    "a memory is relied upon for ever": (False, patch.object(resuming_world, "remembered_ms", lambda after: 1 << 40)),
    "what is stale is nothing new": (False, _follows(Ask.MEMORY, Says.STALE, End.IN_PLACE)),
    "who is not known wrote nothing": (False, _follows(Ask.MEMORY, Says.UNKNOWN, End.IN_PLACE)),
    "what was filled since is not read": (False, _follows(Ask.MEMORY, Says.AHEAD, End.IN_PLACE)),
    "what is missing is passed over": (False, _follows(Ask.MEMORY, Says.BEHIND, End.IN_PLACE)),
    "a log that ends early is passed over": (False, _follows(Ask.LOG, Says.CUT, End.IN_PLACE)),
    "what a fence finds missing is passed over": (True, _follows(Ask.FENCE, Says.BEHIND, End.IN_PLACE)),
    "a lease that has ended goes on": (True, _follows(Ask.FENCE, Says.LEASE_OVER, End.IN_PLACE)),
    "a lease that nobody knows goes on": (True, _follows(Ask.FENCE, Says.UNKNOWN, End.IN_PLACE)),
    "a lease that nobody knows goes on once it was read": (
        True,
        _follows(Ask.LOG_OF_LEASE, Says.LEVEL, End.IN_PLACE),
    ),
    "its log is not read": (True, _follows(Ask.FENCE, Says.UNKNOWN, End.ANOTHER_LEASE)),
    "its log that ends early is passed over": (True, _follows(Ask.LOG_OF_LEASE, Says.CUT, End.ANOTHER_LEASE)),
    "the old generation goes on": (
        True,
        patch.object(resuming.Resuming, "answered", _without_a_newer_generation(resuming.Resuming.answered)),
    ),
    "what was written is not closed": (True, patch.object(resuming, "closed", lambda *given: ())),
    "nobody looks when the lease ends": (True, patch.object(resuming, "ends_by", lambda *given: False)),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_the_model_catches_it_when(name: str) -> None:
    is_leased, mutant = MUTANTS[name]
    with mutant, pytest.raises(AssertionError):
        for seed in range(SEEDS):
            World(seed, is_leased=is_leased).run(STEPS)


def test_another_epoch_is_refused_whatever_it_got_to() -> None:
    span = Span(Identity(1 << 32, 3), 5)
    for epoch in (2, 4):
        assert resuming.memory_says(span, HighWater(epoch, 4, 100), 0) is Says.OTHER_EPOCH
    assert TABLE[Ask.MEMORY][Says.OTHER_EPOCH] is End.REFUSED
