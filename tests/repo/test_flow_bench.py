"""The table of flows: its lines stand on rows, the page has a place for them, and an audit finds what is not once."""

import numpy as np
import pyarrow as pa

from bench import flow_page
from bench.flow_contestant import OURS, STREAMS
from bench.flow_page import Line, goal_of, mark
from bench.flow_peers.periods import PERIOD_MS
from bench.flow_rows import ROWS
from bench.flow_soak import parted, timers_of, timers_wrong
from bench.flow_watch import Audit, audit, texts


def test_every_line_stands_on_a_row_and_every_row_has_a_line() -> None:
    assert {line.row for line in flow_page.LINES} == {row.name for row in ROWS}


def test_the_page_has_a_place_for_each_server() -> None:
    page = flow_page.PAGE.read_text()
    for server in flow_page.SERVERS:
        assert page.index(mark(server)) < page.index(mark(server, end=True))


def test_a_goal_is_met_by_the_median_of_the_ratios_within_a_round() -> None:
    line = Line("rate", "count", "rate", {STREAMS: 2})
    found = {"count": {OURS: {"rate": [2.0, 9.0, 8.0]}, STREAMS: {"rate": [1.0, 3.0, 16.0]}}}
    assert goal_of(line, found) == ("≥ 2x streams", "yes")
    found["count"][STREAMS]["rate"] = [1.5, 3.0, 16.0]
    assert goal_of(line, found) == ("≥ 2x streams", "**no**")


def test_what_grows_in_proportion_is_held_against_what_it_was_in_the_same_round() -> None:
    line = Line("cost", "growth", "records", below=1.1, by="usual")
    found = {"growth": {OURS: {"usual": [2.0, 4.0, 2.0], "records": [2.1, 4.2, 9.0]}}}
    assert goal_of(line, found) == ("≤ 1.1x usual", "yes")
    found["growth"][OURS]["usual"][1] = 2.0
    assert goal_of(line, found) == ("≤ 1.1x usual", "**no**")


def test_an_audit_counts_what_is_twice_missing_and_wrong() -> None:
    keys = np.array([3, 7, 3, 3])

    def written(*pairs: tuple[int, int]) -> list[pa.Table]:
        names = texts(b"p", np.array([key for key, _ in pairs]), 7)
        return [pa.table({"key": names, "value": pa.array([b"%d" % seen for _, seen in pairs])})]

    assert audit(written((3, 1), (7, 1), (3, 2), (3, 3)), keys) == Audit(0, 0, 0)
    assert audit(written((3, 1), (3, 1), (7, 1), (3, 3)), keys) == Audit(1, 1, 0)
    assert audit(written((3, 1), (7, 1), (7, 2), (3, 2), (3, 3)), keys) == Audit(0, 0, 1)


def test_the_soak_finds_a_timer_that_told_twice_or_not_at_all_or_something_else() -> None:
    users, times_ms = np.array([3, 3, 5, 3]), np.array([0, 1, 2, PERIOD_MS])
    whose, due = timers_of(users, times_ms)
    assert (whose.tolist(), due.tolist()) == ([3, 3, 5], [2, 1, 1])

    def wrong(*rows: tuple[str, str]) -> int:
        counts, told = parted(
            [pa.table({"key": [k.encode() for k, _ in rows], "value": [v.encode() for _, v in rows]})]
        )
        assert len(counts) == sum(not value.startswith("-") and value != "0" for _, value in rows)
        return timers_wrong(told, whose, due)

    right = ("3", "1"), ("3", "-2"), ("5", "-1"), ("3", "-1")
    assert wrong(*right) == 0
    assert wrong(*right, ("5", "-1")) == wrong(*right, ("5", "0")) == wrong(*right[:-1]) == 1
    assert wrong(("3", "-1"), ("3", "-2"), ("5", "-1")) == 1, "in the wrong order"
    assert wrong(("3", "-2"), ("3", "-2"), ("5", "-4")) == 2
