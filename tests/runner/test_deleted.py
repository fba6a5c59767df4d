"""Topics that are deleted, or deleted and made again, while a flow is at work."""

import threading
from collections.abc import Callable

import pytest

from oncelog.client import AdminClient, KafkaError
from oncelog.client.door import Input, Metadata
from oncelog.flow import FlowFailed, FlowRefused
from oncelog.runner.damaged import Trouble
from oncelog.runner.gone import UsedTopics
from tests.cli.running import Oncelog
from tests.runner.flows import Billing, make_topic
from tests.runner.test_refusals import set_config
from tests.waiting import until

SOON = {"topic.metadata.refresh.interval.ms": "500"}


@pytest.fixture
def billing(servers: str, topic: str, monkeypatch: pytest.MonkeyPatch) -> Billing:
    monkeypatch.setattr("oncelog.runner.engine.GONE_S", 0.5)
    monkeypatch.setattr("oncelog.runner.engine.LOOKS_EVERY_S", 0.1)
    monkeypatch.setattr("oncelog.runner.life.GOODBYE_S", 3_600.0)  # a cell that says it ends then
    found = Billing(topic, servers)
    found.make_topics()
    return found


def delete(billing: Billing, name: str) -> None:
    with AdminClient(billing.properties) as admin:
        for future in admin.delete_topics([name]).values():
            future.result(30)


def make(billing: Billing, name: str, partitions: int) -> None:
    """A broker may go on for a moment to have the old one."""

    def made() -> bool:
        try:
            make_topic(billing.servers, name, partitions)
        except Exception as refused:
            assert "exists" in str(refused)
            return False
        return True

    until(made, f"room for a new {name}")


def committed(billing: Billing) -> list[int]:
    """Of each stage, how many outputs its commits speak of."""
    told = Oncelog(billing.servers)("flow describe", billing.name, "-J").json
    return [sum(each["slots"] for cell in stage["cells"] for each in cell["outputs"]) for stage in told["stages"]]


def kinds(billing: Billing) -> dict[str, tuple[str, int]]:
    """Each topic, and how many partitions it has."""
    journal = f"oncelog.flow.{billing.name}"
    return {
        "input": (billing.orders.name, 2),
        "output": (billing.sums.name, 2),
        "through": (billing.between.name, 3),
        "journal": (f"{journal}.orders", 2),
        "register": (journal, 1),
    }


SAID = {
    "input": "{flow}, stage orders, cell 0: its input {topic} was deleted",
    "output": "{flow}, stage {flow}-by-customer, cell 0: its output {topic} was deleted",
    "through": "{flow}, stage orders, cell 0: its output {topic} was deleted",
    "journal": "{flow}, stage orders, cell 0: its journal {topic} was deleted",
    "register": "flow {flow}: topic {topic}, which holds the flow's register, ",
}
# What the next start says; None: it goes on.
NEXT = {
    "input": "its input {topic} was deleted and made again since the last commit",
    "output": "its output {topic}, of which it has filled",
    "through": "its output {topic}, of which it has filled",
    "journal": "flow {flow}: its journal {topic} was deleted and made again since the last run",
    "register": None,
}


@pytest.mark.parametrize(
    "is_made_again", [pytest.param(False, marks=pytest.mark.thorough), True], ids=["deleted", "made again"]
)
@pytest.mark.parametrize("kind", [*SAID])
def test_a_topic_that_goes_under_a_flow_stops_who_uses_it_with_words(
    billing: Billing, kind: str, is_made_again: bool
) -> None:
    billing.send(range(20))
    run = billing.flow().start(billing.properties | SOON)
    billing.wait_for(20)
    until(
        lambda: committed(billing) == [20, 20],
        "commits of all that was written",
    )
    name, partitions = kinds(billing)[kind]
    delete(billing, name)
    if is_made_again:
        make(billing, name, partitions)
    if kind == "output":
        billing.send(range(20, 30))
    words = SAID[kind].format(flow=billing.name, topic=name)
    failure = until(lambda: str(said) if words in str(said := run.exception()) else "", words)
    assert "`oncelog flow reset" in failure or "Start the flow again" in failure
    assert run.is_active or kind in ("through", "register"), "cells that do not use it go on"
    run.stop()
    if kind == "output":
        assert committed(billing)[1] <= 20, "what is not acknowledged is not committed"
    if kind in ("input", "output", "through"):
        asked = Oncelog(billing.servers).run("flow reset", billing.name, "--dry-run")
        assert "has not said goodbye" not in asked.err

    if not is_made_again and kind in ("input", "output", "journal"):
        with pytest.raises(FlowRefused, match=r"misses topics|is not there any more"):
            billing.flow().run(billing.properties, until="end")
        make(billing, name, partitions)
    if name.startswith("oncelog.flow.") and (is_made_again or kind == "journal"):
        set_config(billing, name, "cleanup.policy", "compact")
    said = NEXT[kind]
    if said is None:
        billing.send(range(20, 30))
        billing.flow().run(billing.properties, until="end")
        billing.check(30)
        return
    with pytest.raises((FlowRefused, FlowFailed)) as refused:
        billing.flow().run(billing.properties, until="end")
    assert said.format(flow=billing.name, topic=name) in str(refused.value)
    assert "`oncelog flow reset" in str(refused.value)
    if kind != "output":
        billing.check(20)  # nothing more was written


def test_who_reads_a_topic_that_was_made_again_before_it_hears_of_it_asks(
    billing: Billing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its log does not hold the offset: metadata tells why, and it says goodbye."""
    look, met = UsedTopics.look, Trouble.met
    is_met = threading.Event()

    def look_late(self: UsedTopics, metadata: Metadata) -> bool:
        return is_met.is_set() and look(self, metadata)

    def meet(self: Trouble, reading: Callable[[], Input | None], error: KafkaError) -> None:
        if error.code() == KafkaError._AUTO_OFFSET_RESET:
            is_met.set()
        met(self, reading, error)

    monkeypatch.setattr("oncelog.runner.engine.GONE_S", 3_600.0)  # between the two it is not there
    monkeypatch.setattr(UsedTopics, "look", look_late)
    monkeypatch.setattr(Trouble, "met", meet)
    billing.send(range(20))
    run = billing.flow().start(billing.properties)
    billing.wait_for(20)
    delete(billing, billing.between.name)
    make(billing, billing.between.name, billing.between.partitions)
    said = f"{billing.name}-by-customer, cell {{}}: its input {billing.between.name} was deleted and made again"
    words = [said.format(cell) for cell in range(billing.between.partitions)]
    until(lambda: all(each in str(run.exception()) for each in words), "its readers to say why they stop")
    run.stop()
    asked = Oncelog(billing.servers).run("flow reset", billing.name, "--dry-run")
    assert "has not said goodbye" not in asked.err
