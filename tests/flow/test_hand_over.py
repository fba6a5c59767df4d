"""One holder leaves while the next one waits for its goodbye."""

import pytest

from oncelog.flow.formats import STATE, Commit, Goodbye, Tenancy, decoded
from oncelog.flow.states import State
from oncelog.slots.messages import Produce
from tests.flow.alone import at_the_end, calm, drive, is_done, is_working
from tests.flow.cluster import FORGET_MS, JOURNAL, NODES
from tests.flow.process import Process
from tests.flow.world import World
from tests.model.events import WALL_MS


def test_one_that_yields_takes_over_as_soon_as_goodbye_is_said() -> None:
    world = calm()
    old = at_the_end(world)
    new = Process(world, tenancy=Tenancy(1, 0), yields_until_ms=world.now.wall_ms + 2_000)
    assert drive(world, new, lambda: new.cell.state is State.AWAITING)
    assert not drive(world, new, lambda: is_working(new), 200)
    old.cell.leave(world.now)
    assert drive(world, old, lambda: old.is_over)
    before_ms = world.now_ms
    assert drive(world, new, lambda: is_working(new))
    assert world.now_ms - before_ms < 50


def test_one_that_yields_takes_over_without_a_goodbye_when_its_patience_is_over() -> None:
    world = calm()
    at_the_end(world)
    until_ms = world.now.wall_ms + 500
    new = Process(world, tenancy=Tenancy(1, 0), yields_until_ms=until_ms)
    assert drive(world, new, lambda: is_working(new), 10_000)
    assert world.now.wall_ms >= until_ms


def handed_over(world: World, *, waits_ms: int = 0, is_killed: bool = False) -> list[str]:
    """Between two holders in the midst of the input: what the second one asks for behind the first one's last word, up
    to its first output."""
    (end,) = world.shown
    world.shown = [end - 2]
    old = Process(world)
    assert drive(world, old, lambda: old.cell.number > 0 and old.cell.sources[0].next_offset == end - 2)
    commits = old.cell.parts.commits
    assert drive(world, old, lambda: not commits.has_progress and commits.under_way is None)
    patience_ms = 200 if is_killed else 2_000
    new = Process(world, tenancy=Tenancy(1, 0), yields_until_ms=world.now.wall_ms + patience_ms)
    new.cell.leaders(NODES, world.now)
    assert drive(world, new, lambda: new.cell.parts.outputs.recalled_at is not None and new.is_quiet)
    world.now_ms += waits_ms
    asked: list[str] = []

    def do(action: object) -> None:
        is_output = isinstance(action, Produce) and action.batches[0].place != JOURNAL
        asked.append("output" if is_output else type(action).__name__)
        Process.do(new, action)

    new.do = do  # type: ignore[method-assign]
    if is_killed:
        old.kill()
    else:
        old.cell.leave(world.now)
        assert drive(world, old, lambda: old.is_over)
    world.shown = [end]
    assert drive(world, new, lambda: "output" in asked)
    assert drive(world, new, lambda: is_done(world, new))
    world.check()
    return asked[: asked.index("output") + 1]


def test_behind_the_goodbye_stand_one_round_trip_for_the_journal_and_one_for_the_input() -> None:
    assert handed_over(calm(3)) == ["Produce", "Expect", "ReadJournal", "Fetch", "output"]


def test_what_the_one_before_may_have_filled_is_looked_for_before_anything_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert "LookUp" in handed_over(calm(3), is_killed=True)
    world = calm(3)
    assert "LookUp" in handed_over(world, waits_ms=world.limits.settle_ms)  # what was remembered may be forgotten
    monkeypatch.setattr(World, "recalled", lambda world, asked: dict.fromkeys(asked.places, WALL_MS - FORGET_MS))
    assert "LookUp" in handed_over(calm(3))  # or may be at any time
    monkeypatch.setattr(World, "recalled", lambda world, asked: {})
    assert "LookUp" in handed_over(calm(3))


def test_the_last_commit_says_goodbye() -> None:
    world = calm(3)
    holder = Process(world)
    assert drive(world, holder, lambda: holder.cell.parts.commits.has_progress)
    holder.cell.leave(world.now)
    assert drive(world, holder, lambda: holder.is_over)
    last = world.journal(0)[-1]
    entries = [type(decoded(key or b"", value or b"")) for key, value in last.rows if (key or b"")[:1] != STATE]
    assert entries == [Commit, Goodbye]
