"""What users write: typed, run in memory, crashed everywhere."""

import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec
import pytest

from oncelog.flow import Context, Dead, Flow, FlowRefused, Stopped, Topic, json_of, msgpack_of, one_of, optional, text
from oncelog.runner.layout import Layout
from tests.repo.tree import ROOT

NOON_MS = 1_700_000_000_000


@dataclass(frozen=True)
class Order:
    customer: str
    amount: int


@dataclass(frozen=True)
class Payment:
    customer: str
    amount: int


@dataclass(frozen=True)
class Owed:
    amount: int = 0


@dataclass(frozen=True)
class Balance:
    owed: int
    at_ms: int


events = Topic("events", text, one_of(Order, Payment), partitions=2)
ledger = Topic("ledger", text, one_of(Order, Payment), partitions=3)
ledger_of_orders = Topic("ledger-of-orders", text, json_of(Order), partitions=3)
balances = Topic("balances", text, json_of(Balance), partitions=2)


def book(owed: Owed, event: Order | Payment, at: Context[str]) -> tuple[Owed | None, list[Balance]]:
    amount = owed.amount + (event.amount if isinstance(event, Order) else -event.amount)
    return (Owed(amount) if amount else None), [Balance(amount, at.time_ms)]


def billing() -> Flow:
    flow = Flow("billing", version="1")
    flow.read(events).through(ledger, key=lambda event: event.customer).step("owed", Owed, book).write(balances)
    return flow


SENT = [
    events.sent("o1", Order("anna", 5), NOON_MS),
    events.sent("o2", Order("bert", 7), NOON_MS + 1),
    events.sent("o3", Order("anna", 2), NOON_MS + 2),
    events.sent("p1", Payment("anna", 7), NOON_MS + 3),
    events.sent("o4", Order("anna", 1), NOON_MS + 4),
]


def test_a_flow_keeps_state_by_key_behind_a_change_of_partition() -> None:
    written = billing().simulate(SENT)
    final = {}
    for customer, balance in written[balances]:
        final[customer] = balance.owed
    assert final["bert"] == 7
    assert sorted(balance.at_ms for _, balance in written[balances]) == [NOON_MS + at for at in range(5)]
    assert len(written[ledger]) == 5
    assert sorted(customer for customer, _ in written[ledger]) == ["anna"] * 4 + ["bert"]


def test_one_key_keeps_its_order() -> None:
    one = Topic("one", text, json_of(Order))
    flow = Flow("f", version="1")
    flow.read(one).filter(lambda order: order.amount > 0).step("owed", Owed, book).write(balances)
    sent = [one.sent("anna", Order("anna", amount)) for amount in (1, 0, 2, 3)]
    assert [balance.owed for _, balance in flow.simulate(sent)[balances]] == [1, 3, 6]


def test_a_crash_at_each_step_changes_nothing() -> None:
    flow = billing()
    crashed = flow.simulate(SENT, crashes=True)
    assert crashed.steps > 200
    assert crashed[balances] == flow.simulate(SENT)[balances]


def test_a_function_that_does_not_repeat_is_found() -> None:
    calls: list[int] = []

    def counts_calls(owed: Owed, event: Order, at: Context[str]) -> tuple[Owed | None, list[Balance]]:
        calls.append(1)
        return owed, [Balance(len(calls), 0)]

    orders = Topic("orders", text, json_of(Order))
    flow = Flow("f", version="1")
    flow.read(orders).step("owed", Owed, counts_calls).write(balances)
    with pytest.raises(Stopped, match="slot 0 holds anna"):
        flow.simulate([orders.sent("anna", Order("anna", 1))], crashes=True)


