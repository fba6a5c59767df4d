"""A flow at work: begun, looked at, stopped."""

import re
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest

from oncelog.chaos.life import Life
from oncelog.client import Consumer, TopicPartition
from oncelog.client.door import Input
from oncelog.clock import ManualClock, Now
from oncelog.embedded import Server
from oncelog.flow import Cell, Dead, Flow, FlowFailed
from oncelog.flow.formats import GOODBYE
from oncelog.flow.messages import Action
from oncelog.runner import engine
from oncelog.runner.progress import Progress
from oncelog.runner.turns import Turns
from tests.logged import messages
from tests.repo.tree import ROOT
from tests.runner.flows import Billing, Order, Owed, everything
from tests.waiting import until

STOPS_WITHIN_S = 60.0  # on a busy machine; that it hunts for nothing is shown by what it leaves
HANGS_S = 20.0  # well before a request is given up
PROMISED_S = 3.0  # docs/flow.md


@pytest.fixture
def billing(own_server: Server, topic: str) -> Billing:
    found = Billing(topic, own_server.bootstrap_servers)
    found.make_topics()
    return found


def test_a_run_works_until_it_is_stopped_and_another_one_goes_on(billing: Billing) -> None:
    run = billing.flow().start(billing.properties)
    billing.send(range(50))
    billing.wait_for(50)
    assert run.is_active and run.exception() is None and run.name == billing.name
    assert run.await_termination(0.01) is False
    run.stop()
    assert not run.is_active and run.await_termination(1) is True
    billing.send(range(50, 80))
    another = billing.flow().start(billing.properties)
    billing.wait_for(80)
    another.stop()
    billing.check(80)
    assert another.id == run.id and another.run_id != run.run_id


def test_the_log_names_the_run_that_begins(billing: Billing, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "oncelog.flow"):
        billing.flow().run(billing.properties, until="end", run_id="noon")
    assert messages(caplog, "oncelog.flow")[0] == f"flow {billing.name} begins: run noon"


def test_progress_says_what_was_taken_and_what_is_left(billing: Billing) -> None:
    billing.send(range(30))
    run = billing.flow().start(billing.properties)
    billing.wait_for(30)
    run.stop()
    last = run.last_progress
    assert last is not None and last["name"] == billing.name and last["id"] == run.id
    stage = last["stages"]["orders"]
    assert (stage["cells"], stage["records"], stage["lives"]) == (2, 30, 2)
    assert last["stages"][billing.between.name]["state"] == billing.customers
    assert sum(each["numInputRows"] for each in run.recent_progress) == 60
    assert run.status["isTriggerActive"] is False


def test_a_line_tells_rate_lag_state_and_commits(billing: Billing) -> None:
    billing.send(range(30))
    run = billing.flow().start(billing.properties)
    stages = rf"orders lag 0, 0 keys, commit [1-9]\d*; {billing.between.name} lag 0, 7 keys, commit [1-9]\d*"
    line = rf"flow {billing.name}: [\d,]+ records/s; {stages}"
    until(lambda: re.fullmatch(line, run.status["message"]), "a look behind the last commit")
    run.stop()


def test_a_log_gets_such_a_line_once_a_minute(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "oncelog.flow")
    clock = ManualClock()
    monkeypatch.setattr("oncelog.runner.progress.monotonic_s", lambda: clock.now().monotonic_ms / 1_000)
    progress = Progress("f")
    progress.began("id", "noon")
    for _ in range(150):
        clock.advance(1_000)
        progress.look({})
    assert messages(caplog, "oncelog.flow") == ["flow f begins: run noon", *2 * ["flow f: 0 records/s; "]]


