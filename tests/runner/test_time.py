"""Windows and merges against a server: what the driver says of the time."""

from dataclasses import replace
from functools import partial

import pytest

from oncelog.clock import wall_s
from oncelog.embedded import Server
from oncelog.flow import Flow, Limits, Topic, Window, json_of, text
from tests.runner.flows import Billing, Order, Owed, everything, make_topic, messages
from tests.waiting import until

LONG_AGO_MS = 1_700_000_000_000
WINDOW_MS = 1_000
SLACK_MS = 60_000  # the clock of a machine may be set meanwhile


@pytest.fixture
def billing(own_server: Server, topic: str) -> Billing:
    found = Billing(topic, own_server.bootstrap_servers)
    found.make_topics(found.orders)
    return found


def windowed(billing: Billing, *, stages: int) -> tuple[Flow, Topic[str, Window[Owed]]]:
    out = Topic(f"{billing.name}-windows", text, json_of(Window[Owed]), partitions=2)
    make_topic(billing.servers, out.name, out.partitions)
    flow = Flow(billing.name, version="1")
    orders = flow.read(billing.orders, name="orders")
    for number in range(stages - 1):
        between = replace(billing.between, name=f"{billing.between.name}-{number}")
        orders = orders.through(between, key=lambda order: order.customer)
    orders.window("sums", Owed, lambda owed, order: Owed(owed.amount + order.amount), size_ms=WINDOW_MS).write(out)
    return flow, out


def sums(billing: Billing, out: Topic[str, Window[Owed]]) -> list[int]:
    found = [out.value.decode(value) for _, value in everything(billing.servers, out.name)]
    return sorted(each.state.amount for each in found)


@pytest.mark.parametrize("stages", [1, 2, 3], ids=["of the input", "behind through", "behind two"])
@pytest.mark.parametrize("how", ["at the end", pytest.param("while it runs", marks=pytest.mark.thorough)])
def test_windows_close_by_the_time_where_nothing_more_comes(billing: Billing, how: str, stages: int) -> None:
    flow, out = windowed(billing, stages=stages)
    billing.send_at(range(LONG_AGO_MS, LONG_AGO_MS + 2 * WINDOW_MS, WINDOW_MS // 10))
    if how == "at the end":
        flow.run(billing.properties, until="end")
    else:
        run = flow.start(billing.properties)
        until(lambda: sum(sums(billing, out)) == 20, "two windows of ten orders")
        run.stop()
    assert sums(billing, out) == [10, 10]


def test_outputs_have_the_present_time_and_that_of_events_in_a_header(servers: str, topic: str) -> None:
    """Brokers forget a producer by the time of its records, and may refuse one that is old."""
    billing = Billing(topic, servers)
    billing.make_topics()
    billing.send_at(range(LONG_AGO_MS, LONG_AGO_MS + 10))
    began_ms = wall_s() * 1000
    billing.flow().run(billing.properties, until="end")
    written = messages(servers, billing.sums.name)
    assert sorted(int(dict(each.headers() or ())["oncelog.time"] or 0) - LONG_AGO_MS for each in written) == [
        *range(10)
    ]
    assert all(began_ms - SLACK_MS < each.timestamp()[1] < wall_s() * 1000 + SLACK_MS for each in written)


def test_two_inputs_are_merged_by_their_times(billing: Billing) -> None:
    more = Topic(f"{billing.name}-more", text, json_of(Order), partitions=2)
    make_topic(billing.servers, more.name, 2)
    make_topic(billing.servers, billing.sums.name, 2)
    flow = Flow(billing.name, version="1")
    both = flow.read(billing.orders).merge("both", flow.read(more))
    both.map(lambda order: Owed(order.amount)).write(billing.sums)
    billing.send_at(range(LONG_AGO_MS, LONG_AGO_MS + 10), billing.orders.name, more.name)
    flow.run(billing.properties, until="end")
    assert sorted(owed.amount for _, owed in billing.written()) == [1] * 10


def test_a_run_ends_when_all_windows_are_written_that_close_at_its_end(
    billing: Billing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each waits here until the one before is acknowledged."""
    monkeypatch.setattr("oncelog.runner.engine.Limits", partial(Limits, run_records=1, waiting_bytes=1))
    out = Topic(f"{billing.name}-windows", text, json_of(Window[Owed]))
    make_topic(billing.servers, out.name, 1)
    flow = Flow(billing.name, version="1")
    read = flow.read(billing.orders, wait_ms=LONG_AGO_MS // 100)
    read.window("sums", Owed, lambda owed, order: Owed(owed.amount + 1), size_ms=WINDOW_MS).write(out)
    billing.send_at(range(LONG_AGO_MS, LONG_AGO_MS + 20 * WINDOW_MS, WINDOW_MS))
    flow.run(billing.properties, until="end")
    assert sums(billing, out) == [1] * 20


def test_time_waits_for_a_transaction_that_is_open_at_the_end_of_an_input(billing: Billing) -> None:
    """What stands behind its beginning is older than now, and would be late."""
    from confluent_kafka import Producer as Transactional

    flow, out = windowed(billing, stages=1)
    billing.send_at([LONG_AGO_MS])
    producer = Transactional(billing.properties | {"transactional.id": billing.name, "partitioner": "murmur2"})
    producer.init_transactions(60)
    producer.begin_transaction()
    value = billing.orders.value.encode(Order("anna", 1))
    producer.produce(billing.orders.name, key="o1", value=value, timestamp=LONG_AGO_MS + WINDOW_MS)
    producer.flush(60)
    flow.run(billing.properties, until="end")
    assert sums(billing, out) == []
    producer.commit_transaction(60)
    flow.run(billing.properties, until="end")
    assert sums(billing, out) == [1, 1]
