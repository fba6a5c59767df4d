"""A flow on a real server, up to where its input ends."""

import json

import pytest

from oncelog.flow import Context, Flow
from tests.runner.flows import Billing, Order, Owed, everything


def test_one_stage_writes_each_record_once(servers: str, topic: str) -> None:
    billing = Billing(topic, servers)
    billing.make_topics()
    billing.send(range(100))
    billing.copy().run(billing.properties, until="end")
    billing.check_amounts(100)


def test_a_stage_behind_through_ends_where_what_feeds_it_has(servers: str, topic: str) -> None:
    billing = Billing(topic, servers)
    billing.make_topics()
    billing.send(range(1_000))
    billing.flow().run(billing.properties, until="end")
    billing.check(1_000)


def test_another_run_goes_on_where_the_one_before_ended(servers: str, topic: str) -> None:
    billing = Billing(topic, servers)
    billing.make_topics()
    billing.send(range(60))
    billing.flow().run(billing.properties, until="end")
    billing.send(range(60, 100))
    billing.flow().run(billing.properties, until="end")
    billing.check(100)


def test_a_run_that_is_finished_is_not_repeated_and_has_the_ends_of_its_first_start(servers: str, topic: str) -> None:
    billing = Billing(topic, servers)
    billing.make_topics()
    billing.send(range(30))
    billing.flow().run(billing.properties, until="end", run_id="noon")
    billing.send(range(30, 50))
    billing.flow().run(billing.properties, until="end", run_id="noon")
    billing.check(30)
    billing.flow().run(billing.properties, until="end", run_id="evening")
    billing.check(50)


def test_a_flow_remembers_its_newest_runs(servers: str, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oncelog.flow.register.MOST_KEPT", 2)
    billing = Billing(topic, servers)
    billing.make_topics()
    for day in range(5):
        billing.flow().run(billing.properties, until="end", run_id=f"day {day}")
    register = everything(servers, f"oncelog.flow.{billing.name}")
    removed = {key for key, value in register if not value}
    left = sorted(json.loads(value)["run"] for key, value in register if key not in removed and key[:1] in b"re")
    assert left == ["day 2", "day 2", "day 3", "day 3", "day 4", "day 4"]  # the next one to begin removes a day
    billing.send(range(20))
    billing.flow().run(billing.properties, until="end", run_id="day 4")  # which is finished
    assert not billing.written()


def test_the_log_says_what_a_run_has_taken(servers: str, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "oncelog.flow")
    billing = Billing(topic, servers)
    billing.make_topics()
    for numbers in (range(20), range(20, 25)):
        billing.send(numbers)
        billing.flow().run(billing.properties, until="end")
    ends = [text for text in caplog.messages if " ends: " in text]
    assert [text.rpartition(": ")[2] for text in ends] == [f"its stages took {count} records" for count in (40, 10)]


def test_an_input_that_is_read_twice_is_read_twice(servers: str, topic: str) -> None:
    billing = Billing(topic, servers)
    billing.make_topics()
    billing.send(range(40))
    flow = Flow(topic, version="1")
    for name in ("one", "two"):
        flow.read(billing.orders, name=name).map(lambda order: Owed(order.amount)).write(billing.sums)
    flow.run(billing.properties, until="end")
    assert len(billing.written()) == 80


def test_headers_are_there_where_they_are_asked_for(servers: str, topic: str) -> None:
    billing = Billing(topic, servers)
    billing.make_topics()
    billing.send_raw("o1", billing.orders.value.encode(billing.order(1)), headers=[("weight", b"12")])

    def weigh(owed: Owed, order: Order, at: Context[str]) -> tuple[Owed, list[Owed]]:
        return owed, [Owed(int(value or 0)) for _, value in at.headers]

    flow = Flow(topic, version="1")
    flow.read(billing.orders, headers=True).step("weighed", Owed, weigh).write(billing.sums)
    flow.run(billing.properties, until="end")
    assert [owed.amount for _, owed in billing.written()] == [12]
