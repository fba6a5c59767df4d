"""Streams that are joined with a table: by the row that stood there in the order of the plan, also after a crash, and
where compaction has taken that row meanwhile."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pytest

from oncelog.clock import Now
from oncelog.flow import Context, Dead, Flow, Stopped, Topic, json_of, raw, text
from oncelog.flow.cell_inputs import CellInputs
from oncelog.flow.description import Input, Limits
from oncelog.flow.formats import Plan, Range
from oncelog.flow.journal import Journal
from oncelog.flow.messages import EMPTY, Records, Unworkable
from oncelog.flow.operations.join import SAMPLED, TableRows
from oncelog.flow.planning import LOADED_MS, Source, plan_of
from oncelog.flow.simulation import engine
from oncelog.flow.simulation.duties import LIMITS
from oncelog.flow.topics import Sent
from tests.depth import scaled

SEEDS = range(scaled(5))


@dataclass(frozen=True)
class Order:
    amount: int


@dataclass(frozen=True)
class Customer:
    rank: str


@dataclass(frozen=True)
class Ranked:
    amount: int
    rank: str = ""


@dataclass(frozen=True)
class Padded:
    rank: str = ""


@dataclass(frozen=True)
class Sum:
    amount: int = 0


orders = Topic("orders", text, json_of(Order), partitions=2)
customers = Topic("customers", text, json_of(Customer), partitions=2)
ranked = Topic("ranked", text, json_of(Ranked), partitions=2)
dead = Dead("dead")


def rank(order: Order, customer: Customer) -> Ranked:
    return Ranked(order.amount, customer.rank)


def rank_all(order: Order, customer: Customer | None) -> Ranked:
    return Ranked(order.amount, customer.rank if customer else "none")


def ranking(most: int = 1_000, otherwise: Dead | None = None) -> Flow:
    flow = Flow("f", version="1")
    flow.read(orders).join(flow.table(customers, most=most, otherwise=otherwise), rank_all, left=True).write(ranked)
    return flow


SENT = [
    customers.sent("anna", Customer("silver"), 0),
    orders.sent("anna", Order(1), 10),
    orders.sent("bert", Order(2), 15),
    customers.sent("anna", Customer("gold"), 20),
    customers.sent("bert", Customer("silver"), 25),
    orders.sent("anna", Order(3), 30),
    customers.tombstone("anna", 40),
    orders.sent("anna", Order(4), 50),
    orders.sent("bert", Order(5), 60),
]
ANNA = [Ranked(1, "silver"), Ranked(3, "gold"), Ranked(4, "none")]
BERT = [Ranked(2, "none"), Ranked(5, "silver")]


def of(name: str, found: list[tuple[str, Ranked]]) -> list[Ranked]:
    return [each for key, each in found if key == name]


# --- what a join gives


def test_a_record_is_joined_with_the_row_of_its_time_and_without_one_only_on_the_left() -> None:
    done = ranking().simulate(SENT, crashes=True)[ranked]
    assert (of("anna", done), of("bert", done)) == (ANNA, BERT)
    flow = Flow("f", version="1")
    flow.read(orders).join(flow.table(customers), rank).write(ranked)
    assert of("anna", flow.simulate(SENT, crashes=True)[ranked]) == ANNA[:2]


def test_at_one_time_the_row_comes_first() -> None:
    sent = [
        orders.sent("anna", Order(1), 1),
        orders.sent("anna", Order(2), 5),
        customers.sent("anna", Customer("a"), 5),
    ]
    assert of("anna", ranking().simulate(sent)[ranked]) == [Ranked(1, "none"), Ranked(2, "a")]


def test_whatever_happens_a_record_is_joined_as_it_was_first() -> None:
    done = ranking().simulate(SENT, crashes="everywhere", seeds=SEEDS)
    assert done.crashes > 100


def test_merged_and_regrouped_streams_are_joined_with_several_tables_and_keep_state_behind_them() -> None:
    refunds = replace(orders, name="refunds")
    grouped = Topic("grouped", text, json_of(Ranked), partitions=2)
    names = Topic("names", text, raw, partitions=2)
    sums = Topic("sums", text, json_of(Sum), partitions=2)

    def add(total: Sum, each: Ranked, at: Context[str]) -> tuple[Sum, list[Sum]]:
        total = Sum(total.amount + each.amount)
        return total, [total]

    flow = Flow("f", version="1")
    table = flow.table(customers)
    both = flow.read(orders).join(table, rank).merge("both", flow.read(refunds).join(table, rank_all, left=True))
    behind = both.through(grouped, key=lambda each: each.rank)
    behind.join(flow.table(names), lambda each, name: Ranked(each.amount, name.decode())).write(ranked)
    behind.step("sum", Sum, add).write(sums)
    sent = [*SENT, refunds.sent("anna", Order(-1), 55), names.sent("gold", b"Gold"), names.sent("none", b"None")]
    done = flow.simulate(sent, crashes=True)
    assert sorted(done[ranked]) == [("gold", Ranked(3, "Gold")), ("none", Ranked(-1, "None"))]
    assert dict(done[sums]) == {"silver": Sum(6), "gold": Sum(3), "none": Sum(-1)}


def test_a_table_keeps_no_timer_back_and_moves_none() -> None:
    def told(total: Sum, each: Ranked, at: Context[str]) -> tuple[Sum, list[Ranked]]:
        at.timer(at.time_ms + 30)
        return total, []

    def fired(total: Sum, key: str, at: Context[str]) -> tuple[Sum, list[Ranked]]:
        return total, [Ranked(at.time_ms, "timer")]

    flow = Flow("f", version="1")
    joined = flow.read(orders).join(flow.table(customers), rank_all, left=True)
    joined.step("told", Sum, told, on_timer=fired).write(ranked)
    sent = [orders.sent("anna", Order(1), 10), customers.sent("anna", Customer("a"), 1_000)]
    assert flow.simulate(sent)[ranked] == []  # a row says nothing of the time
    assert flow.simulate(sent, 100, crashes=True)[ranked] == [("anna", Ranked(40, "timer"))]


# --- which rules it takes: each of them broken


def test_rows_that_are_not_in_the_commit_are_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CellInputs, "rows_of", lambda inputs, ranges: [])
    with pytest.raises(Stopped):
        ranking().simulate(SENT, crashes=True)


def test_rows_that_a_restore_reads_from_the_topic_are_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Journal, "rows", property(lambda journal: [], lambda journal, rows: None), raising=False)
    with pytest.raises(Stopped):
        ranking().simulate(SENT, crashes=True)


def test_what_is_left_of_a_plan_keeps_its_rows_where_a_commit_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its state takes so much room that a step is over in the middle of a plan."""

    def fill(last: Padded, each: Ranked, at: Context[str]) -> tuple[Padded, list[Ranked]]:
        return Padded(each.rank * 40), [each]

    flow = Flow("f", version="1")
    joined = flow.read(orders).join(flow.table(customers), rank_all, left=True)
    joined.step("last", Padded, fill).write(ranked)
    monkeypatch.setattr(engine, "LIMITS", replace(LIMITS, commit_bytes=500))
    done = flow.simulate(SENT, crashes=True)[ranked]
    assert (of("anna", done), of("bert", done)) == (ANNA, BERT)
    monkeypatch.setattr(CellInputs, "rows_of", only_of_new_plans(CellInputs.rows_of))
    with pytest.raises(Stopped):
        flow.simulate(SENT, crashes=True)


