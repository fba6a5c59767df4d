"""The five steps of a sealed batch, stopped anywhere, run again, and run by two at once: in memory."""

import itertools
from collections.abc import Iterator
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.spark.sealed.batch import Sealing
from oncelog.spark.sealed.manifest import Manifest, Owner, SealedError, manifest_name
from oncelog.spark.sink.errors import SinkRefused
from tests.model.turns import Killed, passing, point
from tests.spark.sealed.memory import OWNER, Frame, Kills, World, points, spark, take_turns

__all__ = ["points"]
BATCHES = 6


def passed_points() -> list[str]:
    """All points of a run without kills."""
    kills = Kills([])
    spark(World(), BATCHES, kills)
    return kills.seen


@pytest.mark.usefixtures("points")
def test_every_batch_is_sent_as_it_was_sealed() -> None:
    world = World()
    frames = spark(world, BATCHES)
    world.check(BATCHES)
    world.check_room(BATCHES - 1)
    assert [frame.runs for frame in frames] == [1] * BATCHES


@pytest.mark.usefixtures("points")
def test_a_driver_killed_at_any_one_point_leaves_every_row_once() -> None:
    """The rows of a query that never repeats are those of one of its runs, whole, whichever run was killed where."""
    every = passed_points()
    steps = {name for name in every if name.startswith("sealed:")}
    assert len(steps) == 6, "each step but that of a manifest that is there already"
    for number in range(len(every)):
        world = World()
        frames = spark(world, BATCHES, Kills([number]))
        world.check(BATCHES)
        world.check_room(BATCHES - 1)
        assert [frame.runs for frame in frames] == [1] * BATCHES, f"killed at {every[number]}"


@pytest.mark.usefixtures("points")
@given(kills=st.lists(st.integers(0, 60), max_size=25))
def test_drivers_killed_again_and_again_leave_every_row_once(kills: list[int]) -> None:
    world = World()
    frames = spark(world, BATCHES, Kills(kills))
    world.check(BATCHES)
    world.check_room(BATCHES - 1)
    assert [frame.runs for frame in frames] == [1] * BATCHES


@pytest.mark.usefixtures("points")
@given(schedule=st.lists(st.integers(0, 1), max_size=120))
def test_two_drivers_that_seal_one_batch_send_the_same_files(schedule: list[int]) -> None:
    world = World()
    spark(world, 2)
    first, second = world.driver(), world.driver()
    failures = take_turns(schedule, lambda: first.run(Frame(2), 2), lambda: second.run(Frame(2), 2))
    world.note()
    assert failures == {}
    world.check(3)
    assert len([name for name in world.storage.names() if name.startswith("2-")]) == 1, "the loser's folder is gone"
    spark(world, BATCHES, start=3)
    world.check(BATCHES)
    world.check_room(BATCHES - 1)


@pytest.mark.usefixtures("points")
@given(schedule=st.lists(st.integers(0, 1), max_size=200), first=st.integers(0, 3))
def test_a_driver_that_lags_behind_another_does_no_harm(schedule: list[int], first: int) -> None:
    """It may be refused, as its batch is over; the log is what the manifests said."""
    world = World()
    spark(world, first)

    def onward(driver: Sealing, last: int) -> None:
        for batch in range(first, last):
            driver.run(Frame(batch), batch)
            world.note()

    failures = take_turns(schedule, lambda: onward(world.driver(), first + 1), lambda: onward(world.driver(), BATCHES))
    if 1 not in failures:
        world.check(BATCHES)
    spark(world, BATCHES + 2, start=(world.log.saved or 0))
    world.check(BATCHES + 2)
    world.check_room(BATCHES + 1)


@pytest.mark.usefixtures("points")
def test_a_replayed_batch_is_run_once_more_so_that_its_state_goes_on() -> None:
    world = World()
    frames = spark(world, 1, Kills([passed_points().index("commit")]))
    assert [frame.runs for frame in frames] == [1]
    world.check(1)


@pytest.mark.usefixtures("points")
def test_a_batch_without_rows_is_sealed_and_saved_like_any_other() -> None:
    world = World()
    spark(world, 4)
    manifest = Manifest.from_bytes(world.storage.files["3.json"], "3.json")
    assert manifest.files == () and manifest.rows == 0
    assert world.log.saved == 3


def test_a_path_of_another_query_is_refused_before_anything_is_run() -> None:
    world = World()
    spark(world, 2)
    before = dict(world.storage.files)
    for owner in (Owner(query="query-2", sink=OWNER.sink), Owner(query=OWNER.query, sink="sink-2")):
        frame = Frame(0)
        with pytest.raises(SealedError, match=r"belongs to query 'query-1' with the sink 'sink-1'.*a path of its own"):
            world.driver(owner).run(frame, 0)
        assert frame.runs == 0
    assert world.storage.files == before


def test_a_path_with_other_things_in_it_is_refused_and_nothing_is_removed() -> None:
    world = World()
    world.storage.files["commits/0"] = b"v1"
    with pytest.raises(SealedError, match="holds 'commits', which is not of a sealed sink"):
        world.driver().run(Frame(0), 0)
    assert world.storage.files == {"commits/0": b"v1"}


