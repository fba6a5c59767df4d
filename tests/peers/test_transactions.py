"""Stock clients in transactions against our brokers: Kafka Streams, the Java client's copier, librdkafka, franz-go."""

import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

import oncelog
from tests.cluster.stock.in_go import program as franz_program
from tests.peers.committed import committed
from tests.peers.jars import MissingPeer, java, kafka_java, need_or_skip, streams_jars
from tests.peers.living import living

STREAMS = Path(__file__).parent / "streams" / "ExactlyOnce.java"
RECORDS, KEYS = 1_500, 7


@pytest.mark.thorough
@pytest.mark.parametrize("brokers", [1, 3])
def test_kafka_streams_counts_exactly_once_while_brokers_are_killed(brokers: int, tmp_path: Path) -> None:
    try:
        folder = streams_jars()
    except MissingPeer as missing:
        need_or_skip(missing)
    with oncelog.Server(brokers=brokers) as server:
        servers = server.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers})
        for made in admin.create_topics([NewTopic(topic, 2) for topic in ("in", "out")]).values():
            made.result()
        command = [java(), "-Xmx300m", "-cp", f"{folder}/*", str(STREAMS), servers, "app", str(tmp_path), "in", "out"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as app:
            assert app.stdin is not None
            assert app.stdout is not None
            assert app.stdout.readline() == b"started\n"
            producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
            for number in range(RECORDS):
                producer.produce("in", b"v", key=b"%d" % (number % KEYS), partition=number % KEYS % 2)
            found: dict[bytes | None, list[int]] = defaultdict(list)
            for number, message in enumerate(committed(servers, "out", 2, RECORDS)):
                found[message.key()].append(int(message.value() or b""))
                if brokers > 1 and number in (200, 600):
                    server.kill(number // 400 + 1)
                    server.start(number // 400 + 1)
            app.stdin.close()
            app.wait(60)
        assert all(counts == list(range(1, len(counts) + 1)) for counts in found.values())


def test_javas_copier_is_exact_though_it_aborts_at_random() -> None:
    with oncelog.Server() as server:
        servers = server.bootstrap_servers
        producer = Producer({"bootstrap.servers": servers})
        for number in range(RECORDS):
            producer.produce("in", b"%d" % number)
        producer.flush()
        try:
            copier = kafka_java(
                "org.apache.kafka.tools.TransactionalMessageCopier",
                *("--broker-list", servers, "--transactional-id", "copier", "--consumer-group", "g"),
                *("--input-topic", "in", "--input-partition", "0", "--output-topic", "out"),
                *("--transaction-size", "50", "--max-messages", str(RECORDS)),
                *("--enable-random-aborts", "--use-group-metadata", "--group-mode"),
            )
        except MissingPeer as missing:
            need_or_skip(missing)
        subprocess.run(copier, check=True, capture_output=True, timeout=90)
        found = [int(each.value() or b"") for each in committed(servers, "out", 1, RECORDS)]
        assert sorted(found) == list(range(RECORDS))
        listed = subprocess.run(
            kafka_java("org.apache.kafka.tools.TransactionsCommand", "--bootstrap-server", servers, "list"),
            check=True,
            capture_output=True,
            text=True,
            timeout=90,
        )
        assert "CompleteCommit" in listed.stdout or "CompleteAbort" in listed.stdout


def test_librdkafka_commits_aborts_and_is_fenced() -> None:
    with oncelog.Server() as server:
        servers = server.bootstrap_servers
        first = Producer({"bootstrap.servers": servers, "transactional.id": "id"})
        first.init_transactions(30)
        for number in range(6):
            first.begin_transaction()
            first.produce("out", b"%d" % number)
            first.flush()
            if number % 2:
                first.abort_transaction(30)
            else:
                first.commit_transaction(30)
        assert [each.value() for each in committed(servers, "out", 1, 3)] == [b"0", b"2", b"4"]
        second = Producer({"bootstrap.servers": servers, "transactional.id": "id"})
        second.init_transactions(30)
        first.begin_transaction()
        first.produce("out", b"zombie")
        with pytest.raises(KafkaException) as fenced:
            first.commit_transaction(30)
        assert fenced.value.args[0].fatal()


def librdkafka() -> list[str]:
    return [sys.executable, "-m", "tests.peers.copier"]


def franz_go() -> list[str]:
    return [str(franz_program()), "copy"]


@pytest.mark.thorough
@pytest.mark.timeout(600)  # where franz-go is built first
@pytest.mark.parametrize("brokers", [1, 3])
@pytest.mark.parametrize("client", [librdkafka, franz_go])
def test_a_copy_is_exact_though_its_client_and_brokers_are_killed(
    client: Callable[[], list[str]], brokers: int
) -> None:
    """Partition by partition in order, and each record once."""
    try:
        command = client()
    except MissingPeer as missing:
        need_or_skip(missing)
    with oncelog.Server(brokers=brokers) as server:
        servers = server.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers})
        for made in admin.create_topics([NewTopic(topic, 2) for topic in ("in", "out")]).values():
            made.result()
        producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
        for number in range(RECORDS):
            producer.produce("in", b"%d" % number, key=b"%d" % (number % 2), partition=number % 2)
        producer.flush()
        found: dict[bytes | None, list[int]] = defaultdict(list)
        with living(*command, servers, "in", "out", "copier") as kill:
            for number, message in enumerate(committed(servers, "out", 2, RECORDS)):
                found[message.key()].append(int(message.value() or b""))
                if number in (150, 450, 900):
                    kill()
                if brokers > 1 and number in (300, 700):
                    server.kill(number // 300)
                    server.start(number // 300)
        assert found == {b"%d" % key: list(range(key, RECORDS, 2)) for key in range(2)}
