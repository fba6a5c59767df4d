"""librdkafka, through confluent-kafka: the client of most languages."""

import threading
import time
from collections import Counter
from collections.abc import Iterator

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from oncelog.clock import wall_s
from tests.peers.server_process import ServerProcess
from tests.peers.stored import stored_codecs
from tests.waiting import until

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PATIENCE_S = 30


@pytest.fixture
def admin(server: ServerProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": server.bootstrap_servers})


@pytest.fixture
def made(admin: AdminClient, topic: str) -> Iterator[str]:
    """A topic of three partitions."""
    admin.create_topics([NewTopic(topic, 3, 1)])[topic].result(PATIENCE_S)
    await_topic(admin, topic, 3)
    yield topic


def await_topic(admin: AdminClient, topic: str, partitions: int) -> None:
    def is_there() -> bool:
        found = admin.list_topics(timeout=PATIENCE_S).topics.get(topic)
        return found is not None and len(found.partitions) == partitions

    until(is_there, f"{topic} with {partitions} partitions", give_up_seconds=PATIENCE_S)


def produce(server: ServerProcess, topic: str, values: list[bytes], **config: object) -> list[Message]:
    """Idempotently; each value goes to the partition of its place in the list, modulo 3."""
    delivered: list[Message] = []

    def report(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        delivered.append(message)

    settings = {"bootstrap.servers": server.bootstrap_servers, "enable.idempotence": True, "linger.ms": 5}
    producer = Producer({**settings, **config})
    for i, value in enumerate(values):
        producer.produce(topic, value, key=str(i), partition=i % 3, headers={"n": str(i)}, on_delivery=report)
    assert producer.flush(PATIENCE_S) == 0
    return delivered


def consumer_of(server: ServerProcess, group: str, **config: object) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": server.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 30_000,
            "heartbeat.interval.ms": 200,
            **config,
        }
    )


def take(consumer: Consumer, count: int) -> list[Message]:
    found: list[Message] = []
    give_up = time.monotonic() + PATIENCE_S
    while len(found) < count and time.monotonic() < give_up:
        for message in consumer.consume(count - len(found), 0.2):
            assert message.error() is None, message.error()
            found.append(message)
    assert len(found) == count
    return found


@pytest.mark.parametrize("codec", CODECS)
def test_what_is_produced_with_a_codec_is_stored_in_it_and_read_back(
    server: ServerProcess, made: str, codec: str
) -> None:
    values = [f"value {i} ".encode() * 20 for i in range(300)]
    produce(server, made, values, **{"compression.type": codec})
    assert stored_codecs(server, made) == {codec}
    consumer = consumer_of(server, made)
    consumer.subscribe([made])
    messages = take(consumer, 300)
    consumer.close()
    assert sorted(int(m.key() or b"") for m in messages) == list(range(300))
    assert all(m.value() == values[int(m.key() or b"")] for m in messages)
    assert all(m.headers() == [("n", m.key())] for m in messages)


def test_offsets_follow_each_other_in_each_partition(server: ServerProcess, made: str) -> None:
    delivered = produce(server, made, [b"x"] * 30)
    assert sorted((m.partition(), m.offset()) for m in delivered) == [(p, o) for p in range(3) for o in range(10)]


def test_committed_offsets_are_where_the_group_goes_on(server: ServerProcess, made: str) -> None:
    produce(server, made, [str(i).encode() for i in range(60)])
    first = consumer_of(server, made)
    first.subscribe([made])
    seen = [m.value() for m in take(first, 30)]
    first.commit(asynchronous=False)
    first.close()
    second = consumer_of(server, made)
    second.subscribe([made])
    seen += [m.value() for m in take(second, 30)]
    second.close()
    assert Counter(seen) == Counter(str(i).encode() for i in range(60))


@pytest.mark.parametrize(
    "strategy",
    [*(pytest.param(each, marks=pytest.mark.thorough) for each in ("range", "roundrobin")), "cooperative-sticky"],
)
def test_two_members_share_partitions_and_take_over_from_each_other(
    server: ServerProcess, made: str, strategy: str
) -> None:
    config = {"partition.assignment.strategy": strategy}
    one, two = consumer_of(server, made, **config), consumer_of(server, made, **config)
    one.subscribe([made])
    await_share(one, [one], 3)
    two.subscribe([made])
    await_share(two, [one, two], 1, most=2)
    await_share(one, [one, two], 1, most=2)
    assert len(one.assignment()) + len(two.assignment()) == 3
    one.close()
    await_share(two, [two], 3)
    produce(server, made, [b"x"] * 9)
    assert len(take(two, 9)) == 9
    two.close()


