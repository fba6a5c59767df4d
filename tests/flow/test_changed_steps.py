"""Steps of code that changes under its name: they get timers, and lose them, and their states stay."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from oncelog.flow import Context, Flow, Topic, Upgrade, json_of, text
from oncelog.flow.journal import Journal
from oncelog.flow.messages import Records
from oncelog.flow.part_running import PartWork
from oncelog.flow.simulating import topics_of
from oncelog.flow.simulation.duties import duties_of
from oncelog.flow.simulation.world import World
from oncelog.slots import Place
from tests.flow.test_trying import trials

MOST_TURNS = 5_000


@dataclass(frozen=True)
class Owed:
    amount: int = 0


amounts = Topic("amounts", text, json_of(int))
sums = Topic("sums", text, json_of(int))


def add(owed: Owed, amount: int, at: Context[str]) -> tuple[Owed, list[int]]:
    return Owed(owed.amount + amount), [owed.amount + amount]


def add_and_wait(owed: Owed, amount: int, at: Context[str]) -> tuple[Owed, list[int]]:
    at.timer(at.time_ms + 10)
    return add(owed, amount, at)


def remind(owed: Owed, key: str, at: Context[str]) -> tuple[Owed, list[int]]:
    return owed, [-owed.amount]


def plain(name: str = "owed", upgrade: Upgrade[Owed, Owed] | None = None) -> Flow:
    flow = Flow("f", version="1")
    flow.read(amounts).step(name, Owed, add, upgrade=upgrade).write(sums)
    return flow


def timed(name: str = "owed", upgrade: Upgrade[Owed, Owed] | None = None) -> Flow:
    flow = Flow("f", version="1")
    flow.read(amounts).step(name, Owed, add_and_wait, on_timer=remind, upgrade=upgrade).write(sums)
    return flow


def written(flow: Flow, state: dict[bytes, bytes], amount: int, at_ms: int) -> list[int]:
    """What comes of one more record, behind the state of other code."""
    work = PartWork(flow.program.parts[0], 0)
    work.begin(state, [-1])
    stepped = work.run(0, Records([0], [b"anna"], [b"%d" % amount], [at_ms]), 100)
    for key, value in stepped.changes.items():
        if value is None:
            del state[key]
        else:
            state[key] = value
    values = [value for outputs in stepped.outputs.values() for value in outputs.values]
    return [sums.value.decode(value) for value in values if value is not None]


MOVED = Upgrade("owed", Owed, lambda owed: owed)


@pytest.mark.parametrize("now", [timed(), timed("money", MOVED)], ids=["under its name", "under another name"])
def test_a_step_that_gets_timers_goes_on_with_its_states(now: Flow) -> None:
    state: dict[bytes, bytes] = {}
    assert written(plain(), state, 5, 0) == [5]
    assert written(now, state, 2, 1) == [7]
    assert written(now, state, 1, 20) == [8, -8]  # the timer that was set for 11


@pytest.mark.parametrize("now", [plain(), plain("money", MOVED)], ids=["under its name", "under another name"])
def test_a_step_that_loses_timers_goes_on_with_its_states(now: Flow) -> None:
    state: dict[bytes, bytes] = {}
    assert written(timed(), state, 5, 0) == [5]
    assert written(now, state, 2, 20) == [7]
    assert all(b"\n" not in value for value in state.values())


def test_a_stage_that_has_no_plan_any_more_comes_to_its_end_behind_one_that_was_left_in_it() -> None:
    then, now = timed().program, plain().program
    sent = [amounts.sent("anna", 1, at_ms) for at_ms in range(9)]
    world = World(duties_of(then), topics_of(duties_of(then), then, sent))
    (journal,) = (place for place in world.topics if place.topic.startswith("oncelog.flow."))
    while not is_planned(world, journal):
        assert world.turn()
    world = World(duties_of(now), world.topics)
    was_idle = False
    while world.turn():
        was_idle = was_idle or any(engine.cell.is_idle for engine in world.engines)
    assert was_idle
    assert not is_planned(world, journal)


@pytest.mark.parametrize(("then", "now"), [(plain, timed), (timed, plain)], ids=["gets them", "loses them"])
def test_code_whose_step_gets_timers_or_loses_them_is_tried_on_what_was_taken(
    then: Callable[[], Flow], now: Callable[[], Flow]
) -> None:
    sent = [amounts.sent("anna", 1, at_ms) for at_ms in range(5)]
    (duty,) = duties_of(then().program)
    world = World([duty], topics_of([duty], then().program, sent))
    world.run()
    (found,) = trials(now().program, world.topics)
    assert (found.records, found.outputs, found.same, found.gone, found.failure) == (5, 5, 5, 0, None)


def is_planned(world: World, place: Place) -> bool:
    """Whether the last commit has records for the next step."""
    journal = Journal()
    journal.read(world.topics[place].journal(0))
    commit = journal.commit
    return commit is not None and commit.plan is not None and any(each.end > each.first for each in commit.plan.ranges)
