"""What another life begins with: a copy of what the one before knew, as long as the journal is still the one that it is
a copy of."""

from dataclasses import replace
from functools import partial

import pytest

from oncelog.flow.journal import Journal
from oncelog.flow.messages import JournalBatch
from tests.flow.alone import at_the_end, calm, drive, has_committed, is_done, is_working
from tests.flow.cluster import FORGET_MS, JOURNAL, KEEP_TOMBSTONES_MS
from tests.flow.process import Process
from tests.flow.world import World
from tests.model.partition import Producers

SEED = 2  # of a world in which keys go late

both = pytest.mark.parametrize("has_plan", [False, True], ids=["without a plan", "with a plan"])


def copied(process: Process) -> Journal:
    """What it knew when it was killed."""
    assert process.cell.copy is not None
    process.kill()
    return process.cell.copy.copy()


def lose(world: World, batches: int) -> None:
    """As where a replica leads that lags behind: what was acknowledged is not there."""
    log = world.logs[JOURNAL]
    log.taken_over(log.batches[-batches].base_offset, Producers(forget_after_ms=FORGET_MS), world.now)


def begun_with(world: World, copy: Journal | None, asked: list[int], monkeypatch: pytest.MonkeyPatch) -> Process:
    """`asked`: from which offsets on it reads its journal."""

    def journal(from_offset: int) -> list[JournalBatch]:
        asked.append(from_offset)
        return World.journal(world, from_offset)

    world.copies = {} if copy is None else dict.fromkeys(range(3), copy)
    monkeypatch.setattr(world, "journal", journal)
    return Process(world)


@both
def test_a_copy_whose_last_batch_is_still_there_is_gone_on_with(
    has_plan: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, asked = calm(has_plan=has_plan), list[int]()
    copy = copied(at_the_end(world))
    again = begun_with(world, copy, asked, monkeypatch)
    assert drive(world, again, lambda: is_working(again))
    assert copy.last is not None and min(asked) == copy.last.base_offset > 0
    again.look()


@both
@pytest.mark.parametrize("lost", [1, 2])
def test_a_copy_of_what_the_log_has_lost_is_made_anew(
    has_plan: bool, lost: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the journal would never get what changed in the lost commit, and who restores from it would not have it."""
    world, asked = calm(has_plan=has_plan), list[int]()
    copy = copied(at_the_end(world))
    lose(world, lost)
    again = begun_with(world, copy, asked, monkeypatch)
    assert drive(world, again, lambda: is_done(world, again) and is_working(again))
    assert 0 in asked and again.cell.copy is not None
    again.kill()
    last = begun_with(world, None, asked, monkeypatch)
    assert drive(world, last, lambda: is_working(last))
    last.look()
    assert is_done(world, last)


def test_a_copy_is_made_anew_where_compaction_has_been_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a key whose tombstone it has taken would come back."""
    world, asked = calm(SEED), list[int]()
    (total,) = world.shown
    world.shown = [total // 2]
    first = Process(world)
    assert drive(world, first, partial(has_taken, first, total // 2))
    first.kill()
    second = Process(world)
    assert drive(world, second, lambda: is_working(second))
    assert second.cell.copy is not None
    copy = second.cell.copy.copy()
    for shown in (total - 1, total):
        world.shown = [shown]
        assert drive(world, second, partial(has_taken, second, shown))
    assert copy.state.keys() - second.cell.journal.state.keys(), "a key is gone since then"
    second.kill()
    for _ in range(20):
        world.compact()
        world.now_ms += KEEP_TOMBSTONES_MS
    again = begun_with(world, copy, asked, monkeypatch)
    assert drive(world, again, lambda: is_working(again))
    assert copy.last is not None and asked[0] == copy.last.base_offset and 0 in asked
    again.look()


def has_taken(process: Process, offset: int) -> bool:
    commit = process.cell.journal.commit
    return commit is not None and commit.inputs[0].next_offset == offset


def test_a_copy_is_not_joined_with_what_another_holder_wrote_into_the_place_of_what_was_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Under the same epoch, at the same offsets and with as many records: the broker had lost the take-over too."""
    world, asked = calm(), list[int]()
    world.limits = replace(world.limits, commit_every_ms=200)
    mine = copied(all_in_one_commit(world))
    lose(world, 2)
    others = copied(all_in_one_commit(world))
    assert mine.last is not None and others.last is not None and mine.next_offset == others.next_offset
    assert mine.last._replace(entry=None) == others.last._replace(entry=None)
    again = begun_with(world, mine, asked, monkeypatch)
    assert drive(world, again, lambda: is_working(again))
    assert asked[0] == mine.last.base_offset and 0 in asked


def all_in_one_commit(world: World) -> Process:
    holder = Process(world)
    assert drive(world, holder, lambda: is_done(world, holder) and has_committed(holder, 1))
    return holder
