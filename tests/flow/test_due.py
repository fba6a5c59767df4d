"""What is due by the time and does not fit at once: it is neither forgotten nor overtaken by the time that is told."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from oncelog.flow import Flow, Topic, Window, json_of, text
from oncelog.flow.simulating import topics_of
from oncelog.flow.simulation.chance import Dice
from oncelog.flow.simulation.duties import LIMITS, duties_of
from oncelog.flow.simulation.world import World
from tests.flow.test_time_behind import commits_hold

END_MS = 100
SEEDS = range(4)


@dataclass(frozen=True)
class Seen:
    count: int = 0


def see(seen: Seen, _: object) -> Seen:
    return Seen(seen.count + 1)


clicks = Topic("clicks", text, json_of(int))
by_minute = Topic("by-minute", text, json_of(int))
windows = Topic("windows", text, json_of(Window[Seen]))
SENT = [clicks.sent("abcdef"[number % 6], number, number) for number in range(24)]
ONE_CHANGE = replace(LIMITS, commit_bytes=150)  # two take more
ONE_AT_A_TIME = replace(LIMITS, run_records=1, waiting_bytes=1)


def flow() -> Flow:
    """The windows of all keys close at once, when the input is at its end."""
    found = Flow("f", version="1")
    narrow = found.read(clicks).window("narrow", Seen, see, size_ms=30).map(lambda window: window.state.count)
    narrow.through(by_minute, key=lambda count: "all").window("wide", Seen, see, size_ms=20).write(windows)
    return found


def worlds() -> Iterator[World]:
    program = flow().program
    duties = duties_of(program)
    for seed in SEEDS:
        yield World(duties, topics_of(duties, program, SENT), end_ms=END_MS, dice=Dice(seed))


def test_a_commit_tells_no_later_time_than_that_of_windows_which_it_has_no_room_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("oncelog.flow.simulation.engine.LIMITS", ONE_CHANGE)
    for world in worlds():
        world.run()
        assert sum(commits_hold(world, duty.stage.journal) for duty in world.all_duties)


def test_windows_behind_windows_miss_none_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oncelog.flow.simulation.engine.LIMITS", ONE_CHANGE)
    for world in worlds():
        world.run()
        (stands,) = (log for place, log in world.topics.items() if place.topic == windows.name)
        found = [windows.value.decode(value) for value in stands.records(0, stands.end).values if value is not None]
        assert [(each.start_ms, each.state) for each in found] == [(20, Seen(6))]


def test_a_cell_is_not_idle_while_timers_wait_for_what_was_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who runs it up to an end would end it, and they never fire."""
    monkeypatch.setattr("oncelog.flow.simulation.engine.LIMITS", ONE_AT_A_TIME)
    waited = 0
    for world in worlds():
        while world.turn():
            for engine in world.engines:
                if engine.is_over or not engine.cell.sources:
                    continue
                is_due = engine.cell.is_due_at(engine.work.marks)
                waited += is_due and bool(engine.wires)
                assert not (engine.cell.is_idle and is_due)
    assert waited