def test_a_terminal_has_one_line_that_is_written_over(billing: Billing, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()

    def when_it_is_shown(order: Order) -> Owed:
        until(terminal.getvalue, "a line")
        return Owed(order.amount)

    flow = Flow(billing.name, version="1")
    flow.read(billing.orders).map(when_it_is_shown).write(billing.sums)
    billing.send(range(1))
    monkeypatch.setattr(sys, "stderr", terminal)
    flow.run(billing.properties, until="end")
    said = terminal.getvalue()
    assert said.startswith(f"\r\x1b[Kflow {billing.name} ")
    assert said.count("\n") == 1 and said.endswith("\n")
    monkeypatch.setattr(sys, "stderr", nowhere := StringIO())
    flow.run(billing.properties, until="end")
    assert nowhere.getvalue() == ""


def test_positions_are_shown_to_groups(billing: Billing) -> None:
    billing.send(range(40))
    billing.flow().run(billing.properties, until="end")
    with Consumer(billing.properties | {"group.id": f"{billing.name}.orders"}) as consumer:
        found = consumer.committed([TopicPartition(billing.orders.name, index) for index in range(2)], timeout=60)
    assert sum(each.offset for each in found) == 40


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.thorough)])
def test_a_signal_commits_and_says_goodbye(billing: Billing, tmp_path: Path, number: signal.Signals) -> None:
    life = Life("flow", tmp_path / "flow.log")
    life.launch([sys.executable, "-m", "tests.runner.worker", billing.servers, billing.name], cwd=ROOT)
    try:
        billing.send(range(20))
        billing.wait_for(20)
        life.process.send_signal(number)
        assert life.has_ended_within(STOPS_WITHIN_S)
    finally:
        life.kill()
    assert life.process.returncode == 0, life.log_text()
    assert "it has ended" in life.log_text()
    (left,) = re.findall(r"and left (\d+) objects behind", life.log_text())
    assert int(left) > 10_000, "the process looks for garbage in all that it has loaded before it ends"
    journal = everything(billing.servers, f"oncelog.flow.{billing.name}.orders")
    assert [key for key, _ in journal].count(GOODBYE) == billing.orders.partitions


