"""Topics whose values say when something happened: windows, timers, merges, joins and files go by that time."""

from dataclasses import dataclass
from typing import cast

import pytest

from oncelog.flow import Context, Dead, Flow, Stopped, Topic, Window, json_of, raw, text
from oncelog.flow.topics import Sent

HOUR_MS = 3_600_000


@dataclass(frozen=True)
class Reading:
    at_ms: int
    degrees: int = 0


def happened(reading: Reading) -> int:
    if reading.degrees > 100:
        raise ValueError("nobody reads so much")
    return reading.at_ms


readings = Topic("readings", text, json_of(Reading), time=happened)
others = Topic("others", text, json_of(Reading), time=lambda reading: reading.at_ms)
between = Topic("between", text, json_of(Reading), time=lambda reading: 1 // 0)
windows = Topic("windows", text, json_of(Window[int]))
lates = Topic("lates", text, json_of(Reading))
told = Topic("told", text, json_of(int))
dead = Dead("dead")


def more(count: int, reading: Reading) -> int:
    return count + 1


def closed(flow: Flow, sent: list[Sent], end: int | None = None) -> list[tuple[int, int]]:
    done = flow.simulate(sent, end=end, crashes="everywhere", seeds=range(3))
    return [(window.start_ms, window.state) for _, window in done[windows]]


@pytest.mark.parametrize("stages", [1, 2])
def test_windows_are_those_of_the_values(stages: int) -> None:
    """Behind `through` the time goes on, and no function is asked again."""
    flow = Flow("f", version="1")
    stream = flow.read(readings)
    if stages == 2:
        stream = stream.through(between, key=lambda reading: "all")
    stream.window("by-10", int, more, size_ms=10).write(windows)
    sent = [readings.sent("a", Reading(at_ms), at_ms=1_000) for at_ms in (3, 5, 12, 25)]
    assert closed(flow, sent, end=40) == [(0, 2), (10, 1), (20, 1)]


def test_what_comes_behind_the_watermark_of_the_values_is_late() -> None:
    flow = Flow("f", version="1")
    flow.read(readings).window("by-10", int, more, size_ms=10, late=lates).write(windows)
    sent = [readings.sent("a", Reading(at_ms)) for at_ms in (3, 25, 4)]
    done = flow.simulate(sent, crashes=True)
    assert done[lates] == [("a", Reading(4))]
    assert [(window.start_ms, window.state) for _, window in done[windows]] == [(0, 1)]


def test_timers_and_functions_get_the_time_of_the_value() -> None:
    def wait(seen: int, reading: Reading, at: Context[str]) -> tuple[int, list[int]]:
        at.timer(at.time_ms + 10)
        return seen + 1, []

    def tell(seen: int, key: str, at: Context[str]) -> tuple[None, list[int]]:
        return None, [at.time_ms]

    flow = Flow("f", version="1")
    flow.read(readings).step("seen", int, wait, on_timer=tell).write(told)
    assert flow.simulate([readings.sent("a", Reading(7))], end=30, crashes=True)[told] == [("a", 17)]


def test_merged_streams_are_in_the_order_of_the_values_times() -> None:
    flow = Flow("f", version="1")
    flow.read(readings).merge("both", flow.read(others)).map(lambda reading: reading.at_ms).write(told)
    sent = [
        topic.sent("a", Reading(at_ms)) for topic, times in ((readings, (1, 4)), (others, (2, 3))) for at_ms in times
    ]
    done = flow.simulate(sent, crashes="everywhere", seeds=range(3))
    assert [at_ms for _, at_ms in done[told]] == [1, 2, 3, 4]


def test_a_row_is_met_by_what_happened_behind_it() -> None:
    table = Topic("table", text, json_of(Reading), time=lambda reading: reading.at_ms)
    flow = Flow("f", version="1")
    flow.read(readings).join(flow.table(table), lambda reading, row: row.degrees).write(told)
    sent = [table.sent("a", Reading(0, 1)), readings.sent("a", Reading(10)), table.sent("a", Reading(20, 2), at_ms=1)]
    sent.append(readings.sent("a", Reading(30)))
    assert flow.simulate(sent, crashes=True)[told] == [("a", 1), ("a", 2)]


def test_files_have_the_hour_of_the_value() -> None:
    flow = Flow("f", version="1")
    flow.read(readings, wait_ms=9 * HOUR_MS).files("/place", every_ms=0)
    sent = [readings.sent("a", Reading(hour * HOUR_MS)) for hour in (1, 2, 2)]
    files = flow.simulate(sent, crashes=True).files["/place"]
    rows = [(name.partition("/")[0], row["at_ms"] // HOUR_MS) for name, rows in files.items() for row in rows]
    assert sorted(rows) == [("hour=1970-01-01T01", 1), ("hour=1970-01-01T02", 2), ("hour=1970-01-01T02", 2)]


BAD = [
    (Reading(5, 101), "ValueError: nobody reads so much"),
    (
        Reading(1_700_000_000_000_000),
        "ValueError: its time is 1700000000000000, where an int is expected: milliseconds",
    ),
    (Reading(-1), "ValueError: its time is -1, where an int is expected: milliseconds since 1970"),
]


@pytest.mark.parametrize(("bad", "why"), BAD, ids=["raises", "microseconds", "before 1970"])
@pytest.mark.parametrize("total", [False, True], ids=["window", "total"])
def test_one_without_a_time_cannot_be_worked_on(bad: Reading, why: str, total: bool) -> None:
    def flow(otherwise: Dead | None) -> Flow:
        made = Flow("f", version="1")
        read = made.read(readings, otherwise=otherwise)
        if total:
            read.count("n").write(told)
        else:
            read.window("by-10", int, more, size_ms=10).write(windows)
        return made

    sent = [readings.sent("a", each) for each in (Reading(1), bad, Reading(2))]
    with pytest.raises(Stopped, match=f"the record at offset 1 of readings: {why}"):
        flow(None).simulate(sent)
    done = flow(dead).simulate(sent, end=30, crashes=True)
    assert [each.value for each in done.records(dead.topic)] == [sent[1].value]
    assert done[told][-1:] == [("a", 2)] if total else [each.state for _, each in done[windows]] == [2]


def test_a_bad_value_that_came_late_moves_no_watermark() -> None:
    flow = Flow("f", version="1")
    flow.read(readings, otherwise=dead).window("by-10", int, more, size_ms=10).write(windows)
    sent = [readings.sent("a", each, at_ms=10**9) for each in (Reading(1), Reading(2, 101), Reading(3))]
    done = flow.simulate(sent, end=30, crashes=True)
    assert [each.state for _, each in done[windows]] == [2]


def test_a_time_is_told_of_bytes_too_and_of_no_null() -> None:
    stamped = Topic("stamped", raw, raw, time=int)
    flow = Flow("f", version="1")
    flow.read(stamped, wait_ms=9 * HOUR_MS).files("/place", every_ms=0)
    files = flow.simulate([stamped.sent(b"a", b"%d" % (3 * HOUR_MS))], crashes=True).files["/place"]
    assert [name.partition("/")[0] for name in files] == ["hour=1970-01-01T03"]


def test_a_function_that_takes_no_value_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Topic t: time: .*cannot be called with \(value\)"):
        Topic("t", text, text, time=cast("type[int]", lambda: 1))
