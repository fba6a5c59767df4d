"""The cells of a flow in several processes: here several engines, which know of each other by the log alone."""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any
from uuid import uuid4

import pytest

from oncelog.client import Producer
from oncelog.client.door import Input, LoopThread, Requests
from oncelog.clock import SystemClock
from oncelog.embedded import Server
from oncelog.flow import Flow, Topic, json_of, text
from oncelog.flow.errors import FlowFailed
from oncelog.flow.formats import COMMIT, Tenancy
from oncelog.flow.program import Program
from oncelog.runner.agreeing import Agreed
from oncelog.runner.cell_sharing import SharingEngine
from oncelog.runner.cluster import Cluster
from oncelog.runner.engine import OUTRANKED, Engine
from oncelog.runner.layout import Layout
from oncelog.runner.progress import Progress
from oncelog.runner.run import Run
from oncelog.runner.share import JournalEnds, Share
from oncelog.slots.messages import Produce
from tests.runner.flows import Billing, Owed
from tests.waiting import until

HOUR_MS = 3_600_000
NOWHERE = {"bootstrap.servers": "nowhere:1"}
NO_ENDS: JournalEnds = {}
HALVES: tuple[Mapping[str, list[int]], ...] = (
    {"orders": [0], "{}-by-customer": [1]},
    {"orders": [1], "{}-by-customer": [0, 2]},
)


def sharing(
    flow: Flow, billing: Billing, half: int, *, attempt: int = 0, start: str = "", until_end: bool = True
) -> Run:
    cells = {stage.format(billing.name): each for stage, each in HALVES[half].items()}
    share = Share(cells, Tenancy(1, 0), start=start)
    return Run(Engine(flow.program, billing.properties, "run", until_end=until_end, share=share))


def test_two_processes_come_to_the_end_together(servers: str, topic: str) -> None:
    billing = Billing(topic, servers)
    billing.make_topics()
    billing.send(range(500))
    runs = [sharing(billing.flow(), billing, half) for half in (0, 1)]
    for run in runs:
        run.await_termination(60)
        assert not run.is_active
    billing.check(500)


