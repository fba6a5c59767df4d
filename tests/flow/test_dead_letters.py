"""Records that cannot be worked on: they go to a topic of their own, whole, or the cell stops and says what to do."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest

from oncelog.flow import Context, Dead, Flow, Stopped, Topic, json_of, optional, raw, text
from oncelog.flow.topics import Sent


@dataclass(frozen=True)
class Order:
    amount: int


@dataclass(frozen=True)
class Sum:
    total: int = 0
    seen: tuple[int, ...] = field(default=())


orders = Topic("orders", text, json_of(Order))
sums = Topic("sums", text, json_of(Sum), partitions=2)
shares = Topic("shares", text, json_of(int))
dead = Dead("orders.dead")


def add(total: Sum, order: Order, at: Context[str]) -> tuple[Sum, list[Sum]]:
    if order.amount == 13:
        raise ValueError("an unlucky one")
    total = Sum(total.total + order.amount)
    return total, [total]


def summing(otherwise: Dead | None = None) -> Flow:
    """Written in two places, so that one of them is done when the other one fails."""
    flow = Flow("f", version="1")
    read = flow.read(orders, otherwise=otherwise)
    read.map(lambda order: 100 // (order.amount - 4)).write(shares)
    read.step("sum", Sum, add).write(sums)
    return flow


BROKEN = [
    orders.sent("a", Order(1)),
    Sent(orders, b"a", b"no json", 1),
    orders.sent("a", Order(13)),
    Sent(orders, None, b'{"amount":2}', 3),
    orders.sent("a", Order(4)),
    Sent(orders, b"a", None, 5),
    orders.sent("a", Order(2)),
]


def test_what_cannot_be_worked_on_goes_to_its_own_topic_as_it_was_and_leaves_nothing_behind() -> None:
    done = summing(dead).simulate(BROKEN, crashes=True)
    assert done[sums] == [("a", Sum(1)), ("a", Sum(3))]
    assert done[shares] == [("a", -34), ("a", -50)]
    letters = done.records(dead.topic)
    assert [(each.key, each.value) for each in letters] == [
        (b"a", b"no json"),
        (b"a", b'{"amount":13}'),
        (None, b'{"amount":2}'),
        (b"a", b'{"amount":4}'),
        (b"a", None),
    ]
    headers = [dict(each.headers) for each in letters]
    assert [each[b"oncelog.source"] for each in headers] == [b"orders/0/%d" % offset for offset in range(1, 6)]
    assert {each[b"oncelog.stage"] for each in headers} == {b"f/orders"}
    errors = [str(each[b"oncelog.error"]) for each in headers]
    said = ["DecodeError", "an unlucky one", "it has no key", "ZeroDivisionError", "it has no value"]
    assert all(what in error for what, error in zip(said, errors, strict=True)), errors


def test_a_flow_has_a_place_for_those_of_all_its_inputs_and_what_is_behind_them() -> None:
    between = Topic("between", text, json_of(Order))
    flow = Flow("f", version="1", otherwise=dead)
    flow.read(orders).through(between, key=lambda order: str(order.amount)).step("sum", Sum, add).write(sums)
    done = flow.simulate([orders.sent("a", Order(13)), orders.sent("a", Order(2))], crashes=True)
    assert done[sums] == [("2", Sum(2))]
    (letter,) = done.records(dead.topic)
    assert dict(letter.headers)[b"oncelog.stage"] == b"f/between"


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        (BROKEN[1], "DecodeError: .*"),
        (BROKEN[2], r"ValueError: an unlucky one \(test_dead_letters.py, line \d+\)"),
        (BROKEN[3], r"ValueError: it has no key, and its codec is not optional\(\)"),
        (BROKEN[5], r"ValueError: it has no value, and its codec is not optional\(\)"),
    ],
)
def test_without_one_the_cell_stops_and_says_what_to_do(broken: Sent, says: str) -> None:
    words = (
        f"f, stage orders, cell 0: the record at offset 1 of orders: {says}. Mend the function or the codec, or give "
        r"such records a topic of their own \(`otherwise=Dead\(...\)`\)"
    )
    with pytest.raises(Stopped, match=words):
        summing().simulate([BROKEN[0], broken])


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (lambda order: sys.exit(3), r"SystemExit: 3 \(test_dead_letters.py, line \d+\)"),
        (lambda order: order.amount, "TypeError: 'int' object where bytes were expected"),
    ],
    ids=["exit", "no bytes"],
)
def test_a_function_that_ends_the_process_or_gives_no_bytes_stops_its_cell(
    function: Callable[[Order], Any], says: str
) -> None:
    flow = Flow("f", version="1")
    flow.read(orders).map(function).write(Topic("out", text, raw))
    with pytest.raises(Stopped, match=f"the record at offset 0 of orders: {says}"):
        flow.simulate([orders.sent("a", Order(1))])


def test_a_null_value_is_none_where_that_was_said() -> None:
    maybe = Topic("maybe", text, optional(json_of(Order)))
    flow = Flow("f", version="1")
    flow.read(maybe).map(lambda order: order and Order(order.amount + 1)).write(Topic("out", text, maybe.value))
    sent = [maybe.sent("a", None), maybe.sent("a", Order(1))]
    assert flow.simulate(sent, crashes=True)[Topic("out", text, maybe.value)] == [("a", None), ("a", Order(2))]


# --- calls


answers = Topic("answers", text, json_of(tuple[int, str]))


def test_what_is_called_need_not_give_the_same_and_each_answer_is_written_once() -> None:
    numbers = count()
    flow = Flow("f", version="1")
    flow.read(orders).call(lambda order, at: (next(numbers), at.key)).write(answers)
    done = flow.simulate([orders.sent(key, Order(1)) for key in "abcabc"], crashes=True)
    assert [key for _, (_, key) in done[answers]] == list("abcabc")
    assert next(numbers) > 6 * done.crashes // 2, "it was called again, in most of the histories"


def test_a_call_is_known_by_its_id_when_it_comes_again() -> None:
    ids: list[str] = []

    def ask(part: int, at: Context[str]) -> int:
        ids.append(at.id)
        return part

    flow = Flow("f", version="1")
    asked = flow.read(orders).flat_map(lambda order: [1, 2]).call(ask)
    asked.call(ask, name="second").write(shares)
    sent = [orders.sent("a", Order(1)), orders.sent("b", Order(1))]
    flow.simulate(sent)
    first = [f"f/orders/orders/0/{offset}/call.{part}" for offset in (0, 1) for part in (0, 1)]
    assert ids == [each + more for each in first for more in ("", "/second.0")]
    seen = set(ids)
    flow.simulate(sent, crashes=True)
    assert set(ids) == seen


def test_what_a_failed_call_leaves_undone_is_what_follows_from_it() -> None:
    """Beside it, something may be sent already; another time the call may not fail."""
    fails = count()

    def ask(order: Order, at: Context[str]) -> Sum:
        if next(fails) % 2:
            raise TimeoutError("no answer")
        return Sum(order.amount)

    flow = Flow("f", version="1", otherwise=dead)
    read = flow.read(orders)
    read.map(lambda order: order.amount).write(shares)
    read.call(ask).write(sums)
    done = flow.simulate([orders.sent("a", Order(amount)) for amount in range(4)], crashes=True)
    assert done[shares] == [("a", amount) for amount in range(4)]
    assert done[sums] == [("a", Sum(0)), ("a", Sum(2))]
    assert [each.value for each in done.records(dead.topic)] == [b'{"amount":1}', b'{"amount":3}']


# --- headers


def test_functions_see_headers_and_offset_where_they_ask() -> None:
    seen = Topic("seen", text, json_of(tuple[int, str]))

    def look(order: Order, at: Context[str]) -> tuple[int, str]:
        return at.offset, str(dict(at.headers))

    flow = Flow("f", version="1")
    flow.read(orders, headers=True).call(look).write(seen)
    sent = [orders.sent("a", Order(1)), orders.sent("a", Order(2), headers=[("from", b"x")])]
    assert flow.simulate(sent)[seen] == [("a", (0, "{}")), ("a", (1, "{b'from': b'x'}"))]
    flow = Flow("f", version="1")
    flow.read(orders).call(look).write(seen)
    with pytest.raises(Stopped, match=r"its headers were not asked for: `read\(..., headers=True\)`"):
        flow.simulate(sent)
