"""Marks, watermarks, timers and windows: what is due comes in its order, and what does not fit is undone."""

import random
import tracemalloc
from bisect import insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import pytest

from oncelog.clock import Now
from oncelog.flow import Context, Dead, Flow, Input, Limits, Topic, Window, json_of, text
from oncelog.flow.formats import Range
from oncelog.flow.messages import EMPTY, Records, Stepped, Unworkable
from oncelog.flow.part_running import PartWork
from oncelog.flow.planning import Source, plan_of
from oncelog.flow.stepping import MOST_TIMERS, TimedStates
from oncelog.flow.timers import Timers


@dataclass(frozen=True)
class Amount:
    of: int


@dataclass(frozen=True)
class Owed:
    amount: int = 0


amounts = Topic("amounts", text, json_of(Amount))
overdue = Topic("overdue", text, json_of(Owed))
sums = Topic("sums", text, json_of(Window[Owed]))
lates = Topic("lates", text, json_of(Amount))


def book(owed: Owed, event: Amount, at: Context[str]) -> tuple[Owed | None, list[Owed]]:
    if not owed.amount:
        at.timer(at.time_ms + 30)
    left = owed.amount + event.of
    return (Owed(left) if left else None), []


def remind(owed: Owed, key: str, at: Context[str]) -> tuple[Owed | None, list[Owed]]:
    at.timer(at.time_ms + 100)
    return owed, [owed]


class Kept(dict[bytes, bytes]):
    """A state, as a cell keeps it."""

    def take(self, stepped: Stepped) -> list[tuple[str, str, int]]:
        for key, value in stepped.changes.items():
            if value is None:
                self.pop(key, None)
            else:
                self[key] = value
        written = stepped.outputs.items()
        return [
            (key.decode(), value.decode(), time_ms)
            for _, each in written
            for key, value, time_ms in zip(each.keys, each.values, each.times or (), strict=True)
            if key is not None and value is not None
        ]


def records(*rows: tuple[str, int, int]) -> Records:
    keys, values = [key.encode() for key, _, _ in rows], [b'{"of":%d}' % of for _, of, _ in rows]
    return Records(range(len(rows)), keys, values, [time_ms for _, _, time_ms in rows])


def reminding() -> Flow:
    flow = Flow("f", version="1")
    flow.read(amounts).step("owed", Owed, book, on_timer=remind).write(overdue)
    return flow


def working(flow: Flow, state: Kept, marks: Sequence[int] = (-1,)) -> PartWork:
    work = PartWork(flow.program.parts[0], 0)
    work.begin(state, marks)
    return work


def test_timers_fire_between_records_when_the_watermark_gets_there() -> None:
    state = Kept()
    work = working(reminding(), state)
    written = state.take(work.run(0, records(("anna", 5, 0), ("bert", 3, 10), ("carl", 1, 35), ("anna", 1, 36)), 100))
    assert written == [("anna", '{"amount":5}', 30)]
    assert work.next_timer_ms == 40
    work.mark(0, 50)
    assert state.take(work.run(0, EMPTY, 100)) == [("bert", '{"amount":3}', 40)]


def test_timers_fire_in_the_order_of_time_and_key() -> None:
    state = Kept()
    work = working(reminding(), state)
    state.take(work.run(0, records(("b", 1, 0), ("a", 1, 0), ("c", 1, -5)), 100))
    work.mark(0, 30)
    assert [key for key, _, _ in state.take(work.run(0, EMPTY, 100))] == ["c", "a", "b"]


def test_timers_go_with_the_state_of_their_key() -> None:
    state = Kept()
    work = working(reminding(), state)
    state.take(work.run(0, records(("anna", 5, 0), ("anna", -5, 1)), 100))
    assert state == {}
    assert work.next_timer_ms is None


def test_timers_are_restored_with_the_state() -> None:
    state = Kept()
    state.take(working(reminding(), state).run(0, records(("anna", 5, 0), ("bert", 3, 10)), 100))
    work = working(reminding(), state, [40])
    assert work.next_timer_ms == 30
    assert [key for key, _, _ in state.take(work.run(0, EMPTY, 1))] == ["anna"]
    assert [key for key, _, _ in state.take(work.run(0, EMPTY, 1))] == ["bert"]


def test_what_is_undone_comes_again() -> None:
    state = Kept()
    work = working(reminding(), state)
    state.take(work.run(0, records(("anna", 5, 0)), 100))
    more = records(("bert", 3, 10), ("carl", 1, 35))
    first = work.run(0, more, 100)
    work.undo()
    assert work.watermark_ms == 0
    assert work.run(0, more, 100) == first


def test_a_bound_of_timers_ends_a_run_and_the_rest_is_due() -> None:
    state = Kept()
    work = working(reminding(), state)
    rows = [(f"k{at:02}", 1, 0) for at in range(10)]
    state.take(work.run(0, records(*rows), 100))
    stepped = work.run(0, records(("x", 1, 50), ("y", 1, 51)), 4)
    assert (stepped.taken, len(state.take(stepped))) == (1, 4)
    assert work.next_timer_ms == 30


