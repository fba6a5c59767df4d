"""Every command of the client's side against both servers, with librdkafka at the other end."""

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from oncelog.client.admin import Admin
from tests.cli.running import Oncelog
from tests.peers.server_process import ServerProcess

WAIT_S = 60


@pytest.fixture
def oncelog(server: ServerProcess) -> Oncelog:
    return Oncelog(server.bootstrap_servers)


@pytest.fixture
def made(oncelog: Oncelog, topic: str) -> str:
    oncelog("topics create", topic, "-p", "2", "-c", "retention.ms=-1")
    return topic


@pytest.fixture
def filled(server: ServerProcess, made: str) -> str:
    producer = Producer({"bootstrap.servers": server.bootstrap_servers, "enable.idempotence": True})
    for number in range(3):
        producer.produce(made, b"v%d" % number, b"k", partition=1, timestamp=1_000 + number, headers=[("h", b"1")])
    assert producer.flush(WAIT_S) == 0
    return made


def test_topics(oncelog: Oncelog, filled: str) -> None:
    assert filled in [each["topic"] for each in oncelog("topics", "-J").json]
    oncelog("topics alter", filled, "-p", "3", "-c", "cleanup.policy=compact", "-u", "retention.ms")
    (told,) = oncelog("topics describe", filled, "-J").json
    assert told["configs"] == {"cleanup.policy": "compact"}
    assert [(each["start"], each["end"]) for each in told["partitions"]] == [(0, 0), (0, 3), (0, 0)]
    oncelog("topics delete", filled)
    assert "there is no topic" in oncelog.run("topics describe", filled).refusal


def test_produce(oncelog: Oncelog, server: ServerProcess, made: str) -> None:
    oncelog("produce", "-t", made, "-p", "1", "-K", ":", "-H", "h=1", "-z", "lz4", stdin=b"k:a\nb\n")
    consumer = Consumer({"bootstrap.servers": server.bootstrap_servers, "group.id": "cli", "enable.auto.commit": False})
    consumer.assign([TopicPartition(made, 1, 0)])
    first, second = consumer.consume(2, WAIT_S)
    consumer.close()
    assert (first.key(), first.value(), first.headers()) == (b"k", b"a", [("h", b"1")])
    assert (second.key(), second.value()) == (None, b"b")


def test_consume(oncelog: Oncelog, filled: str) -> None:
    assert oncelog.consumed(filled, "-f", r"%p %o %T %k=%s %h\n") == [
        f"1 {number} {1_000 + number} k=v{number} h=1" for number in range(3)
    ]
    assert oncelog.consumed(filled, "-o", "-1") == ["v2"]
    assert oncelog.consumed(filled, "-o", "s@1001", "-o", "e@1002") == ["v1"]
    assert oncelog("consume", "-G", f"of-{filled}", filled, "-c", "2", "-q").lines == ["v0", "v1"]
    assert oncelog("consume", "-G", f"of-{filled}", filled, "-e", "-q").lines == ["v2"]


def test_groups(oncelog: Oncelog, filled: str) -> None:
    group = f"of-{filled}"
    oncelog("groups reset", group, "-t", filled, "-o", "-2")
    (told,) = oncelog("groups describe", group, "-J").json
    assert [(row["committed"], row["lag"]) for row in told["partitions"]] == [(0, 0), (1, 2)]
    assert group in [each["group"] for each in oncelog("groups", "-J").json]
    oncelog("groups delete", group)
    assert f"there is no group {group}" in oncelog.run("groups describe", group).refusal


def test_producers(oncelog: Oncelog, server: ServerProcess, filled: str) -> None:
    (told,) = oncelog("producers", filled, "-J").json
    assert (told["partition"], told["generation"], told["last_sequence"]) == (1, 0, 2)
    assert told["last_timestamp_ms"] == 1_002
    assert (told["last_offset"], told["lease_left_ms"]) == (2 if server.name == "oncelog" else None, None)


def test_leases(oncelog: Oncelog, server: ServerProcess, filled: str) -> None:
    if server.name == "oncelog":
        oncelog("produce", "-t", filled, "-p", "0", stdin=b"a\n")
        assert [each["live"] for each in oncelog("leases", filled, "-J").json] == [1, 0]
    else:
        assert "this is no oncelog server" in oncelog.run("leases", filled).refusal


def test_the_nearest_topic_is_told(oncelog: Oncelog, server: ServerProcess, made: str) -> None:
    said = oncelog.run("consume", "-t", f"{made}x", "-e")
    assert f"there is no topic {made}x; the nearest known one is {made}" in said.refusal
    with Admin({"bootstrap.servers": server.bootstrap_servers}) as admin:
        assert f"{made}x" not in admin.list_topics().topics
