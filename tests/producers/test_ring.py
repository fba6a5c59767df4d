"""The ring against a sorted list."""

import sys
from bisect import insort
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from oncelog.producers.ring import PIDS, Ring

CAPACITY = 40


class RingAgainstSortedList(RuleBasedStateMachine):
    """Pids come roughly in order, some late, and go round the end of the numbers; the list keeps them unrolled."""

    def __init__(self) -> None:
        super().__init__()
        self.ring = Ring(CAPACITY)
        self.held: list[tuple[int, int]] = []  # (unrolled pid, row)
        self.next = PIDS - 60
        self.rows = 0

    @staticmethod
    def pid_of(unrolled: int) -> int:
        return (unrolled - 1) % PIDS + 1

    @rule(skipped=st.integers(0, 120))
    def a_new_pid(self, skipped: int) -> None:
        self.next += 1 + skipped
        self.insert(self.next)

    @precondition(lambda self: self.held)
    @rule(behind=st.integers(1, 400))
    def a_late_pid(self, behind: int) -> None:
        late = self.held[-1][0] - behind
        if all(late != unrolled for unrolled, _ in self.held):
            self.insert(late)

    @precondition(lambda self: self.held)
    @rule()
    def the_oldest_leaves(self) -> None:
        _, row = self.held.pop(0)
        assert self.ring.oldest_row() == row
        assert self.ring.pop_oldest() == row

    @precondition(lambda self: self.held)
    @rule(data=st.data(), beside=st.integers(-2, 2))
    def a_look_up(self, data: st.DataObject, beside: int) -> None:
        unrolled = data.draw(st.sampled_from(self.held))[0] + beside
        expected = dict(self.held).get(unrolled, -1)
        assert self.ring.find(self.pid_of(unrolled)) == expected

    @invariant()
    def it_holds_the_same_in_the_same_order(self) -> None:
        places = [self.ring.at(place) for place in range(len(self.ring))]
        assert places == [(self.pid_of(unrolled), row) for unrolled, row in self.held]
        assert list(self.ring.pids()) == [pid for pid, _ in places]
        assert len(self.ring) == len(self.held)

    def insert(self, unrolled: int) -> None:
        self.rows += 1
        self.ring.insert(self.pid_of(unrolled), self.rows)
        insort(self.held, (unrolled, self.rows))
        # The list may have run empty and the numbers gone far: the ring then starts counting anew, so must the model.
        if len(self.held) == 1:
            self.held = [(self.pid_of(unrolled), self.rows)]
            self.next = self.pid_of(unrolled)


TestRing = RingAgainstSortedList.TestCase
TestRing.settings = settings(stateful_step_count=60, derandomize=True)


def test_it_takes_no_more_memory_once_it_is_full() -> None:
    ring = Ring(CAPACITY)
    for pid in range(1, CAPACITY + 1):
        ring.insert(pid, pid)
    full = ring.size_bytes()
    assert full == CAPACITY * 12
    for pid in range(CAPACITY + 1, 50 * CAPACITY):
        ring.pop_oldest()
        ring.insert(pid, pid)
    assert ring.size_bytes() == full


def test_a_late_pid_moves_all_that_overtook_it_at_once() -> None:
    """Not one by one: who sends thousands of batches together, each by a later pid than the last one, held all up."""
    ring = Ring(1_000)
    for pid in [1, *range(500, 1_000)]:
        ring.insert(pid, pid)
    lines = 0

    def trace(frame: object, event: str, argument: object) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        for pid in range(499, 489, -1):
            ring.insert(pid, pid)
    finally:
        sys.settrace(before)
    assert list(ring.pids()) == [1, *range(490, 1_000)]
    assert 100 < lines < 600