def test_a_timer_that_would_fire_for_ever_is_refused() -> None:
    def again(owed: Owed, key: str, at: Context[str]) -> tuple[Owed | None, list[Owed]]:
        at.timer(at.time_ms)
        return owed, []

    flow = Flow("f", version="1")
    flow.read(amounts).step("owed", Owed, book, on_timer=again).write(overdue)
    with pytest.raises(Unworkable, match=r"the timer of b'anna' at 30: .*sets a timer for 30: set a later one"):
        working(flow, Kept()).run(0, records(("anna", 5, 0), ("anna", 5, 99)), 100)


@pytest.mark.parametrize("time_ms", [30.0, 1.5, 1 << 63, -(1 << 63) - 1, "30"])
def test_a_timer_that_could_not_be_read_back_is_refused_when_it_is_set(time_ms: Any) -> None:
    def wait(owed: Owed, _: Amount, at: Context[str]) -> tuple[Owed | None, list[Owed]]:
        at.timer(time_ms)
        return owed, []

    flow = Flow("f", version="1")
    flow.read(amounts).step("owed", Owed, wait, on_timer=remind).write(overdue)
    with pytest.raises(Unworkable, match=r"offset 0 of amounts: ValueError: a timer for .* a whole number of millise"):
        working(flow, Kept()).run(0, records(("anna", 5, 0)), 100)


