"""kafka-python: the oldest client in pure Python."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, NewTopic

from tests.peers.server_process import ServerProcess
from tests.peers.stored import stored_codecs
from tests.waiting import until

PATIENCE_S = 30


@pytest.fixture
def admin(server: ServerProcess) -> Iterator[Any]:
    client = KafkaAdminClient(bootstrap_servers=server.bootstrap_servers)
    yield client
    client.close()


@pytest.fixture
def made(admin: Any, topic: str) -> str:
    # By its time a record may be old, and goes whenever a broker looks for that.
    admin.create_topics([NewTopic(topic, 2, 1, topic_configs={"retention.ms": "-1"})])
    return topic


def produce(server: ServerProcess, topic: str, count: int, **more: Any) -> None:
    producer = KafkaProducer(bootstrap_servers=server.bootstrap_servers, enable_idempotence=True, **more)
    sends = [producer.send(topic, f"value {i}".encode() * 20, partition=i % 2) for i in range(count)]
    metadata = [send.get(PATIENCE_S) for send in sends]
    producer.close()
    assert sorted((m.partition, m.offset) for m in metadata) == sorted((i % 2, i // 2) for i in range(count))


def consumer_of(server: ServerProcess, *topics: str, **more: Any) -> Any:
    return KafkaConsumer(
        *topics,
        bootstrap_servers=server.bootstrap_servers,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        metadata_max_age_ms=500,  # a topic that was made a moment ago may not be told at once
        **more,
    )


def take(consumer: Any, count: int) -> list[Any]:
    found: list[Any] = []
    give_up = time.monotonic() + PATIENCE_S
    while len(found) < count and time.monotonic() < give_up:
        for messages in consumer.poll(timeout_ms=200).values():
            found += messages
    assert len(found) == count
    return found


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_is_produced_with_a_codec_is_stored_in_it_and_read_back(
    server: ServerProcess, made: str, codec: str
) -> None:
    produce(server, made, 60, compression_type=None if codec == "none" else codec)
    assert stored_codecs(server, made) == {codec}
    consumer = consumer_of(server, made)
    assert {m.value for m in take(consumer, 60)} == {f"value {i}".encode() * 20 for i in range(60)}
    consumer.close()


def test_two_members_share_partitions_and_take_over_from_each_other(server: ServerProcess, made: str) -> None:
    more = {"group_id": made, "session_timeout_ms": 30_000, "heartbeat_interval_ms": 200}
    one, two = consumer_of(server, made, **more), consumer_of(server, made, **more)
    await_shares([(one, 2)])
    await_shares([(one, 1), (two, 1)])
    one.close()
    await_shares([(two, 2)])
    produce(server, made, 10)
    assert len(take(two, 10)) == 10
    two.commit()
    assert two.committed(TopicPartition(made, 0)) == 5
    two.close()


def await_shares(wanted: list[tuple[Any, int]]) -> None:
    """All members poll at once and for longer than a join: this client forgets one that ends between two polls."""
    give_up = time.monotonic() + PATIENCE_S
    with ThreadPoolExecutor(len(wanted)) as threads:
        while time.monotonic() < give_up:
            list(threads.map(lambda one: one[0].poll(timeout_ms=1000), wanted))
            if all(len(consumer.assignment()) == count for consumer, count in wanted):
                return
    raise TimeoutError(f"the assignments stay {[consumer.assignment() for consumer, _ in wanted]}")


def test_seek_by_time(server: ServerProcess, made: str) -> None:
    producer = KafkaProducer(bootstrap_servers=server.bootstrap_servers, enable_idempotence=True)
    for i in range(10):
        producer.send(made, b"x", partition=0, timestamp_ms=1_700_000_000_000 + 1000 * i).get(PATIENCE_S)
    producer.close()
    consumer, place = consumer_of(server), TopicPartition(made, 0)
    consumer.assign([place])
    assert consumer.offsets_for_times({place: 1_700_000_003_500})[place].offset == 4
    assert consumer.end_offsets([place]) == {place: 10}
    consumer.seek(place, 4)
    assert take(consumer, 6)[0].offset == 4
    consumer.close()


def test_topics_settings_and_groups_are_described_and_topics_deleted(
    server: ServerProcess, admin: Any, made: str
) -> None:
    consumer = consumer_of(server, made, group_id=made)
    await_shares([(consumer, 2)])  # so it is there: Kafka's broker hears of a topic after who has made it
    assert len(admin.describe_topics([made])[0]["partitions"]) == 2
    assert "retention.ms" in str(admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, made)]))
    assert made in str(admin.list_groups())
    assert made in str(admin.describe_groups([made]))
    consumer.close()
    admin.delete_topics([made])
    until(lambda: made not in admin.list_topics(), "the topic's end", give_up_seconds=PATIENCE_S)
