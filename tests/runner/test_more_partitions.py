"""Topics that get more partitions while a flow is at work."""

import re
import subprocess
import sys
from dataclasses import replace

import pytest

from oncelog.client import AdminClient, Consumer, NewPartitions, Producer, TopicPartition
from oncelog.clock import SystemClock
from oncelog.flow import FlowRefused, Run
from oncelog.flow.formats import Tenancy
from oncelog.runner import run as running
from oncelog.runner.engine import Engine
from oncelog.runner.share import Share
from tests.runner.flows import Billing
from tests.waiting import until

SOON = {"topic.metadata.refresh.interval.ms": "200"}


@pytest.fixture
def billing(servers: str, topic: str) -> Billing:
    found = Billing(topic, servers)
    found.make_topics()
    return found


def raise_to(billing: Billing, name: str, count: int) -> None:
    with AdminClient(billing.properties) as admin:
        for future in admin.create_partitions([NewPartitions(name, count)]).values():
            future.result(30)


def send_to(billing: Billing, name: str, partition: int, numbers: range) -> None:
    with Producer(billing.properties) as producer:
        for number in numbers:
            value = billing.orders.value.encode(billing.order(number))
            producer.produce(name, key=f"o{number}", value=value, partition=partition)
        producer.flush()


def lag(run: Run, stage: str) -> object:
    last = run.last_progress
    return None if last is None else last["stages"][stage]["lag"]


def test_records_in_new_partitions_of_an_input_stop_the_stage_that_does_not_read_them(
    billing: Billing, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oncelog.runner.engine.GROUPS_EVERY_S", 0.2)
    run = billing.flow().start(billing.properties | SOON)
    billing.send(range(20))
    billing.wait_for(20)
    raise_to(billing, billing.orders.name, 4)
    told = f"topic {billing.orders.name} has 4 partitions now, and flow {billing.name} reads the first 2"
    until(lambda: told in caplog.text, "word of the new partitions")
    send_to(billing, billing.orders.name, 1, range(20, 30))
    billing.wait_for(30)
    assert run.exception() is None, "nothing is unread"

    send_to(billing, billing.orders.name, 2, range(5))
    send_to(billing, billing.orders.name, 3, range(2))
    failure = until(run.exception, "word of what is unread")
    expected = (
        f"flow {billing.name}, stage orders: its input {billing.orders.name} has 4 partitions now, and the stage has "
        "2 cells, for ever, so nobody reads what comes to the others. To read all, say "
        f"Topic('{billing.orders.name}', ..., partitions=4) and run it as a flow of another name, or by "
        "`flow.backfill`, into other topics"
    )
    assert str(failure) == expected
    until(lambda: lag(run, "orders") == 7, "the lag of what is unread")
    assert {(each.cell, each.lag) for each in run.cells if each.stage == "orders" and each.lag} == {(2, 5), (3, 2)}
    assert run.is_active, "the stage behind it goes on"
    until(lambda: group_lag(billing, 4) == 7, "the lag in the group", give_up_seconds=60)
    run.stop()
    billing.check(30)

    asked = [sys.executable, "-m", "oncelog", "flow", "describe", billing.name, "-b", billing.servers]
    described = subprocess.run(asked, check=True, capture_output=True, text=True).stdout
    assert expected in described
    assert described.count("  left") == 5, "all cells have committed and said goodbye"

    remedy = expected[expected.index("To read all") :]
    with pytest.raises(FlowRefused, match=re.escape("and the stage has 2 cells, for ever. " + remedy)):
        billing.flow().run(billing.properties)
    billing.orders = replace(billing.orders, partitions=4)
    with pytest.raises(FlowRefused, match=re.escape(remedy)):
        billing.flow().run(billing.properties)


def group_lag(billing: Billing, partitions: int) -> int:
    with Consumer(billing.properties | {"group.id": f"{billing.name}.orders"}) as consumer:
        places = [TopicPartition(billing.orders.name, index) for index in range(partitions)]
        committed = [each.offset for each in consumer.committed(places, timeout=60)]
        ends = [consumer.get_watermark_offsets(place, timeout=30) for place in places]
    return sum(high - offset for (_, high), offset in zip(ends, committed, strict=True) if offset >= 0)  # type: ignore[misc]


def test_a_flow_goes_on_where_what_it_passes_through_or_writes_has_more_partitions(
    billing: Billing, caplog: pytest.LogCaptureFixture
) -> None:
    run = billing.flow().start(billing.properties | SOON)
    raise_to(billing, billing.between.name, 5)
    raise_to(billing, billing.sums.name, 3)
    until(lambda: caplog.text.count(" partitions now, and flow ") == 2, "word of both")
    billing.send(range(20))
    billing.wait_for(20)
    run.stop()
    raise_to(billing, billing.between.name, 6)
    billing.sums = type(billing.sums)(billing.sums.name, billing.sums.key, billing.sums.value, partitions=3)
    again = billing.flow().start(billing.properties | SOON)  # what it made may have more than is said
    billing.send(range(20, 40))
    billing.wait_for(40)
    assert again.exception() is None
    send_to(billing, billing.between.name, 5, range(1))
    failure = until(again.exception, "word of a foreign record")
    again.stop()
    assert billing.count() == 40 and billing.state() == billing.totals(40)
    assert str(failure) == (
        f"flow {billing.name}, stage {billing.between.name}: its input {billing.between.name} has 6 partitions "
        "now, and the stage has 3 cells, for ever, so nobody reads what comes to the others. The flow does not "
        "write to these: find out what does, and remove its records"
    )


def test_a_member_of_a_group_says_the_same_and_so_does_who_goes_on_for_another(billing: Billing) -> None:
    """As a task of Spark's does, which begins behind the start that found all as it was."""
    member = billing.flow().start(billing.properties | SOON, share=True)
    billing.send(range(10))
    billing.wait_for(10)
    raise_to(billing, billing.orders.name, 3)
    send_to(billing, billing.orders.name, 2, range(4))
    failure = until(member.exception, "word of what is unread")
    member.stop()
    assert str(failure).count(f"flow {billing.name}, stage orders: its input {billing.orders.name} has 3 part") == 1
    cells = {"orders": range(2), billing.between.name: range(3)}
    share = Share(cells, Tenancy(SystemClock().now().wall_ms, 0))
    task = running.Run(Engine(billing.flow().program, billing.properties, None, until_end=False, share=share))
    assert str(until(task.exception, "the same word")) == str(failure)
    task.stop()
