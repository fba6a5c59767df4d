"""A flow beside itself: the same functions, and nothing of it goes where the live one writes."""

from dataclasses import dataclass, replace
from typing import Any

import pytest

from oncelog.flow import Context, Dead, Flow, Topic, json_of, text
from oncelog.flow.backfilling import beside
from oncelog.flow.simulating import simulate


@dataclass(frozen=True)
class Order:
    customer: str
    amount: int


@dataclass(frozen=True)
class Owed:
    amount: int = 0


orders = Topic("orders", text, json_of(Order), partitions=2)
grouped = Topic("grouped", text, json_of(Order), partitions=3)
sums = Topic("sums", text, json_of(Owed))
lates = Topic("lates", text, json_of(Order))
INTO: dict[Any, Any] = {sums: replace(sums, name="sums-again", partitions=2), "dead": "dead-again", "s3://a": "s3://b"}
SENT = [orders.sent(f"o{number}", Order(f"c{number % 3}", number), number) for number in range(9)]


def book(owed: Owed, order: Order, at: Context[str]) -> tuple[Owed, list[Owed]]:
    return Owed(owed.amount + order.amount), [Owed(owed.amount + order.amount)]


def billing() -> Flow:
    flow = Flow("billing", version="1", otherwise=Dead("dead"))
    read = flow.read(orders)
    read.files("s3://a")
    read.through(grouped, key=lambda order: order.customer).step("owed", Owed, book).write(sums)
    return flow


def test_it_makes_the_same_elsewhere() -> None:
    flow = billing()
    again = beside(flow.program, "may", INTO)
    live, done = flow.simulate(SENT), simulate(again, SENT, crashes=True)
    assert sorted(map(repr, done[INTO[sums]])) == sorted(map(repr, live[sums])) and len(live[sums]) == len(SENT)
    assert {topic.name for part in again.parts for topic in part.sinks} == {"grouped-may", "sums-again", "dead-again"}
    assert [part.flow for part in again.parts] == 3 * ["billing-may"]
    assert list(done.files) == ["s3://b"] and list(live.files) == ["s3://a"]
    assert {topic.name for part in flow.program.parts for topic in part.sinks} == {"grouped", "sums", "dead"}
    assert again.code == flow.program.code


def without(*names: Any) -> dict[Any, Any]:
    return {there: here for there, here in INTO.items() if there not in names}


@pytest.mark.parametrize(
    ("into", "words"),
    [
        (without(sums, "s3://a"), "what the flow writes to s3://a, sums goes where"),
        (INTO | {grouped: "elsewhere"}, "the flow does not write grouped, but dead, s3://a, sums. Leave it out"),
        (INTO | {sums: "sums"}, "sums is the flow's own. Write into another place"),
        (INTO | {sums: orders}, "orders is the flow's own"),
        (INTO | {sums: replace(lates, name="others")}, "others has other keys or values than sums. Give it the same"),
    ],
)
def test_what_would_meet_the_live_one_is_refused(into: dict[Any, Any], words: str) -> None:
    with pytest.raises(ValueError, match=f"flow billing, backfill may: .*{words}"):
        beside(billing().program, "may", into)


def test_times_in_the_wrong_order_are_refused() -> None:
    with pytest.raises(ValueError, match="nothing is since 5 and before 5"):
        beside(billing().program, "may", INTO, since_ms=5, until_ms=5)