def test_what_arrives_is_decoded_in_the_turns_of_the_cells(billing: Billing, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two of them the loop sees a stop: a hundred cells whose input arrives at once do not keep it away."""
    turn: list[Callable[[], None]] = []
    in_turn: list[bool] = []
    add, take = Turns.add, Input.take

    def added(turns: Turns, work: Callable[[], None]) -> None:
        def made() -> None:
            turn.append(work)
            try:
                work()
            finally:
                turn.pop()

        add(turns, made)

    def taken(one: Input, most: int) -> object:
        in_turn.append(bool(turn))
        return take(one, most)

    monkeypatch.setattr(Turns, "add", added)
    monkeypatch.setattr(Input, "take", taken)
    run = billing.flow().start(billing.properties)
    billing.send(range(40))
    billing.wait_for(40)
    run.stop()
    assert in_turn and all(in_turn)


def test_a_record_that_cannot_be_worked_on_stops_its_cell_and_no_other(billing: Billing) -> None:
    bad = next(number for number in range(100) if billing.orders.partition_of(b"o%d" % number) == 0)
    others = [number for number in range(100) if billing.orders.partition_of(b"o%d" % number) == 1]
    run = billing.flow().start(billing.properties)
    billing.send_raw(f"o{bad}", b"not json")
    billing.send(others)
    billing.wait_for(len(others))
    assert run.is_active
    failure = run.exception()
    run.stop()
    assert failure is not None
    assert f"{billing.name}, stage orders, cell 0: the record at offset 0 of {billing.orders.name}" in str(failure)
    with pytest.raises(FlowFailed, match="stage orders, cell 0"):
        run.await_termination()


def test_a_cell_that_fails_by_a_fault_of_ours_ends_with_words(
    billing: Billing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would stand still, and the flow with it: without an end, and nobody would hear of it."""

    def fails(cell: Cell, now: Now) -> list[Action]:
        raise MemoryError("no room")

    monkeypatch.setattr(Cell, "actions", fails)
    run = billing.flow().start(billing.properties, until="end")
    with pytest.raises(FlowFailed, match="stage orders, cell 0: MemoryError: no room"):
        run.await_termination(60)


def test_outputs_and_dead_letters_may_be_added_to_a_flow(billing: Billing) -> None:
    """As the message of a record that stops its cell advises."""
    bad = next(number for number in range(100) if billing.orders.partition_of(b"o%d" % number) == 0)
    billing.send(range(20))
    billing.send_raw(f"o{bad}", b"not json")
    with pytest.raises(FlowFailed, match="otherwise=Dead"):
        billing.flow().run(billing.properties, until="end")
    dead, audit = Dead(f"{billing.name}-dead"), replace(billing.sums, name=f"{billing.name}-audit")
    for topic in (dead.topic, audit):
        billing.make_topics(topic)
    more = billing.flow(otherwise=dead, also=audit)
    more.run(billing.properties, until="end")
    billing.send(range(20, 30))
    more.run(billing.properties, until="end")
    billing.check(30)
    assert [value for _, value in everything(billing.servers, dead.name)] == [b"not json"]
    assert 10 <= len(everything(billing.servers, audit.name)) <= 30, "what was committed before is not written again"
    with pytest.raises(FlowFailed, match="which is not among its outputs now"):
        billing.flow().run(billing.properties, until="end")


def test_one_with_other_code_says_what_it_waits_for(billing: Billing, caplog: pytest.LogCaptureFixture) -> None:
    old = billing.flow().start(billing.properties)
    billing.send(range(20))
    billing.wait_for(20)  # else the later one has all cells at once
    with ThreadPoolExecutor(1) as pool:
        new = pool.submit(billing.flow(version="2").start, billing.properties)
        told = until(lambda: [each for each in caplog.messages if "another version of the code" in each], "a word")
        old.stop()
        new.result(30).stop()
    assert len(told) == 1 and told[0].startswith(f"flow {billing.name}: 5 of 5 cells wait up to "), told


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_run_whose_loop_is_stopped_under_it_has_failed(billing: Billing) -> None:
    def interrupted(order: Order) -> Owed:
        raise KeyboardInterrupt

    billing.send([1])
    flow = Flow(billing.name, version="1")
    flow.read(billing.orders).map(interrupted).write(billing.sums)
    with pytest.raises(FlowFailed, match="its loop was stopped under it"):
        flow.run(billing.properties, until="end")


def test_the_start_that_comes_later_has_the_flow(billing: Billing) -> None:
    first = billing.flow().start(billing.properties)
    billing.send(range(20))
    billing.wait_for(20)
    second = billing.flow().start(billing.properties)
    billing.send(range(20, 50))
    until(lambda: not first.is_active, "the first run's end")
    with pytest.raises(FlowFailed, match="a run that started later"):
        first.await_termination()
    billing.wait_for(50)
    second.stop()
    billing.check(50)


@pytest.mark.parametrize("share", [False, True])
def test_a_stop_waits_for_no_broker_that_hangs(topic: str, monkeypatch: pytest.MonkeyPatch, share: bool) -> None:
    """The server's loop is held: connections stand, and nothing is said on them."""
    assert engine.STOP_S < engine.ENDS_S < PROMISED_S
    monkeypatch.setattr(engine, "STOP_S", 0.1)
    monkeypatch.setattr(engine, "ENDS_S", 0.2)
    goes_on = threading.Event()
    with Server() as server, ThreadPoolExecutor(2) as pool:
        billing = Billing(topic, server.bootstrap_servers)
        billing.make_topics()
        billing.send(range(20))
        run = billing.flow().start(billing.properties, share=share)
        try:
            billing.wait_for(20)
            pool.submit(server.call, goes_on.wait)
            pool.submit(run.stop).result(HANGS_S)
        finally:
            goes_on.set()
    assert not run.is_active