RowsOf = Callable[[CellInputs, Sequence[Range]], list[tuple[int, Records]]]


def only_of_new_plans(rows_of: RowsOf) -> RowsOf:
    return lambda inputs, ranges: [] if inputs.plan_left else rows_of(inputs, ranges)


def test_a_row_that_fits_no_commit_stops_the_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "LIMITS", replace(LIMITS, commit_bytes=300))
    sent = [customers.sent("anna", Customer("a" * 300))]
    with pytest.raises(Stopped, match="the row at offset 0 of customers, with the key b'anna', does not fit a commit"):
        ranking().simulate(sent)


# --- the plan


NOW = Now(0, 0)


def sources(rows: list[int], records: list[int], load_to: int | None) -> list[Source]:
    found = []
    for input, times in ((Input("orders", ""), records), (Input("customers", "", is_table=True), rows)):
        source = Source(input, 0)
        keys = [b"k"] * len(times)
        source.add(Records(range(len(times)), keys, keys, times) if times else EMPTY, len(times), NOW)
        found.append(source)
    found[1].load_to = load_to
    return found


def planned(rows: list[int], records: list[int], load_to: int | None, mark_ms: int = -1) -> list[tuple[int, int, int]]:
    plan = plan_of(sources(rows, records, load_to), NOW, Limits(wait_ms=0), [-1, mark_ms], float("inf"))
    return [] if plan is None else [(each.input, each.first, each.end) for each in plan.ranges]


