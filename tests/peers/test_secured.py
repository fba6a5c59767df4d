"""Every client gets in by TLS and a password, as the files of `--secure` have it, and by a certificate of its own."""

import asyncio
import os
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oncelog.embedded import Server
from oncelog.references import properties
from tests.cluster.stock.in_go import getting_in, program
from tests.peers.jars import MissingPeer, kafka_java, need_or_skip
from tests.server.tls_support import World, new_world

TOOL_SECONDS = 90
PATIENCE_S = 30
LARGE = b"x" * 900_000


@pytest.fixture(scope="module", params=[1, pytest.param(3, marks=pytest.mark.thorough)])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Or a cluster of three."""
    with Server(secure=True, brokers=request.param, data_dir=str(tmp_path_factory.mktemp("secured"))) as server:
        yield server


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return new_world(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def mutual(world: World) -> Iterator[Server]:
    """Who is somebody by a certificate."""
    with world.serve(ssl_client_auth="required") as server:
        yield server


def test_librdkafka_sends_and_receives(server: Server) -> None:
    from confluent_kafka import Consumer, Producer

    values = [LARGE, *(b"%d" % number for number in range(100)), LARGE]
    producer = Producer(server.client_config)
    for value in values:
        producer.produce("librdkafka", value)
    assert producer.flush(PATIENCE_S) == 0
    consumer = Consumer({**server.client_config, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["librdkafka"])
    found: list[Any] = []
    while len(found) < len(values):
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        assert message.error() is None
        found.append(message.value())
    consumer.close()
    assert found == values


def test_our_client_sends_and_receives(server: Server) -> None:
    from oncelog.client import Consumer, Producer

    values = [LARGE, *(b"%d" % number for number in range(100)), LARGE]
    producer = Producer(server.client_config)
    for value in values:
        producer.produce("ours", value)
    assert producer.flush(PATIENCE_S) == 0
    with Consumer({**server.client_config, "group.id": "o", "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe(["ours"])
        found: list[Any] = []
        while len(found) < len(values):
            message = consumer.poll(PATIENCE_S)
            assert message is not None
            found.append(message.value())
    assert found == values


@pytest.mark.thorough
@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_franz_go_sends_and_receives(server: Server, mechanism: str) -> None:
    from oncelog.client import Producer

    try:
        franz = str(program())
    except MissingPeer as missing:
        need_or_skip(missing)
    config = server.client_config
    environment = os.environ | getting_in(config, mechanism)
    topic, servers = f"franz-{mechanism}", config["bootstrap.servers"]
    with Producer(config) as producer:
        producer.list_topics(topic)  # makes it
    sent = subprocess.run(
        [franz, "send", servers, topic],
        input="".join(f"key {number}\n" for number in range(100)),
        env=environment,
        capture_output=True,
        text=True,
        timeout=TOOL_SECONDS,
    )
    assert sent.stdout.splitlines() == [f"ok {number}" for number in range(100)], sent.stderr
    with subprocess.Popen(
        [franz, "read", servers, topic, "franz"],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as reading:
        assert reading.stdin is not None and reading.stdout is not None
        found = []
        for line in reading.stdout:
            word, *words = line.split()
            if word == "read":
                found.append(words[-1])
            if len(found) == 100:
                reading.stdin.close()
                break
        reading.kill()
    assert found == [f"{number}" for number in range(100)]


@pytest.mark.thorough
def test_kafka_python_sends_and_receives(server: Server) -> None:
    from kafka import KafkaConsumer, KafkaProducer

    config = server.client_config
    how = {
        "bootstrap_servers": server.bootstrap_servers,
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": config["sasl.username"],
        "sasl_plain_password": config["sasl.password"],
        "ssl_cafile": config["ssl.ca.location"],
    }
    producer = KafkaProducer(**how)
    assert producer.send("kafka-python", LARGE).get(PATIENCE_S).offset == 0
    producer.close()
    consumer = KafkaConsumer("kafka-python", **how, auto_offset_reset="earliest", consumer_timeout_ms=30_000)
    assert next(consumer).value == LARGE
    consumer.close()


@pytest.mark.thorough
async def test_aiokafka_sends_and_receives(server: Server) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    config = server.client_config
    how = {
        "bootstrap_servers": server.bootstrap_servers,
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": config["sasl.username"],
        "sasl_plain_password": config["sasl.password"],
        "ssl_context": ssl.create_default_context(cafile=config["ssl.ca.location"]),
    }
    async with AIOKafkaProducer(**how) as producer:
        await producer.send_and_wait("aiokafka", LARGE)
    async with AIOKafkaConsumer("aiokafka", **how, auto_offset_reset="earliest") as consumer:
        assert (await asyncio.wait_for(consumer.getone(), PATIENCE_S)).value == LARGE


@pytest.mark.thorough
@pytest.mark.peers
def test_javas_tools_take_the_file_that_was_made_for_them(server: Server) -> None:
    file = Path(server.client_config["ssl.ca.location"]).with_name("java.properties")
    assert dict(properties(file.read_text().splitlines()))["bootstrap.servers"] == server.bootstrap_servers

    def tool(name: str, *arguments: str, typed: str = "") -> str:
        try:
            command = kafka_java(name, "--bootstrap-server", server.bootstrap_servers, *arguments)
        except MissingPeer as missing:
            need_or_skip(missing)
        done = subprocess.run(command, input=typed, capture_output=True, text=True, timeout=TOOL_SECONDS, check=False)
        assert done.returncode == 0, f"{name}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        return done.stdout

    tools, config = "org.apache.kafka.tools", ("--command-config", str(file))
    tool(f"{tools}.TopicCommand", *config, "--create", "--topic", "java", "--partitions", "2")
    assert "java" in tool(f"{tools}.TopicCommand", *config, "--list").splitlines()
    tool(f"{tools}.ConsoleProducer", *config, "--topic", "java", typed="one\ntwo\n")
    heard = tool(
        f"{tools}.consumer.ConsoleConsumer",
        *config,
        *("--topic", "java", "--from-beginning", "--max-messages", "2", "--timeout-ms", "30000"),
    )
    assert sorted(heard.splitlines()) == ["one", "two"]


def test_a_certificate_is_enough_for_librdkafka(mutual: Server, world: World) -> None:
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({**world.properties(mutual, world.client)})
    assert admin.list_topics(timeout=PATIENCE_S).brokers


def test_a_certificate_is_enough_for_ours(mutual: Server, world: World) -> None:
    from oncelog.client import KafkaException
    from oncelog.client.admin import AdminClient

    assert AdminClient(world.properties(mutual, world.client)).list_topics(timeout=PATIENCE_S).brokers
    with pytest.raises(KafkaException, match="certificate"):
        AdminClient(world.properties(mutual)).list_topics(timeout=5)


def test_ours_looks_at_the_name_in_the_certificate(world: World, tmp_path: Path) -> None:
    from oncelog.client import KafkaException
    from oncelog.client.admin import AdminClient
    from tests.server.tls_support import keystore

    elsewhere = world.authority.signs("elsewhere", "DNS:elsewhere.example")
    with world.serve(ssl_keystore_location=keystore(elsewhere)) as server:
        with pytest.raises(KafkaException, match="Connect to a name that it bears"):
            AdminClient(world.properties(server)).list_topics(timeout=5)
        relaxed = {**world.properties(server), "ssl.endpoint.identification.algorithm": "none"}
        assert AdminClient(relaxed).list_topics(timeout=PATIENCE_S).brokers


@pytest.mark.thorough
@pytest.mark.peers
def test_java_gets_in_by_a_certificate(mutual: Server, world: World, tmp_path: Path) -> None:
    from tests.server.tls_support import keystore

    file = tmp_path / "java.properties"
    file.write_text(
        "security.protocol=SSL\nssl.truststore.type=PEM\n"
        f"ssl.truststore.location={world.authority.certificate}\nssl.keystore.type=PEM\n"
        f"ssl.keystore.location={keystore(world.client)}\n"
    )
    try:
        command = kafka_java(
            "org.apache.kafka.tools.TopicCommand",
            *("--bootstrap-server", mutual.bootstrap_servers, "--command-config", str(file), "--list"),
        )
    except MissingPeer as missing:
        need_or_skip(missing)
    done = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_SECONDS, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