def await_share(consumer: Consumer, polled: list[Consumer], least: int, most: int = 3) -> None:
    give_up = time.monotonic() + PATIENCE_S
    while time.monotonic() < give_up:
        for one in polled:
            one.poll(0.05)
        if least <= len(consumer.assignment()) <= most:
            return
    raise TimeoutError(f"the assignment stays {consumer.assignment()}")


def test_a_static_member_keeps_its_partitions_over_a_restart(server: ServerProcess, made: str) -> None:
    config = {"group.instance.id": "one"}
    first = consumer_of(server, made, **config)
    first.subscribe([made])
    await_share(first, [first], 3)
    first.close()
    again = consumer_of(server, made, **config)
    again.subscribe([made])
    await_share(again, [again], 3)
    again.close()


def test_seek_by_time(server: ServerProcess, made: str) -> None:
    producer = Producer({"bootstrap.servers": server.bootstrap_servers, "enable.idempotence": True})
    start_ms = int(wall_s() * 1000) - 60_000  # retention takes what is a week old, whenever it looks
    for i in range(20):
        producer.produce(made, str(i), partition=0, timestamp=start_ms + i * 1000)
        producer.flush(PATIENCE_S)
    consumer = consumer_of(server, made)
    (found,) = consumer.offsets_for_times([TopicPartition(made, 0, start_ms + 7_500)], PATIENCE_S)
    assert found.offset == 8
    consumer.assign([found])
    assert take(consumer, 1)[0].value() == b"8"
    assert consumer.get_watermark_offsets(TopicPartition(made, 0), PATIENCE_S) == (0, 20)
    consumer.close()


def test_a_new_message_wakes_a_waiting_consumer(server: ServerProcess, made: str) -> None:
    # Its fetch waits for far longer than `take` does, so a message that is taken has woken it. Of one partition, from
    # which it has read: librdkafka asks a broker for all of them at once, and would leave out one that is not ready.
    produce(server, made, [b"here already"])
    consumer = consumer_of(server, made, **{"fetch.wait.max.ms": 200_000, "socket.timeout.ms": 250_000})
    consumer.assign([TopicPartition(made, 0, 0)])
    assert take(consumer, 1)[0].value() == b"here already"
    assert consumer.poll(0.5) is None
    sender = threading.Thread(target=produce, args=(server, made, [b"wake up"]))
    sender.start()
    message = take(consumer, 1)[0]
    assert message.value() == b"wake up"
    sender.join()
    consumer.close()


def test_read_committed_reads_everything(server: ServerProcess, made: str) -> None:
    produce(server, made, [b"x"] * 6)
    consumer = consumer_of(server, made, **{"isolation.level": "read_committed"})
    consumer.subscribe([made])
    assert len(take(consumer, 6)) == 6
    consumer.close()


def test_a_topic_is_made_by_the_first_message(server: ServerProcess, topic: str) -> None:
    producer = Producer({"bootstrap.servers": server.bootstrap_servers, "enable.idempotence": True})
    producer.produce(topic, b"x")
    assert producer.flush(PATIENCE_S) == 0


def test_topics_are_described_widened_and_deleted(admin: AdminClient, made: str) -> None:
    described = admin.describe_topics(TopicCollection([made]))[made].result(PATIENCE_S)
    assert [p.id for p in described.partitions] == [0, 1, 2]
    admin.create_partitions([NewPartitions(made, 5)])[made].result(PATIENCE_S)
    await_topic(admin, made, 5)
    with pytest.raises(KafkaException) as again:
        admin.create_topics([NewTopic(made, 1, 1)])[made].result(PATIENCE_S)
    assert again.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
    admin.delete_topics([made])[made].result(PATIENCE_S)

    def is_gone() -> bool:
        return made not in admin.list_topics(timeout=PATIENCE_S).topics

    until(is_gone, "the topic's end", give_up_seconds=PATIENCE_S)


