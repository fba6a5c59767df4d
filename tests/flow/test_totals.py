"""Counts, sums and latest values: kept by key, and told at commits."""

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from random import Random
from typing import Any

import pytest

from oncelog.flow import Dead, Flow, Stopped, Topic, json_of, text
from oncelog.flow.formats import TIME
from oncelog.flow.messages import Records
from oncelog.flow.part_running import PartWork
from oncelog.flow.program import Stream
from oncelog.flow.topics import Sent


@dataclass(frozen=True)
class Order:
    amount: int


orders = Topic("orders", text, json_of(Order))
numbers = Topic("numbers", text, json_of(int), partitions=2)
halves = Topic("halves", text, json_of(float))
newest = Topic("newest", text, json_of(Order))
SENT = [orders.sent("abca"[at % 4], Order(at), 1_000 + at) for at in range(12)]


Read = Stream[str, Order]
Totals = Callable[[Read], Stream[str, Any]]


def read() -> Stream[str, Order]:
    return Flow("f", version="1").read(orders)


def last_of(totals: Totals, topic: Topic[str, Any]) -> dict[str, Any]:
    """The last that is told of each key, wherever it is stopped."""
    flow = Flow("f", version="1")
    totals(flow.read(orders)).write(topic)
    return dict(flow.simulate(SENT, crashes=True)[topic])


def test_records_are_counted_by_key() -> None:
    assert last_of(lambda read: read.count("n"), numbers) == {"a": 6, "b": 3, "c": 3}


def test_amounts_are_summed_up_by_key() -> None:
    assert last_of(lambda read: read.sum("sum", lambda each: each.amount), numbers) == {"a": 33, "b": 15, "c": 18}
    assert last_of(lambda read: read.sum("sum", lambda each: each.amount / 2), halves) == {
        "a": 16.5,
        "b": 7.5,
        "c": 9.0,
    }


def test_the_latest_of_each_key_is_told() -> None:
    assert last_of(lambda read: read.latest("last"), newest) == {"a": Order(11), "b": Order(9), "c": Order(10)}


def test_what_comes_before_and_behind_it_is_done_to_each() -> None:
    def counted(read: Read) -> Stream[str, int]:
        return read.filter(lambda each: each.amount > 2).count("n").map(lambda count: -count)

    assert last_of(counted, numbers) == {"a": -5, "b": -2, "c": -2}


def test_a_key_is_told_once_a_commit_with_the_time_of_the_newest_record() -> None:
    work = work_of(lambda read: read.count("n"), numbers)
    changes = work.run(0, run_of("aba", times=[5, 9, 7]), 1).changes
    told = work.told(1, {key: value for key, value in changes.items() if value})
    rows = sorted((each.key, each.value, dict(each.headers)[TIME]) for one in told.values() for each in one.each())
    assert rows == [(b"a", b"2", b"9"), (b"b", b"1", b"9")]


def test_what_came_of_a_call_is_told_from_the_commit_like_all_else() -> None:
    chance = Random(1)
    flow = Flow("f", version="1")
    asked = flow.read(orders).call(lambda each, at: chance.randrange(100))
    asked.sum("sum", lambda each: each).write(numbers)
    assert {key for key, _ in flow.simulate(SENT, crashes=True)[numbers]} == set("abc")


# --- as columns


def work_of(totals: Totals, topic: Topic[str, Any]) -> PartWork:
    flow = Flow("f", version="1", otherwise=Dead("dead"))
    totals(flow.read(orders)).write(topic)
    (part,) = flow.program.parts
    work = PartWork(part, 0)
    work.begin({}, [-1])
    return work


def run_of(keys: str, times: list[int] | None = None, broken: int | None = None) -> Records:
    values: list[bytes | None] = [b'{"amount":%d}' % at for at in range(len(keys))]
    if broken is not None:
        values[broken] = b"no json"
    return Records(range(len(keys)), [each.encode() for each in keys], values, times or [0] * len(keys))


