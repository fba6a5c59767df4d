"""Flows, as the page gets them."""

import pytest

from oncelog.console import flows
from oncelog.console.flows import flow_view, flows_view
from oncelog.console.limits import MOST_FLOW_CELLS, MOST_FLOWS
from oncelog.console.query import Query
from oncelog.security.operations import Operation, Resource
from oncelog.server.access import EveryRight
from tests.cli.running import Oncelog
from tests.console.conftest import Shown
from tests.raw import Rec
from tests.runner.flows import Billing


def billing(shown: Shown, name: str, partitions: int = 2) -> Billing:
    found = Billing(name, shown.server.bootstrap_servers, partitions=partitions)
    found.make_topics()
    return found


class AllBut(EveryRight):
    def __init__(self, hidden: str) -> None:
        self._hidden = hidden

    def may(self, operation: Operation, resource: Resource, name: str) -> bool:
        return name != self._hidden


def test_a_flow_with_its_cells(shown: Shown) -> None:
    own = billing(shown, "told")
    own.send(range(40))
    own.flow().run(own.properties, until="end")
    own.send(range(40, 45))
    (row,) = shown.view(flows_view, search="told")["flows"]
    assert (row["flow"], row["stages"], row["cells_in_all"], row["runs"], row["open_runs"]) == ("told", 2, 5, 1, 0)
    assert (row["order"], row["trouble"], row["code"]) == ("run", None, own.flow().program.code)
    found = shown.view(flow_view, topic=row["topic"])
    first, last = (
        [each for each in found["cells"] if each["stage"] == stage] for stage in ("orders", own.between.name)
    )
    assert sum(each["lag"] for cell in first for each in cell["inputs"]) == 5
    hidden = first[0]["inputs"][0]["topic"]
    told = shown.run(flow_view(shown.server.broker, Query({"topic": row["topic"]}, AllBut(hidden))))
    assert {each["lag"] for cell in told["cells"] for each in cell["inputs"] if each["topic"] == hidden} == {None}
    assert sum(cell["written"] for cell in first) == sum(cell["written"] for cell in last) == 40
    assert all(cell["has_left"] and cell["trouble"] is None and cell["commit"] for cell in first)
    assert all(cell["code"] == own.flow().program.code and cell["committed_ms"] > 0 for cell in first)


def test_one_that_is_at_work_and_paused(shown: Shown) -> None:
    own = billing(shown, "working")
    run = own.flow().start(own.properties)
    try:
        own.send(range(10))
        own.wait_for(10)
        Oncelog(own.servers)("flow pause", own.name)
        found = shown.view(flow_view, topic="oncelog.flow.working")
    finally:
        run.stop()
    assert found["order"] == "pause"
    assert all(not cell["has_left"] and cell["until_ms"] > 0 for cell in found["cells"])


def test_cells_and_flows_come_in_pages(shown: Shown) -> None:
    shown.stage.topics([f"oncelog.flow.paged-{number:03}" for number in range(MOST_FLOWS + 2)])
    assert len(shown.view(flows_view, search="paged-")["flows"]) == MOST_FLOWS
    assert len(shown.view(flows_view, search="paged-", start=MOST_FLOWS)["flows"]) == 2
    own = billing(shown, "wide", MOST_FLOW_CELLS + 3)
    own.flow().run(own.properties, until="end")
    first = shown.view(flow_view, topic="oncelog.flow.wide")
    last = shown.view(flow_view, topic="oncelog.flow.wide", start=MOST_FLOW_CELLS)
    assert (first["found"], len(first["cells"]), len(last["cells"])) == (MOST_FLOW_CELLS + 6, MOST_FLOW_CELLS, 6)
    assert first["cells"][-1]["cell"] == MOST_FLOW_CELLS - 1 and last["cells"][0]["cell"] == MOST_FLOW_CELLS


def test_what_no_flow_has_written_is_told_as_such(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    shown.stage.topic("oncelog.flow.damaged")
    shown.stage.send("oncelog.flow.damaged", [Rec(b"no json", b"f1")])
    assert "something else writes to this topic" in shown.view(flow_view, topic="oncelog.flow.damaged")["trouble"]
    shown.stage.topic("oncelog.flow.deep")
    shown.stage.send("oncelog.flow.deep", [Rec(b'{"x":' + b"[" * 10_000, b"f1")])
    assert "something else writes to this topic" in shown.view(flow_view, topic="oncelog.flow.deep")["trouble"]
    monkeypatch.setattr(flows, "MOST_REGISTER_BATCHES", 1)
    shown.stage.send("oncelog.flow.damaged", [Rec(b"{}", b"x")])
    assert "more than is read for this page" in shown.view(flow_view, topic="oncelog.flow.damaged")["trouble"]
