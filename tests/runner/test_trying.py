"""`oncelog flow try`: other code over what a flow has committed, with an exit code for CI."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

from oncelog.client import Consumer, Producer, TopicPartition
from oncelog.embedded import Server
from oncelog.flow import Context, Flow, Topic, json_of, text
from tests.cli.running import Oncelog, Said
from tests.runner.flows import Billing, Order, Owed, book

Step = Callable[[Owed, Order, Context[str]], tuple[Owed | None, list[Owed]]]
Tried = Callable[..., Said]


@dataclass(frozen=True)
class Counted:
    amount: int = 0
    times: int = 0


def doubled(owed: Owed, order: Order, at: Context[str]) -> tuple[Owed | None, list[Owed]]:
    """Of one customer, from somewhere on."""
    total = Owed(owed.amount + order.amount * (2 if order.customer == "c3" and owed.amount > 10 else 1))
    return total, [total]


def failing(owed: Owed, order: Order, at: Context[str]) -> tuple[Owed | None, list[Owed]]:
    if order.customer == "c3":
        raise ValueError("not this one")
    return book(owed, order, at)


def counting(counted: Counted, order: Order, at: Context[str]) -> tuple[Counted | None, list[Owed]]:
    after = Counted(counted.amount + order.amount, counted.times + 1)
    return after, [Owed(after.amount)]


def flow(billing: Billing, step: Step = book) -> Flow:
    made = Flow(billing.name, version="2")
    grouped = made.read(billing.orders, name="orders").through(billing.between, key=lambda order: order.customer)
    grouped.step("owed", Owed, step).write(billing.sums)
    return made


@pytest.fixture
def billing(servers: str, topic: str) -> Billing:
    """Two runs of it are over."""
    found = Billing(topic, servers)
    found.make_topics()
    for numbers in (range(30), range(30, 60)):
        found.send(numbers)
        found.flow().run(found.properties, until="end")
    return found


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> Tried:
    def run(billing: Billing, flow: Flow, *options: str) -> Said:
        module = ModuleType("tried_flow")
        vars(module)["flow"] = flow
        monkeypatch.setitem(sys.modules, "tried_flow", module)
        return Oncelog(billing.servers).run("flow try", "tried_flow:flow", *options)

    return run


def ends(billing: Billing) -> list[tuple[int, int] | None]:
    """Of all that the flow writes."""
    with Consumer(billing.properties) as consumer:
        names = [name for name in consumer.list_topics().topics if billing.name in name]
        places = [TopicPartition(name, at) for name in sorted(names) for at in range(1)]
        return [consumer.get_watermark_offsets(place, timeout=30) for place in places]


def test_the_same_code_gives_0_and_nothing_is_written(billing: Billing, tried: Tried) -> None:
    before = ends(billing)
    said = tried(billing, flow(billing), "-J")
    assert said.code == 0, said
    cells = said.json["cells"]
    assert said.json["differs"] is False and sum(each["states_differ"] for each in cells) == 0
    assert sum(each["records"] for each in cells) == sum(each["outputs"] for each in cells) == 120
    assert sum(each["same"] for each in cells) == 120
    assert ends(billing) == before


def test_what_would_be_written_otherwise_gives_1_and_is_shown(billing: Billing, tried: Tried) -> None:
    said = tried(billing, flow(billing, doubled), "-J")
    assert said.code == 1
    differ = [each for cell in said.json["cells"] for each in cell["differences"]]
    assert differ and {each["stands"]["key"] for each in differ} == {each["comes"]["key"] for each in differ} == {"c3"}
    (state,) = [each for cell in said.json["cells"] for each in cell["states"]]
    assert (state["step"], state["key"]) == ("owed", "c3") and state["stands"] != state["comes"]
    lines = tried(billing, flow(billing, doubled), "--show", "1").lines
    assert sum("would be" in line for line in lines) == 2
    assert tried(billing, flow(billing, doubled), "--stage", "orders").code == 0


def test_a_new_shape_of_the_state_alone_can_be_passed_over(billing: Billing, tried: Tried) -> None:
    made = Flow(billing.name, version="2")
    grouped = made.read(billing.orders, name="orders").through(billing.between, key=lambda order: order.customer)
    grouped.step("owed", Counted, counting).write(billing.sums)
    assert tried(billing, made).code == 1
    said = tried(billing, made, "--ignore-state", "-J")
    assert (said.code, said.json["differs"]) == (0, False)


def test_a_record_at_which_the_new_code_stops_is_named(billing: Billing, tried: Tried) -> None:
    said = tried(billing, flow(billing, failing))
    (line,) = [line for line in said.lines if "the new code stops" in line]
    assert said.code == 1 and billing.between.name in line and "ValueError: not this one" in line


def test_what_cannot_be_tried_gives_2(billing: Billing, tried: Tried) -> None:
    other = Billing(f"{billing.name}-x", billing.servers)
    for program, why in (
        (flow(other), "there is no flow"),
        (billing.copy(), "belongs to another flow"),
        (_calling(billing), "to try it would be to make the call rate"),
    ):
        said = tried(billing, program)
        assert said.code == 2 and why in said.refusal, said
    assert "no stage other" in tried(billing, flow(billing), "--stage", "other").refusal


def test_what_takes_more_memory_than_a_trial_may_gives_2(
    billing: Billing, tried: Tried, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oncelog.runner.flow_trying.MOST_BYTES", 20_000)
    said = tried(billing, flow(billing))
    assert said.code == 2 and "stage orders, cell 0: what it read and wrote since commit" in said.refusal, said
    assert "Try less of it (--records)" in said.refusal


def rated(order: Order, at: Context[str]) -> Owed:
    return Owed(order.amount)


def more(order: Order, at: Context[str]) -> Owed:
    return Owed(order.amount + 1_000)


def test_a_call_is_made_or_another_function_stands_in(own_server: Server, topic: str, tried: Tried) -> None:
    billing = Billing(topic, own_server.bootstrap_servers)
    billing.make_topics()
    billing.send(range(30))
    _calling(billing).run(billing.properties, until="end")
    stand_in = f"rate={__name__}:more"
    assert tried(billing, _calling(billing), "--call", "rate").code == 0
    said = tried(billing, _calling(billing), "--call", stand_in, "-J")
    assert said.code == 1 and sum(each["new"] for each in said.json["cells"]) == 30
    assert (
        "has no call rat; the nearest known one is rate" in tried(billing, _calling(billing), "--call", "rat").refusal
    )
    for missing in ("nothing", ""):
        said = tried(billing, _calling(billing), "--call", f"rate={__name__}:{missing}")
        assert said.code == 2 and ("None is no function" in said.err or "expected MODULE:FUNCTION" in said.err)


def test_joins_and_files_are_tried(own_server: Server, topic: str, tried: Tried, tmp_path: Path) -> None:
    billing = Billing(topic, own_server.bootstrap_servers)
    owed = Topic(f"{topic}-owed", text, json_of(Owed), partitions=2)
    billing.make_topics(billing.orders, billing.sums, owed)

    def made(more: int) -> Flow:
        found = Flow(topic, version="1")
        read = found.read(billing.orders, name="orders")
        read.map(lambda order: Owed(order.amount + more)).files(str(tmp_path / "lake"), rows=Owed)
        read.join(found.table(owed), lambda order, owed: Owed(owed.amount + order.amount + more)).write(billing.sums)
        return found

    with Producer(billing.properties | {"partitioner": "murmur2"}) as producer:
        for number in range(30):
            producer.produce(owed.name, key=f"o{number}", value=owed.value.encode(Owed(1000 + number)))
        producer.flush()
    billing.send(range(30))
    made(0).run(billing.properties, until="end")
    said = tried(billing, made(0), "-J")
    assert said.code == 0 and sum(each["same"] for each in said.json["cells"]) == 60, said
    said = tried(billing, made(1), "-J")
    new = {each["stage"]: 0 for each in said.json["cells"]}
    for each in said.json["cells"]:
        new[each["stage"]] += each["new"]
    assert said.code == 1 and new == {"orders": 30, "orders-files": 30}


def _calling(billing: Billing) -> Flow:
    made = Flow(billing.name, version="2")
    grouped = made.read(billing.orders, name="orders").through(billing.between, key=lambda order: order.customer)
    grouped.call(rated, name="rate").write(billing.sums)
    return made