@pytest.mark.parametrize("what", ["count", "sum", "latest"])
@pytest.mark.parametrize("broken", [None, 0, 7])
def test_columns_come_to_the_same_as_one_record_after_the_other(what: str, broken: int | None) -> None:
    def totals(read: Read) -> Stream[str, Any]:
        if what == "count":
            return read.count("n")
        return read.sum("n", lambda each: each.amount / 3) if what == "sum" else read.latest("n")

    topic: Topic[str, Any] = newest if what == "latest" else numbers
    records = run_of("abcabdabca", broken=broken)
    at_once = work_of(totals, topic).run(0, records, 1)
    by_one = work_of(totals, topic)
    changes = dict[bytes, bytes | None]()
    held = 0
    for at in range(len(records.offsets)):
        stepped = by_one.run(0, records.part(at, at + 1), 1)
        changes.update(stepped.changes)
        held += len(stepped.held)
    assert dict(at_once.changes) == changes
    assert len(at_once.held) == held == (0 if broken is None or what == "count" else 1)


def test_a_record_without_a_key_is_found_among_the_columns() -> None:
    flow = Flow("f", version="1")
    flow.read(orders).count("n").write(numbers)
    with pytest.raises(Stopped, match="the record at offset 1 of orders: ValueError: it has no key"):
        flow.simulate([SENT[0], Sent(orders, None, b"{}", 0), SENT[1]])


# --- refused


def test_what_keeps_state_stands_in_a_stage_of_its_own_behind_them() -> None:
    counted = read().count("n")
    with pytest.raises(ValueError, match="m stands behind something that is told at commits"):
        counted.sum("m", lambda each: each)
    with pytest.raises(ValueError, match="call stands behind something that is told at commits"):
        counted.call(lambda each, at: each)
    with pytest.raises(ValueError, match="both stands behind something that is told at commits"):
        read().merge("both", counted)


def test_the_latest_is_what_its_topic_has() -> None:
    with pytest.raises(ValueError, match=r"`latest` .last. keeps values as their topic has them"):
        read().map(lambda each: each.amount).latest("last")


def test_a_sum_that_is_no_number_any_more_stops_it() -> None:
    flow = Flow("f", version="1")
    flow.read(orders).sum("sum", lambda each: each.amount * 1e308).write(halves)
    with pytest.raises(Stopped, match="the record at offset 2 of orders: ValueError: the sum is inf"):
        flow.simulate([orders.sent("a", Order(amount)) for amount in (0, 1, 1)])


def test_a_function_behind_them_that_raises_stops_it_and_names_the_key() -> None:
    flow = Flow("f", version="1")
    flow.read(orders).count("n").map(lambda count: 1 // (count - count)).write(numbers)
    with pytest.raises(Stopped, match=r"that commit 1 writes for b'a': ZeroDivisionError: .* Mend the function"):
        flow.simulate(SENT[:1])


@pytest.mark.parametrize("amount", [Decimal(5), "5", None], ids=["a Decimal", "a text", "nothing"])
def test_a_sum_of_what_is_no_number_of_json_stops_it_at_once(amount: Any) -> None:
    """A Decimal would be written as a text, and the total could not be read back."""
    flow = Flow("f", version="1")
    flow.read(orders).sum("sum", lambda each: amount).write(halves)
    with pytest.raises(Stopped, match="the record at offset 0 of orders: TypeError"):
        flow.simulate(SENT[:1])


def test_a_sum_of_truths_is_a_number() -> None:
    assert last_of(lambda read: read.sum("sum", lambda each: each.amount > 3), numbers) == {"a": 4, "b": 2, "c": 2}
    flow = Flow("f", version="1")
    flow.read(orders).sum("sum", lambda each: True).write(numbers)
    assert flow.simulate(SENT[:1], crashes=True)[numbers] == [("a", 1)]
