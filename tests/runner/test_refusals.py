"""What cannot begin is told in one sentence, with what to do about it."""

import subprocess
import sys
from typing import Any

import pytest

from oncelog.client import AdminClient
from oncelog.client.admin import AlterConfig, ConfigResource, ResourceType
from oncelog.embedded import Server
from oncelog.flow import Flow, FlowRefused, Topic, json_of, text
from oncelog.flow.register import FlowParts, FlowRegister, encoded
from oncelog.runner.agreeing import check_is_this_flow
from oncelog.runner.layout import MOST_LETTERS, Layout, named
from oncelog.slots.register import Record
from tests.logged import messages
from tests.runner.flows import Billing, Order, Owed, make_topic
from tests.waiting import until


@pytest.fixture
def billing(own_server: Server, topic: str) -> Billing:
    return Billing(topic, own_server.bootstrap_servers)


def refused(flow: Flow, properties: dict[str, Any], **how: Any) -> str:
    with pytest.raises(FlowRefused) as found:
        flow.run(properties, until="end", **how)
    return str(found.value)


def test_topics_that_are_missing_are_named_with_the_command_that_makes_them(billing: Billing) -> None:
    orders, sums = billing.orders.name, billing.sums.name
    assert refused(billing.flow(), billing.properties) == (
        f"flow {billing.name} misses topics: {orders}, which it reads; {sums}, which it writes. Make them first, for "
        f"example with `oncelog topics create -b {billing.servers} -p 2 {orders} {sums}`"
    )
    billing.make_topics(billing.orders)
    assert f"misses topics: {sums}, which it writes. Make" in refused(billing.flow(), billing.properties)


def test_a_table_that_is_missing_is_to_be_compacted(billing: Billing) -> None:
    flow = Flow(billing.name, version="1")
    customers = Topic(f"{billing.name}-customers", text, json_of(Owed), partitions=billing.orders.partitions)
    flow.read(billing.orders).join(flow.table(customers), lambda order, owed: owed).write(billing.sums)
    create = f"oncelog topics create -b {billing.servers} -p 2 -c cleanup.policy=compact {customers.name}"
    assert f" and `{create}`" in refused(flow, billing.properties)


def test_a_topic_with_other_partitions(billing: Billing) -> None:
    billing.make_topics(billing.orders)
    make_topic(billing.servers, billing.sums.name, 5)
    assert f"topic {billing.sums.name} has 5 partitions, and flow {billing.name} says 2" in refused(
        billing.flow(), billing.properties
    )


def test_another_flow_under_the_same_name(billing: Billing) -> None:
    billing.make_topics()
    billing.flow().run(billing.properties, until="end")
    said = refused(billing.copy(), billing.properties)
    assert f"the name {billing.name} belongs to another flow of this cluster" in said
    assert f"orders ({billing.orders.name} to {billing.between.name})" in said


def test_a_journal_of_somebody_else_s(billing: Billing) -> None:
    billing.make_topics()
    make_topic(billing.servers, f"oncelog.flow.{billing.name}.orders", 2)
    assert f"the journal oncelog.flow.{billing.name}.orders has cleanup.policy=delete" in refused(
        billing.flow(), billing.properties
    )


def test_a_journal_that_somebody_removed_is_not_made_anew(billing: Billing) -> None:
    """Its outputs would be written again, and counted twice behind it."""
    billing.make_topics()
    billing.send(range(20))
    billing.flow().run(billing.properties, until="end")
    journal = f"oncelog.flow.{billing.name}.orders"
    with AdminClient(billing.properties) as admin:
        admin.delete_topics([journal])[journal].result(30)
    for _ in range(2):
        assert f"flow {billing.name}: its journal {journal} is not there any more" in refused(
            billing.flow(), billing.properties
        )
    billing.check(20)
    asked = ["flow", "reset", billing.name, "-b", billing.servers]
    subprocess.run([sys.executable, "-m", "oncelog", *asked], check=True, capture_output=True)
    billing.flow().run(billing.properties, until="end")
    assert len(billing.written()) == 40


def test_what_compaction_could_take_from_under_a_flow_is_told(
    billing: Billing, caplog: pytest.LogCaptureFixture
) -> None:
    billing.make_topics(billing.orders, billing.sums)
    billing.flow().run(billing.properties, until="end")
    assert not messages(caplog, "oncelog.flow")  # outputs that are not compacted, and journals as a flow makes them

    set_config(billing, billing.sums.name, "cleanup.policy", "compact")
    set_config(billing, f"oncelog.flow.{billing.name}.orders", "delete.retention.ms", "60000")
    billing.flow().run(billing.properties, until="end")
    assert [said.partition(".")[0] for said in sorted(caplog.messages, reverse=True)] == [
        f"topic {billing.sums.name} is compacted and has min",
        "the journal oncelog",
    ]

    caplog.clear()
    set_config(billing, billing.sums.name, "min.compaction.lag.ms", "86400000")
    set_config(billing, f"oncelog.flow.{billing.name}.orders", "delete.retention.ms", "86400000")
    billing.flow().run(billing.properties, until="end")
    assert not messages(caplog, "oncelog.flow")


def test_a_table_whose_rows_may_go(billing: Billing, caplog: pytest.LogCaptureFixture) -> None:
    billing.make_topics()
    flow = Flow(billing.name, version="1")
    table = Topic(f"{billing.name}-table", text, json_of(Owed), partitions=2)
    make_topic(billing.servers, table.name, 2)
    flow.read(billing.orders).join(flow.table(table), lambda order, owed: owed).write(billing.sums)
    caplog.set_level("WARNING", "oncelog.flow")
    flow.run(billing.properties, until="end")
    assert [said.partition(":")[0] for said in caplog.messages] == [
        f"topic {table.name} is read as a table and has cleanup.policy=delete"
    ]
    caplog.clear()
    set_config(billing, table.name, "cleanup.policy", "compact")
    flow.run(billing.properties, until="end")
    assert not messages(caplog, "oncelog.flow")
    set_config(billing, table.name, "delete.retention.ms", "60000")
    flow.run(billing.properties, until="end")
    assert "has delete.retention.ms=60000: a flow that stands still for longer keeps rows" in caplog.text