def test_what_cannot_be_stepped_over_is_named() -> None:
    orders = Topic("orders", text, json_of(Order))
    flow = Flow("f", version="1")
    flow.read(orders).map(lambda order: Balance(10 // order.amount, 0)).write(balances)
    with pytest.raises(Stopped, match="f, stage orders, cell 0: the record at offset 1 of orders: ZeroDivisionError"):
        flow.simulate([orders.sent("a", Order("a", 1)), orders.sent("a", Order("a", 0))])


def test_what_is_merged_comes_in_the_order_of_time_with_a_crash_at_each_step_too() -> None:
    orders, payments = Topic("orders", text, json_of(Order)), Topic("payments", text, json_of(Payment))
    flow = Flow("f", version="1")
    both = flow.read(orders).filter(lambda order: order.amount > 0).merge("all", flow.read(payments))
    both.step("owed", Owed, book).write(balances)
    sent = [orders.sent("anna", Order("anna", amount), at) for amount, at in ((5, 1), (0, 2), (3, 30))]
    sent += [payments.sent("anna", Payment("anna", amount), at) for amount, at in ((5, 10), (1, 20), (2, 40))]
    done = flow.simulate(sent, crashes=True)
    assert [balance for _, balance in done[balances]] == [
        Balance(5, 1), Balance(0, 10), Balance(-1, 20), Balance(2, 30), Balance(0, 40)
    ]  # fmt: skip


def test_numbers_of_partitions_that_do_not_fit_are_refused() -> None:
    flow = Flow("f", version="1")
    with pytest.raises(ValueError, match="all merges topics of 2 and 3 partitions"):
        flow.read(events).merge("all", flow.read(ledger))


def test_two_parts_with_one_name_are_refused() -> None:
    flow = Flow("f", version="1")
    flow.read(events)
    with pytest.raises(ValueError, match="two parts with the name events"):
        flow.read(events)


def test_other_codecs_are_other_code() -> None:
    one, other = billing(), Flow("billing", version="1")
    other.read(events).write(Topic("out", text, one_of(Order, Payment)))
    assert one.program.code == billing().program.code != other.program.code


def test_a_flow_can_be_sent_to_another_process() -> None:
    """Functions that stand in the user's own program, too, as Spark sends them."""
    cloudpickle = pytest.importorskip("pyspark.cloudpickle")
    flow = billing()
    flow.read(balances).filter(lambda balance: balance.owed > 1).window(
        "most", Owed, lambda most, balance: Owed(max(most.amount, balance.owed)), size_ms=10
    ).map(lambda window: Balance(window.state.amount, window.end_ms)).write(Topic("most", text, json_of(Balance)))
    there = pickle.loads(cloudpickle.dumps(flow))
    assert there.program.code == flow.program.code
    assert there.simulate(SENT)[balances] == flow.simulate(SENT)[balances]


def test_records_without_keys_are_taken_where_the_key_may_be_null() -> None:
    keyless = Topic("keyless", optional(text), json_of(Order), partitions=2)
    copied = Topic("copied", optional(text), json_of(Order), partitions=2)
    flow = Flow("f", version="1")
    orders = flow.read(keyless)
    orders.write(copied)
    orders.through(ledger_of_orders, key=lambda order: order.customer).step("owed", Owed, book).write(balances)
    sent = [keyless.sent(None, Order("anna", amount), amount) for amount in (1, 2)]
    written = flow.simulate(sent, crashes=True)
    assert [balance.owed for _, balance in written[balances]] == [1, 3]
    assert len(written[copied]) == 2


WRONG = """
from oncelog.flow import Flow
from tests.flow.test_join import customers, orders, rank, rank_all, ranked
from tests.flow.test_program import Owed, balances, book, events, ledger

flow = Flow("f", version="1")
flow.read(events).step("owed", Owed, book).write(balances)
flow.read(events, name="2").step("owed2", Owed, book).write(ledger)  # another value
flow.read(events, name="3").write(balances)  # without the step
flow.read(events, name="4").through(ledger, key=lambda event: event.custmer).step("owed4", Owed, book).write(balances)
flow.read(balances).step("owed5", Owed, book).write(balances)  # takes other records
flow.read(ledger).through(ledger, key=lambda event: event.amount)  # another key
flow.read(events, name="5").call(lambda event, at: event.amount).write(balances)  # another value
flow.read(events, name="6").merge("7", flow.read(balances, name="8")).write(balances)  # one of two
table = flow.table(customers)
flow.read(orders, name="9").join(table, rank).write(ranked)
flow.read(orders, name="10").join(table, rank_all, left=True).write(ranked)
flow.read(orders, name="11").join(table, rank, left=True).write(ranked)  # there may be no row
flow.read(orders, name="12").join(table, rank).write(balances)  # another value
flow.read(balances, name="13").join(table, rank).write(ranked)  # other records
flow.read(orders, name="14").join(flow.table(ledger), rank).write(ranked)  # other rows
flow.read(orders, name="15").join(customers, rank).write(ranked)  # a topic is no table
"""


def test_mypy_finds_a_wrong_write_and_a_misspelt_field(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.py"
    wrong.write_text(WRONG)
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", str(wrong)]
    checked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    found = [line.partition("wrong.py:")[2] for line in checked.stdout.splitlines() if "wrong.py:" in line]
    lines = {int(each.partition(":")[0]) for each in found if " error: " in each}
    assert lines == {8, 9, 10, 11, 12, 13, 14, 18, 19, 20, 21, 22}, checked.stdout + checked.stderr
    assert any('has no attribute "custmer"' in each for each in found)


def test_a_state_that_cannot_begin_is_refused_where_it_is_written_down() -> None:
    """Else each record would go to the dead letters, one after the other."""
    read = Flow("billing", version="1", otherwise=Dead("dead")).read(Topic("orders", text, json_of(Order)))
    refused = partial(pytest.raises, ValueError, match=r"begins as Order\(\), which raises .* a default")
    with refused():
        read.step("last", Order, lambda last, order, at: (order, []))
    with refused():
        read.window("hours", Order, lambda last, order: order, size_ms=1)


def test_what_was_simulated_shows_itself_and_its_dead_letters() -> None:
    def refuses(order: Order) -> Order:
        raise ValueError("no")

    dead, one = Dead("dead"), Topic("one", text, json_of(Order))
    flow = Flow("refusing", version="1", otherwise=dead)
    flow.read(one).map(refuses).write(Topic("two", text, json_of(Order)))
    found = flow.simulate([one.sent("o1", Order("anna", 1))])
    assert repr(found) == "<Simulated: records in dead: 1, one: 1, two: 0>"
    assert found[dead] == [(b"o1", one.value.encode(Order("anna", 1)))]


def flow_with(how: Callable[[Flow], object]) -> Flow:
    flow = billing()
    how(flow)
    return flow


@pytest.mark.parametrize(
    "how",
    [
        lambda flow: flow.read(ledger, name="x"),
        lambda flow: flow.read(ledger, name="x").map(str),
        lambda flow: flow.read(ledger, name="x").count("n"),
        lambda flow: flow.read(ledger, name="x").window("w", Owed, lambda owed, _: owed, size_ms=1),
        lambda flow: flow.read(ledger, name="x").merge("both", flow.read(ledger, name="y")),
    ],
    ids=["read", "map", "count", "window", "merge"],
)
def test_a_stream_that_is_written_nowhere_is_refused_with_its_line(how: Callable[[Flow], object]) -> None:
    line = how.__code__.co_firstlineno
    words = rf"flow billing: nothing is written of the stream that is made in .*test_program.py, line {line}\. End it"
    with pytest.raises(ValueError, match=words):
        flow_with(how).simulate(SENT)
    with pytest.raises(FlowRefused, match=words):
        Layout(flow_with(how).program)


def test_a_stream_may_end_where_it_is_passed_through_a_topic_or_taken_by_another() -> None:
    flow = billing()
    orders = flow.read(ledger, name="x").only(Order)
    orders.merge("both", flow.read(ledger_of_orders)).map(lambda order: Balance(order.amount, 0)).write(balances)
    assert not flow.program.loose
    passed = Flow("f", version="1")
    passed.read(events).through(ledger, key=lambda event: event.customer)
    assert len(passed.simulate(SENT)[ledger]) == len(SENT)


def test_messagepack_is_written_and_read_of_the_same_types(tmp_path: Path) -> None:
    packed, counts = Topic("packed", text, msgpack_of(Order)), Topic("counts", text, msgpack_of(int))
    flow = Flow("f", version="1")
    read = flow.read(packed)
    read.count("n").write(counts)
    read.files(str(tmp_path), every_ms=0)
    sent = packed.sent("a", Order("anna", 5))
    assert sent.value == msgspec.msgpack.encode({"customer": "anna", "amount": 5})
    done = flow.simulate([sent, sent], crashes=True)
    assert done[counts][-1] == ("a", 2)
    assert [row["customer"] for rows in done.files[str(tmp_path)].values() for row in rows] == ["anna", "anna"]
    assert pickle.loads(pickle.dumps(packed)).value.decode(sent.value) == Order("anna", 5)
    joining, out = Flow("joining", version="1"), Topic("out", text, json_of(int))
    joining.read(counts).join(joining.table(packed), lambda number, order: number + order.amount).write(out)
    done = joining.simulate([sent, counts.sent("a", 1, at_ms=1), counts.sent("a", 2, at_ms=2)], crashes="everywhere")
    assert done[out] == [("a", 6), ("a", 7)], "also where the table was kept and read again"
    with pytest.raises(ValueError, match="there is no MessagePack of it"):
        msgpack_of(object)


@pytest.mark.parametrize(("signalled", "until", "code"), [(15, "end", 143), (15, None, None), (None, "end", None)])
def test_a_run_that_a_signal_keeps_from_its_end_is_not_taken_for_finished(
    monkeypatch: pytest.MonkeyPatch, signalled: int | None, until: str | None, code: int | None
) -> None:
    class Stopped:
        def work(self) -> int | None:
            return signalled

    monkeypatch.setattr(Flow, "start", lambda *about, **more: Stopped())
    if code is None:
        billing().run({}, until=until)
        return
    with pytest.raises(SystemExit) as ended:
        billing().run({}, until=until)
    assert ended.value.code == code


def wait(owed: Owed, order: Order, at: Context[str]) -> tuple[Owed, list[Order]]:
    at.timer(at.time_ms + 1)
    return Owed(order.amount), []


def test_what_would_not_fit_a_commit_is_no_version() -> None:
    with pytest.raises(ValueError, match="its version has 201 letters, and 200 are the most"):
        Flow("f", version=201 * "7")
