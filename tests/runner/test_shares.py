"""The cells of a flow in several processes: here several engines, which know of each other by the log alone."""

from collections.abc import Mapping
from time import monotonic
from uuid import uuid4

import pytest

from oncelog.client.door import LoopThread
from oncelog.flow import Flow
from oncelog.flow.errors import FlowFailed
from oncelog.flow.formats import Tenancy
from oncelog.runner.engine import Engine, Share
from oncelog.runner.run import Run
from tests.runner.flows import Billing, Owed

HALVES: tuple[Mapping[str, list[int]], ...] = (
    {"orders": [0], "{}-by-customer": [1]},
    {"orders": [1], "{}-by-customer": [0, 2]},
)


def sharing(
    flow: Flow, billing: Billing, half: int, *, attempt: int = 0, start: str = "", until_end: bool = True
) -> Run:
    cells = {stage.format(billing.name): each for stage, each in HALVES[half].items()}
    share = Share(cells, Tenancy(1, 0), start=start)
    return Run(Engine(flow, billing.properties, "run", until_end=until_end, share=share))


def test_two_processes_come_to_the_end_together(servers: str, topic: str) -> None:
    billing = Billing(topic, servers)
    billing.make_topics()
    billing.send(range(500))
    runs = [sharing(billing.flow(), billing, half) for half in (0, 1)]
    for run in runs:
        run.await_termination(60)
        assert not run.is_active
    billing.check(500)


def test_what_one_start_began_ends_when_the_register_says_so(servers: str, topic: str) -> None:
    billing = Billing(topic, servers)
    billing.make_topics()
    billing.send(range(50))
    start = uuid4().hex
    runs = [sharing(billing.flow(), billing, half, start=start, until_end=False) for half in (0, 1)]
    driver = Engine(billing.flow(), billing.properties, "run", until_end=False, share=Share({}, Tenancy(1, 0)))
    thread = LoopThread("driver")
    thread.run(driver.begin(thread.call_soon))
    began_s = monotonic()
    thread.run(driver.agreement.stop(start))
    for run in runs:
        assert run.await_termination(60)
    assert monotonic() - began_s < 10
    thread.run(driver.close())
    thread.stop()


def test_processes_that_share_by_a_group_take_over_from_one_that_leaves(servers: str, topic: str) -> None:
    billing = Billing(topic, servers)
    billing.make_topics()
    first = billing.flow().start(billing.properties, share=True)
    billing.send(range(200))
    second = billing.flow().start(billing.properties, share=True)
    billing.send(range(200, 400))
    first.stop()
    billing.send(range(400, 500))
    second.stop()
    assert first.exception() is None
    assert second.exception() is None
    billing.flow().run(billing.properties, share=True, until="end")
    billing.check(500)


def test_processes_that_share_by_a_group_come_to_the_end_together(servers: str, topic: str) -> None:
    billing = Billing(topic, servers)
    billing.make_topics()
    billing.send(range(300))
    runs = [billing.flow().start(billing.properties, share=True, until="end", run_id="noon") for _ in range(2)]
    for run in runs:
        run.await_termination(120)
        assert not run.is_active
    billing.check(300)


def test_a_member_whose_cell_cannot_go_on_ends_with_words_and_keeps_nothing_from_the_others(
    servers: str, topic: str
) -> None:
    """Up to an end, too, which the others cannot reach without that cell."""
    billing = Billing(topic, servers)
    billing.make_topics()
    billing.send(range(20))
    flow = Flow(topic, version="1")
    flow.read(billing.orders).map(lambda order: Owed(1 // (order.amount - 1))).write(billing.sums)
    for until in (None, "end"):
        run = flow.start(billing.properties, share=True, until=until)
        with pytest.raises(FlowFailed, match=r"ZeroDivisionError.*otherwise=Dead"):
            run.await_termination(60)
