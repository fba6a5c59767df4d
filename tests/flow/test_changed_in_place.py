"""Functions that change the state they are given, instead of making another."""

from collections.abc import Callable

import pytest

from oncelog.flow import Context, Dead, Flow, Topic, Window, json_of, text
from oncelog.flow.entries import Entries
from oncelog.flow.messages import Records
from oncelog.flow.part_running import PartWork
from oncelog.flow.simulation.duties import duties_of

clicks = Topic("clicks", text, json_of(int), partitions=1)
counts = Topic("counts", text, json_of(int), partitions=1)
windows = Topic("windows", text, json_of(Window[dict[str, int]]), partitions=1)
dead = Dead("dead")
RECORDS = 30
BAD = 7  # each of them after some that are good, and before others
Seen = dict[str, int]


def count(seen: Seen, click: int) -> Seen:
    seen["count"] = seen.get("count", 0) + 1
    if click % BAD == 0:
        raise ValueError("a bad one")
    return seen


def counted(seen: Seen, click: int, at: Context[str]) -> tuple[Seen, list[int]]:
    count(seen, click)
    return seen, [seen["count"]]


def timed(seen: Seen, click: int, at: Context[str]) -> tuple[Seen, list[int]]:
    at.timer(10_000)
    return counted(seen, click, at)


def nothing(seen: Seen, key: str, at: Context[str]) -> tuple[Seen, list[int]]:
    return seen, []


def stepped(flow: Flow) -> None:
    flow.read(clicks, otherwise=dead).step("seen", Seen, counted).write(counts)


def with_timers(flow: Flow) -> None:
    flow.read(clicks, otherwise=dead).step("seen", Seen, timed, on_timer=nothing).write(counts)


@pytest.mark.parametrize("make", [stepped, with_timers])
def test_a_record_that_goes_to_the_dead_letters_leaves_nothing_in_the_state(make: Callable[[Flow], None]) -> None:
    flow = Flow("f", version="1")
    make(flow)
    done = flow.simulate([clicks.sent("anna", number, number) for number in range(1, RECORDS)], 100)
    good = sum(number % BAD != 0 for number in range(1, RECORDS))
    assert [total for _, total in done[counts]] == list(range(1, good + 1))
    assert len(done[dead]) == RECORDS - 1 - good


def test_nor_does_it_in_a_window() -> None:
    flow = Flow("f", version="1")
    flow.read(clicks, otherwise=dead).window("seen", Seen, count, size_ms=1_000).write(windows)
    done = flow.simulate([clicks.sent("anna", number, number) for number in range(1, RECORDS)], 10_000)
    assert [window.state["count"] for _, window in done[windows]] == [RECORDS - 1 - len(done[dead])]


def test_a_run_that_is_undone_begins_again_with_the_state_before_it() -> None:
    """What a run changes may not fit a commit: then it is done again, in part."""
    flow = Flow("f", version="1")
    flow.read(clicks).step("seen", Seen, counted).write(counts)
    (duty,) = duties_of(flow.program)
    work, entries = PartWork(duty.part, 0), Entries({})
    work.begin(entries, [-1])
    records = Records(range(5), [b"anna"] * 5, [b"1"] * 5, [1] * 5)
    entries.changed.update(work.run(0, records, 5).changes)
    for _ in range(2):
        found = work.run(0, records, 5)
        work.undo()
    assert found.changes == {b"seen\0anna": b'{"count":10}'}
