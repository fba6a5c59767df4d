"""Alarms: one timer for all groups."""

import pytest

from oncelog.clock import ManualClock
from oncelog.log.work_steps import Pauses, at_once
from oncelog.server.alarms import HEARING_MS, STOOD_STILL_MS, Alarms, InTurns
from tests.server.groups.support import ManualTimers


class Bells:
    def __init__(self, in_turns: InTurns = at_once) -> None:
        self.clock = ManualClock()
        self.timers = ManualTimers(self.clock)
        self.rung: list[tuple[str | None, int]] = []
        self.alarms = Alarms(self.timers.call_later, self.now_ms, self.ring, in_turns)

    def now_ms(self) -> int:
        return self.clock.now().monotonic_ms

    def ring(self, name: str | None) -> None:
        self.rung.append((name, self.now_ms()))
        if name == "broken":
            raise RuntimeError("an accident of this test")


@pytest.fixture
def bells() -> Bells:
    return Bells()


def test_each_rings_once_at_its_time_by_one_timer(bells: Bells) -> None:
    start_ms = bells.now_ms()
    for name, after_ms in (("late", 300), ("early", 100), ("also early", 100), (None, 200)):
        bells.alarms.set(name, start_ms + after_ms)
        assert len(bells.timers.pending()) == 1
    bells.timers.advance(1000)
    rung = [(name, at_ms - start_ms) for name, at_ms in bells.rung]
    assert rung == [("early", 100), ("also early", 100), (None, 200), ("late", 300)]
    assert bells.timers.pending() == []


def test_a_later_time_takes_the_place_of_an_earlier_one(bells: Bells) -> None:
    start_ms = bells.now_ms()
    bells.alarms.set("group", start_ms + 100)
    bells.alarms.set("group", start_ms + 200)
    bells.alarms.set("gone", start_ms + 100)
    bells.alarms.set("gone", None)
    bells.timers.advance(1000)
    assert bells.rung == [("group", start_ms + 200)]


def test_an_accident_of_one_group_stops_no_clock_of_another(bells: Bells) -> None:
    start_ms = bells.now_ms()
    for name, after_ms in (("broken", 100), ("due too", 100), ("later", 500)):
        bells.alarms.set(name, start_ms + after_ms)
    bells.timers.advance(1000)
    assert [name for name, _ in bells.rung] == ["broken", "due too", "later"]


def test_those_that_are_due_together_ring_in_turns() -> None:
    turns: list[Pauses] = []
    bells = Bells(turns.append)
    due_ms = bells.now_ms() + 100
    for name in ("first", "second", "third"):
        bells.alarms.set(name, due_ms)
    bells.timers.advance(100)
    assert bells.rung == []
    (steps,) = turns
    next(steps)
    assert bells.rung == [("first", due_ms)]
    next(steps)
    assert bells.rung == [("first", due_ms), ("second", due_ms)]
    bells.alarms.stop()
    assert list(steps) == []
    assert len(bells.rung) == 2


def test_who_stood_still_hears_what_came_meanwhile_before_anything_rings(bells: Bells) -> None:
    start_ms = bells.now_ms()
    bells.alarms.set("group", start_ms + 100)
    bells.alarms.set("heard of", start_ms + 100)
    bells.clock.advance(100 + STOOD_STILL_MS)
    bells.timers.advance(0)
    assert bells.rung == []
    bells.alarms.set("heard of", bells.now_ms() + 5_000)
    bells.timers.advance(HEARING_MS // 2)
    bells.alarms.set("early", bells.now_ms() + 1)
    bells.timers.advance(HEARING_MS // 2)
    rung_ms = start_ms + 100 + STOOD_STILL_MS + HEARING_MS
    assert bells.rung == [("group", rung_ms), ("early", rung_ms)]
    bells.timers.advance(5_000)
    assert [name for name, _ in bells.rung] == ["group", "early", "heard of"]