@pytest.mark.usefixtures("points")
def test_two_queries_that_take_a_path_at_once_do_not_share_it() -> None:
    other = Owner(query="query-2", sink="sink-2")
    for switch in range(8):
        world = World()
        ours, theirs = world.driver(), world.driver(other)
        (failure,) = take_turns(
            [0] * switch + [1] * 100, partial(ours.run, Frame(0), 0), partial(theirs.run, Frame(0), 0)
        ).values()
        assert "belongs to query" in str(failure)


def test_a_written_batch_without_its_manifest_is_not_made_anew() -> None:
    world = World()
    spark(world, 3)
    written = world.log.records
    for name in [name for name in world.storage.files if name.startswith("2")]:
        del world.storage.files[name]
    frame = Frame(2)
    with pytest.raises(SealedError, match="batch 2 of sink 'sink-1' is written, and there is no manifest of it"):
        world.driver().run(frame, 2)
    assert frame.runs == 0 and world.log.records == written


def test_an_older_checkpoint_is_refused_before_its_frame_is_run() -> None:
    world = World()
    spark(world, 5)
    frame = Frame(2)
    with pytest.raises(SinkRefused, match="batch 2, and saved is 4"):
        world.driver().run(frame, 2)
    assert frame.runs == 0


def test_a_batch_that_was_planned_anew_is_refused_before_its_frame_is_run() -> None:
    """By an older copy of the checkpoint: the new plan has rows that came since."""
    world = World()
    world.driver().run(Frame(0), 0, "planned at 1")
    written = world.log.records
    frame = Frame(0)
    with pytest.raises(SealedError, match="batch 0 was sealed, and Spark has planned it anew since"):
        world.driver().run(frame, 0, "planned at 2")
    assert frame.runs == 0
    for planned in ("planned at 1", ""):
        world.driver().run(Frame(0), 0, planned)
    world.driver().run(Frame(1), 1)  # as an earlier version seals it
    world.driver().run(Frame(1), 1, "planned at 3")
    assert world.log.records[: len(written)] == written


def test_a_damaged_manifest_stops_the_query() -> None:
    world = World()
    spark(world, 3)
    whole = world.storage.files["2.json"]
    for damaged in (whole[:-20], b"", whole.replace(b'"batch":2', b'"batch":1'), whole.replace(b"memory", b"memorx")):
        world.storage.files["2.json"] = damaged
        frame = Frame(2)
        with pytest.raises(SealedError, match=r"2\.json is damaged.*Nothing more is written"):
            world.driver().run(frame, 2)
        assert frame.runs == 0


def test_a_manifest_that_somebody_moved_is_refused() -> None:
    world = World()
    spark(world, 3)
    world.storage.files["3.json"] = world.storage.files["2.json"]
    with pytest.raises(SealedError, match=r"3\.json is the manifest of batch 2 .* this is batch 3"):
        world.driver().run(Frame(3), 3)


def test_a_file_that_is_gone_or_cut_stops_the_query_before_anything_is_run() -> None:
    for change in ("removed", "cut"):
        world = World()
        spark(world, 3)
        (name, *_) = [name for name in world.storage.files if name.startswith("2-")]
        if change == "cut":
            world.storage.files[name] = world.storage.files[name][:-1]
        else:
            del world.storage.files[name]
        frame = Frame(2)
        with pytest.raises(SealedError, match="is not there"):
            world.driver().run(frame, 2)
        assert frame.runs == 0


@pytest.mark.usefixtures("points")
def test_what_cannot_be_removed_is_told_and_does_not_stop_the_query(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = World()

    def refuse(name: str) -> None:
        raise PermissionError(f"may not remove {name}")

    monkeypatch.setattr(world.storage, "remove", refuse)
    spark(world, 4)
    assert world.log.saved == 3
    assert "0.json is not needed any more and cannot be removed: may not remove 0.json" in caplog.text


@pytest.mark.usefixtures("points")
def test_a_batch_that_cannot_be_sealed_leaves_nothing_however_often_it_is_tried() -> None:
    """A query that fails on one of its rows is started again and again: what it wrote would fill the disk."""
    world = World()
    spark(world, 1)
    before = set(world.storage.files)

    class Poisoned(Frame):
        def run(self, numbers: Iterator[int]) -> list[list[str]]:
            def rows() -> Iterator[list[str]]:
                yield ["1.0.0"]
                raise ValueError("a row that cannot be computed")

            return rows()  # type: ignore[return-value]

    for _ in range(3):
        with pytest.raises(ValueError, match="a row that cannot be computed"):
            world.driver().run(Poisoned(1), 1)
        assert set(world.storage.files) == before
    world.driver().run(Frame(1), 1)
    assert world.log.saved == 1


@pytest.mark.usefixtures("points")
def test_a_manifest_that_was_put_in_place_of_ours_is_the_one_that_counts() -> None:
    """Where a file system lets two create one file, the reader's view decides: what stands there is sent."""
    world = World()
    theirs = World(numbers=itertools.count(1000))
    spark(theirs, 1)
    create = world.storage.create

    def overwritten(name: str, data: bytes) -> bool:
        created = create(name, data)
        if name == manifest_name(0):
            world.storage.files |= {name: each for name, each in theirs.storage.files.items() if name != "query.json"}
        return created

    world.storage.create = overwritten  # type: ignore[method-assign]
    world.driver().run(Frame(0), 0)
    assert world.log.records == theirs.log.records


def test_the_points_of_the_model_can_kill() -> None:
    with pytest.raises(Killed), passing(Kills([0]).at):
        point("here")