def test_the_end_of_a_stage_elsewhere_is_its_goodbye_and_no_commit_before_it(
    own_server: Server, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Totals are sent behind the commit that holds them, and here only when the other process has looked for long."""
    billing = Billing(topic, own_server.bootstrap_servers)
    billing.make_topics()
    billing.send(range(100))
    totals = Topic(f"{topic}-totals", text, json_of(int), partitions=1)
    flow = Flow(topic, version="1")
    regrouped = flow.read(billing.orders, name="orders").sum("owed", of=lambda order: order.amount)
    regrouped.through(totals, key=lambda total: str(total)).map(lambda total: Owed(total)).write(billing.sums)
    looked, held = 0, 0
    looks, sends = Progress.look, Requests.send

    def looking(progress: Progress, *about: Any) -> None:
        nonlocal looked
        looked += 1
        looks(progress, *about)

    def sending(requests: Requests, request: Produce) -> None:
        nonlocal held
        if request.batches[0].topic == totals.name and not held:
            held = looked
        if held and looked < held + 20:
            asyncio.get_running_loop().call_later(0.01, sending, requests, request)
        else:
            sends(requests, request)

    monkeypatch.setattr("oncelog.runner.engine.LOOKS_EVERY_S", 0.01)
    monkeypatch.setattr(Progress, "look", looking)
    monkeypatch.setattr(Requests, "send", sending)
    cells: tuple[Mapping[str, list[int]], ...] = ({"orders": [0, 1]}, {totals.name: [0]})
    for run in [
        Run(Engine(flow.program, billing.properties, "run", until_end=True, share=Share(each, Tenancy(1, 0))))
        for each in cells
    ]:
        run.await_termination(60)
    assert held
    amounts = [billing.order(number).amount for number in range(100)]
    assert sum(owed.amount for _, owed in billing.written()) == sum(amounts)


def has_seen_commits(run: Run) -> bool:
    last = run.last_progress
    return last is not None and all(stage["commits"] for stage in last["stages"].values())


def test_the_next_try_of_a_run_goes_on_with_a_cell_that_stopped_and_with_all_behind_it(
    servers: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last stage has its process to itself, and begins before the others: what their journals said at the try
    before is no end of this one."""
    monkeypatch.setattr("oncelog.runner.engine.LOOKS_EVERY_S", 0.05)
    billing, bad = Billing(topic, servers), {8}
    billing.make_topics()
    flow = billing.in_a_row(bad)
    shares: list[dict[str, list[int]]] = [
        {"orders": [0, 1]},
        {billing.between.name: [0, 1, 2]},
        {billing.later.name: [0]},
    ]
    billing.send(range(7))
    flow.run(billing.properties, until="end", run_id="morning")
    billing.send(range(7, 100))

    def engine(cells: Mapping[str, list[int]], began: JournalEnds = NO_ENDS) -> Engine:
        share = Share(cells, Tenancy(SystemClock().now().wall_ms, 0), follows_all=True, began=began)
        return Engine(flow.program, billing.properties, "noon", until_end=True, share=share)

    watching = engine({})
    watch = Run(watching)
    first, *others = [Run(engine(cells, watching.began)) for cells in shares]
    for run in others:
        assert run.await_termination(60)
    with pytest.raises(FlowFailed, match="an order of 8"):
        first.await_termination(60)
    assert billing.count() < 100 and not watching.are_all_at_their_end
    watch.stop()

    bad.clear()
    watching = engine({})
    watch = Run(watching)
    last = Run(engine(shares[2], watching.began))
    until(lambda: has_seen_commits(last), "the commits of all stages")
    looks = len(last.recent_progress)
    until(lambda: len(last.recent_progress) >= looks + 10, "ten more looks")
    assert last.is_active
    for run in [*(Run(engine(cells, watching.began)) for cells in shares[:2]), last]:
        assert run.await_termination(60)
    until(lambda: watching.are_all_at_their_end, "all goodbyes")
    watch.stop()
    billing.check_amounts(100)


def test_processes_that_share_a_run_all_end_where_a_cell_stops_and_the_next_try_is_whole(
    servers: str, topic: str
) -> None:
    billing, bad = Billing(topic, servers), {8}
    billing.make_topics()
    billing.send(range(100))
    flow = billing.in_a_row(bad)
    for _ in range(2):
        runs = [flow.start(billing.properties, share=True, until="end", run_id="noon") for _ in range(2)]
        for run in runs:
            if bad:
                with pytest.raises(FlowFailed, match="an order of 8"):
                    run.await_termination(60)
            else:
                run.await_termination(60)
        bad.clear()
    billing.check_amounts(100)


class Once(set[int]):
    """What is in it is so until somebody has asked."""

    def __contains__(self, value: object) -> bool:
        if is_found := super().__contains__(value):
            self.clear()
        return is_found


def has_failed(run: Any) -> bool:
    try:
        assert run.await_termination(120)
    except FlowFailed:
        return True
    return False


def test_processes_that_share_a_run_end_it_though_a_cell_had_stopped_at_one_of_them(servers: str, topic: str) -> None:
    """Those that came to the end of what there was without that cell go on when another process has taken it."""
    billing = Billing(topic, servers)
    billing.make_topics()
    billing.send(range(100))
    flow = billing.in_a_row(Once({8}))
    runs = [flow.start(billing.properties, share=True, until="end", run_id="noon") for _ in range(3)]
    assert {has_failed(run) for run in runs} == {True, False}
    billing.check_amounts(100)


def test_members_take_over_from_a_process_whose_clock_was_an_hour_ahead(servers: str, topic: str) -> None:
    billing = Billing(topic, servers)
    billing.make_topics()
    every = {"orders": range(2), f"{topic}-by-customer": range(3)}
    share = Share(every, Tenancy(SystemClock().now().wall_ms + HOUR_MS, 0))
    ahead = Run(Engine(billing.flow().program, billing.properties, None, until_end=False, share=share))
    billing.send(range(20))
    billing.wait_for(20)
    ahead.stop()
    with pytest.raises(FlowFailed, match=r"a run that started later \(in 3\d\d\d s by this clock"):
        billing.flow().run(billing.properties)
    member = billing.flow().start(billing.properties, share=True)
    billing.send(range(20, 50))
    billing.wait_for(50)
    member.stop()
    billing.check(50)


def test_a_holder_without_input_ends_when_another_has_taken_over(
    servers: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oncelog.runner.engine.JOURNALS_EVERY_S", 0.05)
    billing = Billing(topic, servers)
    billing.make_topics()
    every = {"orders": range(2), f"{topic}-by-customer": range(3)}
    first, second = (
        Run(
            Engine(
                billing.flow().program, billing.properties, None, until_end=False, share=Share(every, Tenancy(start, 0))
            )
        )
        for start in (1, 2)
    )
    with pytest.raises(FlowFailed, match="was taken over by a run that started later"):
        first.await_termination(60)
    second.stop()


def test_what_one_start_began_ends_when_the_register_says_so(servers: str, topic: str) -> None:
    billing = Billing(topic, servers)
    billing.make_topics()
    billing.send(range(50))
    start = uuid4().hex
    runs = [sharing(billing.flow(), billing, half, start=start, until_end=False) for half in (0, 1)]
    driver = Engine(billing.flow().program, billing.properties, "run", until_end=False, share=Share({}, Tenancy(1, 0)))
    thread = LoopThread("driver")
    thread.run(driver.begin(thread.call_soon))
    thread.run(driver.agreement.stop(start))
    for run in runs:
        assert run.await_termination(60)
    thread.run(driver.close())
    thread.stop()


def test_the_commits_of_others_are_looked_for_from_the_end_of_their_journals(
    own_server: Server, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    billing = Billing(topic, own_server.bootstrap_servers)
    billing.make_topics()
    billing.send(range(100))
    billing.flow().run(billing.properties, until="end")
    monkeypatch.setattr("oncelog.runner.elsewhere.TAIL_RECORDS", 1)  # where goodbye stands, and no commit
    monkeypatch.setattr("oncelog.runner.elsewhere.TAIL_GROWTH", 2)
    read: list[int] = []
    reads = Cluster.read

    def reading(cluster: Cluster, partition: tuple[str, int], offset: int, *about: Any, **how: Any) -> Input:
        read.append(offset)
        return reads(cluster, partition, offset, *about, **how)

    monkeypatch.setattr(Cluster, "read", reading)
    share = Share({}, Tenancy(1, 0), follows_all=True)
    driver = Run(Engine(billing.flow().program, billing.properties, "noon", until_end=True, share=share))
    until(lambda: driver.last_progress is not None and driver.last_progress["stages"]["orders"]["commits"] > 0, "looks")
    driver.stop()
    assert read and min(read) > 0 and len(read) > 5, read
    last = driver.last_progress
    assert last is not None and all(stage["commits"] >= stage["cells"] for stage in last["stages"].values())


def test_a_foreign_record_in_a_journal_does_not_end_those_who_watch_it(
    own_server: Server, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    billing = Billing(topic, own_server.bootstrap_servers)
    billing.make_topics()
    billing.send(range(10))
    billing.flow().run(billing.properties, until="end")
    with Producer(billing.properties) as producer:
        producer.produce(f"oncelog.flow.{topic}.orders", key=COMMIT, value=b"no commit", partition=0)
    share = Share({}, Tenancy(1, 0), follows_all=True)
    driver = Run(Engine(billing.flow().program, billing.properties, "noon", until_end=True, share=share))
    until(lambda: driver.last_progress is not None and driver.last_progress["stages"]["orders"]["commits"] > 0, "looks")
    until(lambda: "of its journal is passed over" in caplog.text, "the record is told of")
    driver.stop()


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
    billing.send([300])
    billing.flow().run(billing.properties, share=True, until="end", run_id="noon")
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
    for ends in (None, "end"):
        run = flow.start(billing.properties, share=True, until=ends)
        with pytest.raises(FlowFailed, match=r"ZeroDivisionError.*otherwise=Dead"):
            run.await_termination(60)


class FakeEngine:
    """Of cells that it holds until it is told to stop; without any, it watches."""

    agreed = Agreed("flow", "run", None, is_finished=False, starts={})
    brokers = outranked_by = None
    are_all_at_their_end = False
    began = NO_ENDS
    goes_on = False

    def __init__(
        self, gate: asyncio.Event, every: "list[FakeEngine]", program: Program, *about: Any, share: Share, **how: Any
    ) -> None:
        self.gate, self.cells, self.layout = gate, share.cells, Layout(program)
        self.done = asyncio.Event()
        self.is_closed = False
        self.failure: FlowFailed | None = None
        if share.cells:
            every.append(self)

    async def begin(self, wake: object) -> None:
        await self.gate.wait()

    def stop(self) -> None:
        self.done.set()

    async def close(self) -> None:
        self.is_closed = True


class FakeGroup:
    def __init__(self, *about: object) -> None:
        """It says nothing by itself."""

    def subscribe(self, topics: object) -> None:
        pass

    def polled(self) -> None:
        pass

    async def leave(self) -> None:
        pass


def test_what_the_group_takes_back_while_it_is_taken_again_is_let_go(
    topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member lost its cells to a process whose clock is ahead. While it takes them again the group calls."""
    monkeypatch.setattr("oncelog.runner.cell_sharing.AGAIN_S", 0.0)
    monkeypatch.setattr("oncelog.runner.cell_sharing.Group", FakeGroup)

    async def scenario() -> None:
        gate, engines = asyncio.Event(), list[FakeEngine]()
        for room in ("cell_sharing", "run_watching"):
            monkeypatch.setattr(f"oncelog.runner.{room}.Engine", partial(FakeEngine, gate, engines))
        gate.set()
        member = SharingEngine(Billing(topic, "nowhere:1").flow().program, NOWHERE, None, until_end=False)
        await member.begin(lambda work: None)
        journal = f"oncelog.flow.{topic}.orders"
        await member.assigned(frozenset({(journal, 0), (journal, 1)}))
        gate.clear()
        engines[0].failure = FlowFailed(f"orders, cell 1 {OUTRANKED}")
        engines[0].done.set()
        while len(engines) < 2:
            await asyncio.sleep(0)
        revoked = asyncio.ensure_future(member.revoked(frozenset({(journal, 1)}), is_lost=False))
        await asyncio.sleep(0)
        gate.set()
        await revoked
        assert all(each.is_closed for each in engines)
        await member.assigned(frozenset())
        assert [each.cells for each in engines if not each.is_closed] == [{"orders": [0]}]
        await member.close()

    asyncio.run(scenario())