def test_a_table_is_read_first_up_to_where_it_went_and_by_time_from_then_on() -> None:
    assert planned([90, 91, 92], [10, 91], 2) == [(1, 0, 2), (0, 0, 2), (1, 2, 2)]
    assert planned([90, 91, 92], [10, 91], 3) == [(1, 0, 3), (1, 3, 3)]
    assert planned([90, 91, 92], [10, 91], 5) == [(1, 0, 3)]
    assert planned([90, 91, 92], [10, 91], 3, LOADED_MS) == [(0, 0, 1), (1, 0, 2), (0, 1, 2)]


def test_an_empty_table_is_known_to_be_before_anything_is_joined() -> None:
    assert planned([], [10], None) == []
    assert planned([], [10], 0) == [(0, 0, 1), (1, 0, 0)]


def test_a_table_that_is_at_its_end_is_not_waited_for() -> None:
    found = sources([], [10], 0)
    plan = plan_of(found, NOW, Limits(), [-1, LOADED_MS], float("inf"))
    assert isinstance(plan, Plan)
    found[1].empty_since_ms = None  # what follows is being fetched
    assert plan_of(found, NOW, Limits(), [-1, LOADED_MS], float("inf")) is None


# --- what cannot be


def test_a_row_that_cannot_be_read_goes_to_the_dead_letters_or_stops_the_cell() -> None:
    broken = [*SENT, Sent(customers, b"anna", b"no json", 45)]
    done = ranking(otherwise=dead).simulate(broken, crashes=True)
    assert of("anna", done[ranked]) == ANNA
    assert [each.value for each in done.records(dead.topic)] == [b"no json"]
    with pytest.raises(Stopped, match=r"the record at offset \d of customers"):
        ranking().simulate(broken)


def test_a_table_has_a_bound() -> None:
    sent = [customers.sent(name, Customer("a")) for name in ("anna", "bert", "carla", "dora", "emil")]
    sent += [customers.tombstone(name, 1) for name in ("anna", "bert")] + [customers.sent("anna", Customer("b"), 2)]
    assert ranking(4).simulate(sent, crashes=True)[ranked] == []
    with pytest.raises(Stopped, match="the table customers has more than 1 rows in this partition"):
        ranking(1).simulate(sent)
    with pytest.raises(ValueError, match="customers: most: expected a whole number of at least 1, not 0"):
        ranking(0)


def test_other_numbers_of_partitions_and_other_keys_are_refused() -> None:
    flow = Flow("f", version="1")
    stream = flow.read(orders)
    with pytest.raises(ValueError, match="orders has 2 partitions and customers has 3, so a key's records"):
        stream.join(flow.table(replace(customers, partitions=3)), rank)
    with pytest.raises(ValueError, match="keys of orders are written as text and those of customers as json"):
        stream.join(flow.table(replace(customers, key=json_of(str)), name="2"), rank)
    with pytest.raises(ValueError, match="join with 3 stands behind something that is told at commits"):
        stream.count("n").join(flow.table(customers, name="3"), lambda count, row: rank(Order(count), row))


def test_keys_of_another_partitioner_stop_the_cell() -> None:
    here = [name for name in map(str, range(200)) if customers.partition_of(name.encode()) == 0][:SAMPLED]
    there = next(name for name in map(str, range(200)) if customers.partition_of(name.encode()) == 1)
    keys = [name.encode() for name in here]
    for first, other in (("keys", "stream_keys"), ("stream_keys", "keys")):
        rows = TableRows("customers", customers.value, None, 0, 2)
        for key in [*keys, keys[0]]:
            rows.look_at(key, getattr(rows, first))
        with pytest.raises(Unworkable, match=rf"would place the key b'{there}' of the other side elsewhere"):
            rows.look_at(there.encode(), getattr(rows, other))
    rows = TableRows("customers", customers.value, None, 0, 2)
    for key in (*keys[1:], there.encode()):  # by another partitioner, on both sides
        rows.look_at(key, rows.keys)
        rows.look_at(key, rows.stream_keys)


def test_a_table_that_nothing_is_written_of_is_no_input() -> None:
    flow = Flow("f", version="1")
    stream = flow.read(orders)
    stream.join(flow.table(customers), rank)
    stream.map(lambda order: Ranked(order.amount)).write(ranked)
    (part,) = flow.program.parts
    assert [branch.source.name for branch in part.inputs] == ["orders"]
    assert not part.has_plan
