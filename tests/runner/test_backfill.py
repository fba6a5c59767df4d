"""A backfill beside the live flow: the same over what was, once, however often it is called."""

from dataclasses import replace

import pytest

from oncelog.embedded import Server
from oncelog.flow import Flow, FlowFailed, FlowRefused
from tests.cli.running import Oncelog
from tests.runner.flows import Billing, Order, Owed, everything, make_topic
from tests.runner.test_commands import Written
from tests.runner.test_commands import written as written

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


def test_from_the_command_line_into_a_topic_of_another_number_of_partitions(
    own_server: Server, topic: str, written: Written
) -> None:
    billing = Billing(topic, own_server.bootstrap_servers)
    billing.make_topics()
    billing.send_at(range(THEN_MS, THEN_MS + 2_000, 20))
    oncelog, target, again = Oncelog(billing.servers), written(billing), f"{topic}-again"
    words = [target, "may", "--into", f"{billing.sums.name}={again}"]
    words += ["--since", "2023-11-14T22:13:20.400", "--until", str(THEN_MS + 1_000)]
    missing = oncelog.run("flow backfill", *words).refusal
    assert f"flow {topic}-may misses topics: {again}, which it writes. Make them first" in missing
    make_topic(billing.servers, again, 4)
    for _ in range(2):  # the second one finds it finished
        oncelog("flow backfill", *words)
    assert amounts(billing, again) == list(range(1, 31)) and amounts(billing, billing.sums.name) == []


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        ("", 1, "-sums goes where? Say it"),
        ("--into orders=elsewhere", 1, "the flow does not write orders, but "),
        ("--into elsewhere", 2, "expected THERE=HERE, such as totals=totals-may"),
        ("--into {name}-sums=else/where", 1, "'else/where' is or becomes part of a topic's name"),
        ("--since noon", 2, "noon: expected milliseconds since 1970, or 2026-05-01, or 2026-05-01T12:00"),
    ],
)
def test_a_command_that_says_too_little_is_told_what_to_say(
    own_server: Server, topic: str, written: Written, options: str, code: int, words: str
) -> None:
    target = written(Billing(topic, own_server.bootstrap_servers))
    said = Oncelog(own_server.bootstrap_servers).run(
        "flow backfill", target, "may", *options.format(name=topic).split()
    )
    assert words in said.err.splitlines()[-1] and said.code == code and "Traceback" not in said.err
