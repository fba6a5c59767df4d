"""The table of flows: its lines stand on rows, the page has a place for them, and an audit finds what is not once."""

import numpy as np
import pyarrow as pa

from bench import flow_page
from bench.flow_contestant import OURS, STREAMS
from bench.flow_page import Line, goal_of, mark
from bench.flow_rows import ROWS
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


def test_an_audit_counts_what_is_twice_missing_and_wrong() -> None:
    keys = np.array([3, 7, 3, 3])

    def written(*pairs: tuple[int, int]) -> list[pa.Table]:
        names = texts(b"p", np.array([key for key, _ in pairs]), 7)
        return [pa.table({"key": names, "value": pa.array([b"%d" % seen for _, seen in pairs])})]

    assert audit(written((3, 1), (7, 1), (3, 2), (3, 3)), keys) == Audit(0, 0, 0)
    assert audit(written((3, 1), (3, 1), (7, 1), (3, 3)), keys) == Audit(1, 1, 0)
    assert audit(written((3, 1), (7, 1), (7, 2), (3, 2), (3, 3)), keys) == Audit(0, 0, 1)
