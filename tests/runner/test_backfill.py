"""A backfill beside the live flow: the same over what was, once, however often it is called."""

from dataclasses import replace

import pytest

from oncelog.flow import Flow, FlowFailed, FlowRefused
from tests.runner.flows import Billing, Order, Owed, everything, make_topic

THEN_MS = 1_700_000_000_000


@pytest.fixture
def billing(servers: str, topic: str) -> Billing:
    found = Billing(topic, servers)
    found.make_topics()
    found.send_at(range(THEN_MS, THEN_MS + 100))
    return found


def amounts(billing: Billing, name: str) -> list[int]:
    return [billing.sums.value.decode(value).amount for _, value in everything(billing.servers, name)]


def test_a_backfill_writes_beside_the_live_flow_what_was_between_two_times(billing: Billing) -> None:
    again = replace(billing.sums, name=f"{billing.name}-again", partitions=4)
    make_topic(billing.servers, again.name, 4)
    live = billing.flow().start(billing.properties)
    billing.wait_for(100)
    for _ in range(2):  # the second one finds it finished
        billing.flow().backfill(
            "may", billing.properties, into={billing.sums: again}, since_ms=THEN_MS + 20, until_ms=THEN_MS + 50
        )
    with pytest.raises(FlowRefused, match=f"begun for the times {THEN_MS + 20} to {THEN_MS + 50}, and goes on so"):
        billing.flow().backfill("may", billing.properties, into={billing.sums: again}, since_ms=THEN_MS + 50)
    billing.send_at(range(THEN_MS + 100, THEN_MS + 110))
    billing.wait_for(110)
    live.stop()
    assert amounts(billing, again.name) == list(range(1, 31))
    assert amounts(billing, billing.sums.name) == list(range(1, 111))


def test_a_backfill_that_failed_goes_on_where_it_was_up_to_the_same_ends(billing: Billing) -> None:
    again = replace(billing.sums, name=f"{billing.name}-again")
    make_topic(billing.servers, again.name, again.partitions)

    def flow(*, fails_at: int) -> Flow:
        def pay(order: Order) -> Owed:
            seen.append(order)
            if len(seen) == fails_at:
                raise RuntimeError("the service is down")
            return Owed(order.amount)

        seen: list[Order] = []
        made = Flow(billing.name, version="1")
        made.read(billing.orders).map(pay).write(billing.sums)
        return made

    for fails_at in (1, 0):
        made = flow(fails_at=fails_at)
        if fails_at:
            with pytest.raises(FlowFailed, match=f"{billing.name}-all, stage .*the service is down"):
                made.backfill("all", billing.properties, into={billing.sums: again})
            billing.send_at(range(THEN_MS + 100, THEN_MS + 110))  # behind its ends
        else:
            made.backfill("all", billing.properties, into={billing.sums: again})
    assert amounts(billing, again.name) == [1] * 100
    assert amounts(billing, billing.sums.name) == []