def test_a_table_that_the_flow_writes_itself(billing: Billing) -> None:
    flow = Flow(billing.name, version="1")
    table = flow.table(billing.sums)
    flow.read(billing.orders).join(table, lambda order, owed: owed).write(billing.sums)
    assert refused(flow, billing.properties) == (
        f"flow {billing.name} writes topic {billing.sums.name} and reads it as a table. Join with it in another flow"
    )


def set_config(billing: Billing, topic: str, name: str, value: str) -> None:
    resource = ConfigResource(ResourceType.TOPIC, topic, [AlterConfig(name, value)])
    with AdminClient(billing.properties) as admin:
        for future in admin.incremental_alter_configs([resource]).values():
            future.result(30)

        def is_heard() -> bool:
            """A Kafka that is busy may say the former value for a while."""
            (future,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
            return future.result(30)[name].value == value

        until(is_heard, f"{topic} to have {name}={value}")


def test_a_run_with_an_end_does_not_become_one_without(billing: Billing) -> None:
    billing.make_topics()
    billing.flow().run(billing.properties, until="end", run_id="noon")
    with pytest.raises(FlowRefused, match='run noon was begun with until="end"'):
        billing.flow().start(billing.properties, run_id="noon")


def test_what_feeds_itself_has_no_end(billing: Billing) -> None:
    flow = Flow(billing.name, version="1")
    looped = Topic(f"{billing.name}-looped", text, json_of(Order), partitions=2)
    flow.read(billing.orders).merge("both", flow.read(looped)).write(looped)
    assert "comes to no end" in refused(flow, billing.properties)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"acks": "1"}, "acks = 1: a flow writes every record once, and needs all"),
        (
            {"enable.idempotence": "false"},
            "enable.idempotence = false: a flow writes every record once, and needs true",
        ),
        ({"group.id": "g"}, "group.id cannot be set for a flow: positions are in the flow's journals. Leave it out"),
    ],
    ids=["acks", "idempotence", "group"],
)
def test_properties_that_would_not_be_exactly_once(billing: Billing, given: dict[str, str], said: str) -> None:
    assert refused(billing.flow(), billing.properties | given) == said


def test_names_that_cannot_be_topics() -> None:
    flow = Flow("a.b", version="1")
    flow.read(Topic("in", text, json_of(Order))).map(lambda order: Owed(order.amount)).write(
        Topic("out", text, json_of(Owed))
    )
    assert "flow a.b: a dot stands before the name of a stage" in refused(flow, {"bootstrap.servers": "127.0.0.1:1"})


def test_without_pyspark_the_extra_is_named() -> None:
    program = "import sys; sys.modules['pyspark'] = None; from oncelog.spark import session"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "oncelog.spark needs pyspark, which is not installed: pip install 'oncelog[spark]'" in ran.stderr


def test_without_msgspec_the_extra_is_named() -> None:
    program = "import sys; sys.modules['msgspec'] = None; import oncelog.flow"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "oncelog.flow needs msgspec, which is not installed: pip install 'oncelog[flow]'" in ran.stderr


@pytest.mark.parametrize(
    ("run_id", "words"),
    [(7, "run_id: expected a text, such as 2024-05-01, not int"), ("", "not an empty one"), ("x" * 250, "249 are the")],
    ids=["a number", "an empty one", "too long"],
)
def test_a_run_id_that_the_register_could_not_hold(billing: Billing, run_id: Any, words: str) -> None:
    """Read there, it would have kept the flow from ever beginning again."""
    for share in (False, True):
        with pytest.raises((TypeError, ValueError), match=words):
            billing.flow().start(billing.properties, run_id=run_id, share=share)


def test_where_files_go_stands_in_the_register_without_keys(billing: Billing) -> None:
    """They may change, and be longer than a name."""

    def parts(url: str) -> list[tuple[str, str, str]]:
        flow = Flow(billing.name, version="1")
        flow.read(billing.orders).files(url)
        return Layout(flow.program).parts

    clean = [(f"{billing.orders.name}-files", billing.orders.name, "s3://lake/orders")]
    assert parts("s3://lake/orders") == parts("s3://key:sec/ret@lake/orders?region=x") == clean
    (long,), (other,) = (parts(f"s3://lake/{'x' * 300}{end}") for end in "ab")
    assert len(long[2]) <= MOST_LETTERS and long != other
    assert named(long[2]) == long[2]


def test_a_flow_whose_register_has_keys_of_a_store_goes_on(billing: Billing) -> None:
    """As it was written before keys were left out."""
    flow = Flow(billing.name, version="1")
    flow.read(billing.orders).files("s3://new:key@lake/orders")
    layout, register = Layout(flow.program), FlowRegister()
    then = [(stage, source, "s3://old:key@lake/orders") for stage, source, _ in layout.parts]
    key, value = encoded(FlowParts(nonce="n", parts=then))
    register.read([Record(0, key, value)])
    check_is_this_flow(layout, register)
    flow = Flow(billing.name, version="1")
    flow.read(billing.orders).files("s3://lake/others")
    with pytest.raises(FlowRefused, match="belongs to another flow") as found:
        check_is_this_flow(Layout(flow.program), register)
    assert "old:key" not in str(found.value)
