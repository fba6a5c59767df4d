"""`oncelog topics --acls`: what it prints is enough for what it is printed for, and nothing of it is left over."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

import pytest
from click.testing import CliRunner, Result

from oncelog.cli import main
from oncelog.client import Consumer, KafkaError, KafkaException, Producer
from oncelog.embedded import Server
from oncelog.security.bindings import EVERYTHING, Binding, Pattern, Permission
from oncelog.security.documents import Change, Document, Kind
from oncelog.security.operations import CLUSTER_NAME, Operation, Resource
from oncelog.spark.sink.errors import MayPass, SinkRefused
from tests.cli.running import Oncelog
from tests.raw import RawConnection
from tests.runner.flows import Billing
from tests.server.admin_support import CLOCK
from tests.server.test_access import ASKED
from tests.spark.copying.support import Copy
from tests.spark.sink.support import Sink, numbers, values, values_of
from tests.spark.sink.test_transactional import TransactionalSink

WHO = "User:ANONYMOUS"
ALL = {
    Binding(resource, Pattern.LITERAL, name, WHO, EVERYTHING, Operation.ALL, Permission.ALLOW).key: True
    for resource, name in (
        (Resource.TOPIC, EVERYTHING),
        (Resource.GROUP, EVERYTHING),
        (Resource.CLUSTER, CLUSTER_NAME),
    )
}
_numbers = count(1)


def printed(*words: str) -> list[str]:
    said = told("topics", "--acls", *words, "--principal", WHO)
    assert said.exit_code == 0, said.output
    return said.output.splitlines()


def told(*words: str) -> Result:
    """By a command that asks no broker."""
    return CliRunner().invoke(main, words)


@contextmanager
def asking() -> Iterator[Server]:
    """A server that asks for rights, and has given all of them."""
    name, value = ASKED.split("=")
    with Server(settings={name: value, "group.initial.rebalance.delay.ms": "0"}) as server:
        allow_everything(server)
        yield server


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with asking() as server:
        yield server


def test_a_principal_without_a_type_is_refused_with_one() -> None:
    said = told("topics", "--acls", "producer", "orders", "--principal", "alice")
    assert said.exit_code == 2 and "expected TYPE:NAME, such as User:alice" in said.output


def put(server: Server, change: Change) -> None:
    broker = server.broker
    server.call(lambda: broker.turns.run(broker.topics.changing_document(Kind.ACLS, change, CLOCK.now())))


def allow_everything(server: Server) -> None:
    put(server, lambda document: {**document, **ALL})


@contextmanager
def rights_of(server: Server, commands: list[str]) -> Iterator[None]:
    """What these commands give, and nothing else."""

    def only_these(document: Document) -> Document:
        return {key: value for key, value in document.items() if key not in ALL}

    oncelog = Oncelog(server.bootstrap_servers)
    for command in commands:
        words = shlex.split(command)
        assert words.pop(0) == "oncelog"
        oncelog(" ".join(words[:2]), *words[2:])
    put(server, only_these)
    try:
        yield
    finally:
        put(server, lambda document: dict(ALL))


@pytest.fixture
def topic(server: Server) -> str:
    name = f"topic-{next(_numbers)}"
    with RawConnection(server.bootstrap_servers) as raw:
        assert raw.create_topic(name, 2, {}) == 0
    return name


def without_each(command: list[str]) -> Iterator[list[str]]:
    """These commands with one operation less."""
    for at, each in enumerate(command):
        words = shlex.split(each)
        places = [place for place, word in enumerate(words) if word == "--operation"]
        for place in places:
            fewer = shlex.join(words[:place] + words[place + 2 :])
            yield [*command[:at], *([fewer] if len(places) > 1 else []), *command[at + 1 :]]


def produce(server: Server, topic: str) -> None:
    failures: list[KafkaError | None] = []
    settings = {"bootstrap.servers": server.bootstrap_servers, "enable.idempotence": True, "message.timeout.ms": 5000}
    with Producer(settings) as producer:
        producer.produce(topic, b"v", on_delivery=lambda error, message: failures.append(error))
        producer.flush(10)
    (failure,) = failures
    if failure is not None:
        raise KafkaException(failure)


def produce_and_resume(server: Server, topic: str) -> None:
    failures: list[KafkaError | None] = []
    settings = {"bootstrap.servers": server.bootstrap_servers, "message.timeout.ms": 5000}

    def write(producer: Producer, *values: bytes) -> None:
        for value in values:
            producer.produce(topic, value, on_delivery=lambda error, message: failures.append(error))
        assert producer.flush(10) == 0

    with Producer(settings) as producer:
        producer.pin(topic)
        producer.saved()
        write(producer, b"v")
        saved = producer.saved()
        write(producer, b"w")
    with Producer(settings, saved=saved) as producer:
        write(producer, b"w", b"x")
    for failure in failures:
        if failure is not None:
            raise KafkaException(failure)


def consume(server: Server, topic: str, group: str) -> None:
    settings = {"bootstrap.servers": server.bootstrap_servers, "group.id": group, "auto.offset.reset": "earliest"}
    with Consumer(settings) as consumer:
        consumer.subscribe([topic])
        message = consumer.poll(60)
        assert message is not None
        failure = message.error()
        if failure is not None:
            raise KafkaException(failure)
        consumer.commit(message=message, asynchronous=False)


def test_a_producer_needs_no_more(server: Server, topic: str) -> None:
    commands = printed("producer", topic)
    assert commands == [f"oncelog acls add --allow-principal User:ANONYMOUS --operation Write --topic {topic}"]
    with rights_of(server, commands):
        produce(server, topic)
    for fewer in without_each(commands):
        with rights_of(server, fewer), pytest.raises(KafkaException):
            produce(server, topic)


def test_a_saved_producer_needs_no_more(server: Server, topic: str) -> None:
    commands = printed("saved-producer", topic)
    with rights_of(server, commands):
        produce_and_resume(server, topic)
    for fewer in without_each(commands):
        with rights_of(server, fewer), pytest.raises(KafkaException):
            produce_and_resume(server, topic)


def test_a_consumer_needs_no_more(server: Server, topic: str) -> None:
    produce(server, topic)
    group = f"group-{next(_numbers)}"
    commands = printed("consumer", topic, "--group", group)
    with rights_of(server, commands):
        consume(server, topic, group)
    for fewer in without_each(commands):
        with rights_of(server, fewer), pytest.raises(KafkaException):
            consume(server, topic, group)


def test_a_flow_needs_no_more(server: Server) -> None:
    billing = Billing(f"billing-{next(_numbers)}", server.bootstrap_servers)
    billing.make_topics()
    billing.send(range(20))
    words = ("--name", billing.name, "--through", billing.between.name, "--to", billing.sums.name)
    with rights_of(server, printed("flow", billing.orders.name, *words)):
        billing.flow().run(billing.properties, until="end")
    billing.check(20)


@pytest.mark.parametrize("is_transactional", [False, True])
def test_what_is_printed_for_a_sink_is_enough_also_for_a_batch_that_comes_again(
    server: Server, topic: str, is_transactional: bool
) -> None:
    name, rows = f"sink-{next(_numbers)}", numbers(0, 30)
    kind, words = (TransactionalSink, ["--transactional"]) if is_transactional else (Sink, [])
    commands = printed("sink", topic, "--name", name, *words)
    with rights_of(server, commands):
        for _ in range(2):
            sink = kind(server, topic, sink_name=name)
            sink.run(0, [rows])
    found = sink.seen(2) if isinstance(sink, TransactionalSink) else values(server, topic)
    assert found == values_of(rows)
    own = [command for command in commands if command.endswith(f"--topic {topic}")]
    for lacking in (own, commands[len(own) :]):
        left = [command for command in commands if command not in lacking]
        with rights_of(server, left), pytest.raises((SinkRefused, KafkaException, MayPass)):
            kind(server, topic, sink_name=f"{name}-more").run(0, [rows])


def test_what_is_printed_for_a_copy_is_enough_cluster_by_cluster(server: Server, topic: str) -> None:
    """Each side is a server of its own here, and both give nothing but what is printed for them."""
    produce(server, topic)
    lines = printed("copy", topic, "--to", topic, "--name", "mirror")
    at_source, at_destination = (
        lines[1 : lines.index("# at the destination")],
        lines[lines.index("# at the destination") + 1 :],
    )
    with asking() as other:
        copy = Copy(server.bootstrap_servers, topic, topic, destination_servers=other.bootstrap_servers, name="mirror")
        with rights_of(server, at_source), rights_of(other, at_destination):
            assert sum(each.records for each in copy.run()) == 1
        assert values(other, topic) == values(server, topic) == [b"v"]


def test_a_copy_is_told_cluster_by_cluster() -> None:
    lines = printed("copy", "orders", "--to", "orders", "--name", "mirror")
    assert [line for line in lines if line.startswith("#")] == ["# at the source", "# at the destination"]
    assert lines[-1].endswith("--topic oncelog.copy.mirror")


ADD = "oncelog acls add --allow-principal User:ANONYMOUS"


def test_a_saved_producer_in_a_group_needs_it() -> None:
    assert printed("saved-producer", "orders", "--group", "billing") == [
        f"{ADD} --operation Write --operation Read --topic orders",
        f"{ADD} --operation Read --group billing",
    ]


def test_a_sink_that_writes_in_transactions_needs_its_id() -> None:
    plain = printed("sink", "sums", "--name", "q")
    theirs = f"{ADD} --operation Write --operation Describe --transactional-id oncelog.sink.q"
    assert printed("sink", "sums", "--name", "q", "--transactional") == [*plain, theirs]
    assert "--transactional goes with a sink" in told("topics", "--acls", "producer", "t", "--transactional").output


@pytest.mark.parametrize(
    ("words", "lacking"),
    [
        (("producer",), "TOPIC"),
        (("consumer", "t"), "--group"),
        (("sink", "t"), "--name"),
        (("copy", "t", "--name", "n"), "--to"),
    ],
)
def test_what_is_not_said_is_asked_for(words: tuple[str, ...], lacking: str) -> None:
    said = told("topics", "acls", *words)
    assert said.exit_code == 2 and lacking in said.output