def test_settings_of_a_topic_are_changed_and_described(admin: AdminClient, made: str) -> None:
    change = ConfigEntry("retention.ms", "86400000", incremental_operation=AlterConfigOpType.SET)
    wanted = ConfigResource(ResourceType.TOPIC, made, incremental_configs=[change])
    admin.incremental_alter_configs([wanted])[wanted].result(PATIENCE_S)
    asked = ConfigResource(ResourceType.TOPIC, made)

    def found_when_set() -> dict[str, ConfigEntry] | None:
        found: dict[str, ConfigEntry] = admin.describe_configs([asked])[asked].result(PATIENCE_S)
        return found if found["retention.ms"].value == "86400000" else None

    found = until(found_when_set, "the setting", give_up_seconds=PATIENCE_S)
    assert found is not None
    assert not found["retention.ms"].is_default
    assert found["segment.bytes"].is_default


def test_the_cluster_is_described(admin: AdminClient) -> None:
    found = admin.describe_cluster().result(PATIENCE_S)
    assert found.cluster_id
    assert len(found.nodes) == 1
    assert found.controller.id == found.nodes[0].id


def test_groups_are_listed_described_and_deleted(server: ServerProcess, admin: AdminClient, made: str) -> None:
    produce(server, made, [b"x"] * 3)
    consumer = consumer_of(server, made, **{"client.id": "me"})
    consumer.subscribe([made])
    take(consumer, 3)
    consumer.commit(asynchronous=False)
    described = admin.describe_consumer_groups([made])[made].result(PATIENCE_S)
    assert described.state.name == "STABLE"
    (member,) = described.members
    assert member.client_id == "me"
    assert len(member.assignment.topic_partitions) == 3
    consumer.close()
    listed = {g.group_id for g in admin.list_consumer_groups().result(PATIENCE_S).valid}
    assert made in listed
    admin.delete_consumer_groups([made])[made].result(PATIENCE_S)
    listed = {g.group_id for g in admin.list_consumer_groups().result(PATIENCE_S).valid}
    assert made not in listed


def test_offsets_of_a_group_are_altered_and_listed(server: ServerProcess, admin: AdminClient, made: str) -> None:
    produce(server, made, [b"x"] * 9)
    wanted = ConsumerGroupTopicPartitions(made, [TopicPartition(made, 1, 2)])
    admin.alter_consumer_group_offsets([wanted])[made].result(PATIENCE_S)
    asked = ConsumerGroupTopicPartitions(made)
    found = admin.list_consumer_group_offsets([asked])[made].result(PATIENCE_S)
    assert [(p.partition, p.offset) for p in found.topic_partitions] == [(1, 2)]


def test_offsets_are_listed_by_the_admin_client(server: ServerProcess, admin: AdminClient, made: str) -> None:
    produce(server, made, [b"x"] * 9)
    place = TopicPartition(made, 0)
    earliest, latest = OffsetSpec.earliest(), OffsetSpec.latest()  # type: ignore[no-untyped-call]
    for kind, offset in ((earliest, 0), (latest, 3)):
        answer = admin.list_offsets({place: kind}, isolation_level=IsolationLevel.READ_UNCOMMITTED)
        assert answer[place].result(PATIENCE_S).offset == offset


def test_records_are_deleted(server: ServerProcess, admin: AdminClient, made: str) -> None:
    produce(server, made, [b"x"] * 9)
    answer = admin.delete_records([TopicPartition(made, 0, 2)])
    assert next(iter(answer.values())).result(PATIENCE_S).low_watermark == 2
    consumer = consumer_of(server, made)
    assert consumer.get_watermark_offsets(TopicPartition(made, 0), PATIENCE_S) == (2, 3)
    consumer.close()


def test_a_message_over_the_limit_is_refused_by_name(server: ServerProcess, made: str) -> None:
    failed: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": server.bootstrap_servers, "message.max.bytes": 3_000_000})
    producer.produce(made, bytes(2_000_000), on_delivery=lambda error, _: failed.append(error))
    producer.flush(PATIENCE_S)
    assert [error.code() for error in failed if error] == [KafkaError.MSG_SIZE_TOO_LARGE]