@pytest.mark.parametrize("seed", range(5))
def test_timers_come_in_their_order_however_many_were_set_before(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oncelog.flow.timers.RUN", 8)
    chance, timers, stand = random.Random(seed), Timers(), list[tuple[int, bytes]]()
    for _ in range(3_000):
        assert (timers.first, timers.first_ms) == ((stand[0], stand[0][0]) if stand else (None, inf))
        if stand and chance.random() < 0.49:
            assert timers.pop() == stand.pop(0)
        else:
            timer = chance.choice((chance.randrange(-50, 50), chance.randrange(1 << 40))), chance.randbytes(2)
            timers.push(*timer)
            insort(stand, timer)
    assert [timers.pop() for _ in stand] == stand
    assert timers.first is None


def test_few_timers_that_are_left_keep_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many sets of timers nearly all fire, and a hundredth of each waits for years."""
    monkeypatch.setattr("oncelog.flow.timers.RUN", 512)
    timers, key = Timers(), b"a key of some bytes, as they are"
    tracemalloc.start()
    try:
        for hour in range(10):
            for at in range(1_000):
                timers.push(hour * 1_000 + at if at % 100 else 1 << 50, key)
            while timers.first_ms < 1 << 50:
                timers.pop()
        assert tracemalloc.get_traced_memory()[0] < 100_000
    finally:
        tracemalloc.stop()


def summing(**more: int) -> Flow:
    flow = Flow("f", version="1")
    by_window = flow.read(amounts, wait_ms=5).window(
        "sums", Owed, lambda owed, event: Owed(owed.amount + event.of), size_ms=10, late=lates, **more
    )
    by_window.write(sums)
    return flow


def test_a_window_is_written_once_when_it_closes_and_late_records_go_elsewhere() -> None:
    state = Kept()
    work = working(summing(), state)
    rows = records(("a", 1, 3), ("a", 2, 12), ("a", 4, 9), ("b", 8, 4), ("a", 16, 15), ("a", 32, 8))
    stepped = work.run(0, rows, 100)
    places = {place.topic: len(each.keys) for place, each in stepped.outputs.items()}
    assert places == {"sums": 2, "lates": 1}
    written = state.take(stepped)
    assert ("a", '{"start_ms":0,"end_ms":10,"state":{"amount":5}}', 10) in written
    assert ("b", '{"start_ms":0,"end_ms":10,"state":{"amount":8}}', 10) in written
    assert ("a", '{"of":32}', 8) in written
    assert len(state) == 1


def test_windows_may_overlap() -> None:
    state = Kept()
    work = working(summing(every_ms=5), state)
    written = state.take(work.run(0, records(("a", 1, 3), ("a", 2, 7), ("a", 4, 40)), 100))
    assert [value for _, value, _ in written] == [
        '{"start_ms":-5,"end_ms":5,"state":{"amount":1}}',
        '{"start_ms":0,"end_ms":10,"state":{"amount":3}}',
        '{"start_ms":5,"end_ms":15,"state":{"amount":2}}',
    ]


def test_records_that_are_late_for_their_windows_are_counted() -> None:
    flow = Flow("f", version="1")
    flow.read(amounts).window("sums", Owed, lambda owed, event: owed, size_ms=10).write(sums)
    work = working(flow, Kept())
    rows = records(("a", 1, 3), ("a", 2, 12), ("a", 4, 9), ("b", 8, 4))
    work.run(0, rows, 100)
    assert work.late == 2
    work.undo()
    assert work.late == 0
    work.run(0, rows, 100)
    assert work.late == 2


def test_a_late_record_that_is_dead_does_not_count() -> None:
    def refuse(owed: Owed, event: Amount, at: Context[str]) -> tuple[Owed, list[Owed]]:
        raise ValueError("never")

    flow = Flow("f", version="1", otherwise=Dead("dead"))
    came = flow.read(amounts)
    came.window("sums", Owed, lambda owed, event: owed, size_ms=10).write(sums)
    came.step("never", Owed, refuse).write(overdue)
    work = working(flow, Kept())
    work.run(0, records(("a", 1, 30), ("a", 2, 3)), 100)
    assert work.late == 0


def test_windows_with_gaps_between_them_are_refused() -> None:
    """What falls into a gap would be called late."""
    with pytest.raises(ValueError, match="sums: windows of 10 ms, one every 11 ms, leave out"):
        summing(every_ms=11)


def test_a_timer_where_no_function_takes_it_is_refused_with_words() -> None:
    flow = Flow("f", version="1")
    flow.read(amounts).step("owed", Owed, book).write(overdue)
    with pytest.raises(Unworkable, match=r"at\.timer: no function is given for timers: `step\(\.\.\., on_timer=\)`"):
        working(flow, Kept()).run(0, records(("a", 1, 3)), 100)


@pytest.mark.parametrize("held", [None, Amount(1)], ids=["nothing", "another type"])
def test_a_window_whose_function_returns_no_state_stops_it(held: Any) -> None:
    """As one does that changes the state in place and returns nothing: no window would ever be written."""
    flow = Flow("f", version="1")
    flow.read(amounts).window("sums", Owed, lambda owed, event: held, size_ms=10).write(sums)
    with pytest.raises(Unworkable, match="offset 0 of amounts: TypeError: "):
        working(flow, Kept()).run(0, records(("a", 1, 3)), 100)


# --- plans


LIMITS = Limits(wait_ms=10)


def source(times: Iterable[int] = (), *, now_ms: int = 0, **about: object) -> Source:
    found = Source(Input("in", "id", **about), 0)  # type: ignore[arg-type]
    times = list(times)
    cells = [b""] * len(times)
    found.add(Records(range(len(times)), cells, cells, times), len(times), Now(now_ms, now_ms))
    return found


def test_a_plan_says_what_time_it_is_for_inputs_at_their_end() -> None:
    found = plan_of([source(now_ms=100, wait_ms=7), source([50, 51])], Now(110, 110), LIMITS, [-1, -1], 1 << 60)
    assert found is not None
    assert found.ranges == [Range(1, 0, 2), Range(0, 0, 0, 93)]


def test_without_records_a_plan_is_worth_making_when_something_is_due_by_it() -> None:
    idle = [source(now_ms=100)]
    assert plan_of(idle, Now(110, 110), LIMITS, [-1], 101) is None
    found = plan_of(idle, Now(110, 110), LIMITS, [-1], 100)
    assert found is not None
    assert found.ranges == [Range(0, 0, 0, 100)]


def test_an_input_whose_end_is_kept_back_by_a_transaction_does_not_count_as_now() -> None:
    open_one = source(now_ms=100)
    open_one.at_its_end(Now(200, 200), is_open=True)
    assert plan_of([open_one], Now(210, 210), LIMITS, [-1], 101) is None
    open_one.at_its_end(Now(220, 220))
    found = plan_of([open_one], Now(230, 230), LIMITS, [-1], 101)
    assert found is not None and found.ranges == [Range(0, 0, 0, 220)]


def test_what_those_upstream_say_holds_behind_what_they_have_written() -> None:
    derived = source([50, 60, 70, 80], is_derived=True)
    derived.hear(2, 55, -1)
    derived.hear(9, 90, -1)
    found = plan_of([derived], Now(110, 110), LIMITS, [-1], 1 << 60)
    assert found is not None
    assert found.ranges == [Range(0, 0, 2, 55), Range(0, 2, 4, 55)]


def test_a_stage_tells_the_time_to_those_behind_it_that_ask() -> None:
    ledger = Topic("ledger", text, json_of(Amount))
    flow = Flow("f", version="1")
    events = flow.read(amounts).through(ledger, key=lambda event: str(event.of))
    events.step("owed", Owed, book, on_timer=remind).write(overdue)
    flow.read(ledger, name="again").write(lates)
    first, asks, other = flow.program.parts
    assert [flow.program.tells_time(each) for each in (first, asks, other)] == [True, False, False]
    assert [each.has_plan for each in (first, asks, other)] == [False, True, False]
    assert replace(LIMITS).tell_time_every_ms == 1_000


def test_timers_beyond_the_bound_are_refused_at_the_first_of_them() -> None:
    states = TimedStates("owed", json_of(Owed))
    with pytest.raises(ValueError, match=f"more than {MOST_TIMERS} timers"):
        states.add(b"anna", list(range(3 * MOST_TIMERS)), ())
    assert [states.due.pop() for _ in range(MOST_TIMERS + 1)][-1] == (MOST_TIMERS, b"anna")
    assert states.due.first is None
