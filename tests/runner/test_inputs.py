"""Inputs that are not what they were."""

import pytest

from oncelog.client import AdminClient, TopicPartition
from oncelog.flow import Flow, FlowFailed, Topic, json_of, text
from tests.cli.running import Oncelog
from tests.runner.flows import Billing, Owed, everything
from tests.waiting import until


@pytest.fixture
def billing(servers: str, topic: str) -> Billing:
    found = Billing(topic, servers, partitions=1)
    found.make_topics()
    return found


def remove(billing: Billing) -> None:
    with AdminClient(billing.properties) as admin:
        for future in admin.delete_topics([billing.orders.name]).values():
            future.result(30)


def make_again(billing: Billing) -> None:
    """A broker may go on for a moment to have the old one."""
    until(lambda: makes(billing), f"room for a new {billing.orders.name}")


def makes(billing: Billing) -> bool:
    try:
        billing.make_topics(billing.orders)
    except Exception as refused:
        assert "exists" in str(refused)
        return False
    return True


def failure(billing: Billing) -> str:
    with pytest.raises(FlowFailed) as failed:
        billing.flow().run(billing.properties, until="end")
    return str(failed.value)


def test_a_flow_begins_where_its_input_does_and_names_what_retention_took_later(billing: Billing) -> None:
    with AdminClient(billing.properties) as admin:

        def cut(before: int) -> None:
            for future in admin.delete_records([TopicPartition(billing.orders.name, 0, before)]).values():
                future.result(30)

        billing.send(range(50))
        cut(20)
        billing.flow().run(billing.properties, until="end")
        assert len(billing.written()) == 30
        billing.send(range(50, 80))
        cut(60)
    what = f"its input {billing.orders.name}-0 begins at offset 60, and offset 50 is next: retention took what was not"
    assert what in failure(billing)


def test_a_topic_that_was_made_again_between_two_runs(billing: Billing) -> None:
    billing.send(range(10))
    billing.flow().run(billing.properties, until="end")
    remove(billing)
    make_again(billing)
    assert f"its input {billing.orders.name} was deleted and made again since the last commit" in failure(billing)


def test_a_topic_that_is_made_again_under_way(billing: Billing) -> None:
    run = billing.flow().start(billing.properties)
    billing.send(range(10))
    billing.wait_for(10)
    remove(billing)
    make_again(billing)
    billing.send(range(20))
    until(run.exception, "word of the new topic")
    run.stop()
    assert f"its input {billing.orders.name} was deleted and made again while it ran" in str(run.exception())


def counting(billing: Billing, start: str | int) -> Flow:
    flow = Flow(billing.name, version="1")
    read = flow.read(billing.orders, start=start)  # type: ignore[arg-type]
    read.map(lambda order: Owed(order.amount)).write(billing.sums)
    return flow


def run(billing: Billing, start: str | int) -> int:
    counting(billing, start).run(billing.properties, until="end")
    return len(billing.written())


def test_a_flow_that_begins_at_the_end_has_what_comes_from_its_first_start_on(billing: Billing) -> None:
    """Also where no later start finds anything committed."""
    billing.send(range(10))
    assert run(billing, "latest") == 0
    looked = Oncelog(billing.servers)("flow describe", billing.name, "-J").json
    assert [each["lag"] for each in looked["stages"][0]["cells"][0]["inputs"]] == [0]
    billing.send(range(10, 15))
    assert run(billing, "latest") == 5
    billing.send(range(15, 20))
    assert run(billing, "latest") == 10
    Oncelog(billing.servers)("flow reset", billing.name)
    assert run(billing, "latest") == 30, "a reset says where it begins"


def test_a_flow_begins_with_what_came_since_a_time(billing: Billing) -> None:
    then_ms = 1_700_000_000_000
    billing.send_at(range(then_ms, then_ms + 10))
    assert run(billing, then_ms + 4) == 6
    copy = Topic(f"{billing.name}-copy", text, json_of(Owed), partitions=2)
    billing.make_topics(copy)
    counting(billing, "latest").backfill("all", billing.properties, into={billing.sums: copy})
    assert len(everything(billing.servers, copy.name)) == 10


def test_what_is_no_start_is_refused(billing: Billing) -> None:
    with pytest.raises(ValueError, match="is read from start='beginning'; it is 'earliest', 'latest', or a time"):
        counting(billing, "beginning")
