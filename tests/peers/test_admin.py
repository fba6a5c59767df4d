"""Our Admin against both servers: what it makes, others find; what others made, it describes.

What was changed is waited for: Kafka's controller answers before the broker that is asked next need have heard of it.
"""

from collections.abc import Iterator
from concurrent.futures import Future

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as TheirPartition

from oncelog.client.admin import (
    Admin,
    AlterConfig,
    AlterOperation,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    GroupOffsets,
    ResourceType,
)
from oncelog.client.errors import KafkaError, KafkaException
from oncelog.client.types import OFFSET_END, OFFSET_INVALID, NewPartitions, NewTopic, TopicPartition
from tests.peers.server_process import ServerProcess
from tests.waiting import until

NOWHERE = "no-such-thing"
WAIT_S = 60
EARLIEST, LATEST, GREATEST_TIME = -2, -1, -3


@pytest.fixture
def admin(server: ServerProcess) -> Iterator[Admin]:
    with Admin({"bootstrap.servers": server.bootstrap_servers}) as admin:
        yield admin


@pytest.fixture
def made(admin: Admin, topic: str) -> str:
    """A topic of two partitions."""
    # By its time a record may be old, and goes whenever a broker looks for that.
    admin.create_topics([NewTopic(topic, 2, 1, config={"retention.ms": "-1"})])[topic].result(WAIT_S)
    until(lambda: topic in admin.list_topics().topics, "the topic to be there")
    return topic


@pytest.fixture
def filled(server: ServerProcess, made: str) -> str:
    """Three records in its partition 0, at times 1,000, 3,000 and 2,000."""
    producer = Producer({"bootstrap.servers": server.bootstrap_servers, "enable.idempotence": True})
    for timestamp_ms in (1_000, 3_000, 2_000):
        producer.produce(made, b"value", partition=0, timestamp=timestamp_ms)
        assert producer.flush(WAIT_S) == 0
    return made


def code_of(failure: BaseException | None) -> int:
    assert isinstance(failure, KafkaException), failure
    return failure.error.code()


def test_each_topic_is_made_or_refused_by_itself(admin: Admin, topic: str) -> None:
    futures = admin.create_topics([NewTopic(topic, 3, 1, config={"cleanup.policy": "compact"}), NewTopic("a b", 1, 1)])
    assert futures[topic].result(WAIT_S) is None
    assert code_of(futures["a b"].exception(WAIT_S)) == KafkaError.TOPIC_EXCEPTION
    again = admin.create_topics([NewTopic(topic, 3, 1)])[topic]
    assert code_of(again.exception(WAIT_S)) == KafkaError.TOPIC_ALREADY_EXISTS
    until(lambda: topic in admin.list_topics().topics, "the topic to be there")
    assert sorted(admin.list_topics(topic).topics[topic].partitions) == [0, 1, 2]


def test_what_is_only_validated_is_not_made(admin: Admin, topic: str) -> None:
    admin.create_topics([NewTopic(topic, 1, 1)], validate_only=True)[topic].result(WAIT_S)
    assert topic not in admin.list_topics().topics


def test_a_topic_grows_and_never_shrinks(admin: Admin, made: str) -> None:
    admin.create_partitions([NewPartitions(made, 4)])[made].result(WAIT_S)
    until(lambda: len(admin.list_topics(made).topics[made].partitions) == 4, "the topic to have grown")
    fewer = admin.create_partitions([NewPartitions(made, 1)])[made]
    assert code_of(fewer.exception(WAIT_S)) == KafkaError.INVALID_PARTITIONS


def test_a_removed_topic_is_gone_and_an_unknown_one_cannot_be_removed(admin: Admin, made: str) -> None:
    futures = admin.delete_topics([made, NOWHERE])
    assert futures[made].result(WAIT_S) is None
    assert code_of(futures[NOWHERE].exception(WAIT_S)) == KafkaError.UNKNOWN_TOPIC_OR_PART
    until(lambda: made not in admin.list_topics().topics, "the topic to be gone")


def test_a_topics_settings_are_read_and_changed_one_by_one(admin: Admin, made: str) -> None:
    change = ConfigResource(
        ResourceType.TOPIC,
        made,
        [AlterConfig("retention.ms", "60000"), AlterConfig("cleanup.policy", "compact", AlterOperation.APPEND)],
    )

    def settings() -> dict[str, ConfigEntry]:
        return admin.describe_configs([change])[change].result(WAIT_S)

    def own() -> dict[str, str | None]:
        return {
            name: each.value for name, each in settings().items() if each.source is ConfigSource.DYNAMIC_TOPIC_CONFIG
        }

    admin.incremental_alter_configs([change])[change].result(WAIT_S)
    until(lambda: own() == {"retention.ms": "60000", "cleanup.policy": "delete,compact"}, "both changes")
    assert settings()["segment.bytes"].is_default

    back = ConfigResource(ResourceType.TOPIC, made, [AlterConfig("retention.ms", operation=AlterOperation.DELETE)])
    admin.incremental_alter_configs([back])[back].result(WAIT_S)
    until(lambda: settings()["retention.ms"].value == "604800000", "the default of retention.ms")

    wrong = ConfigResource(ResourceType.TOPIC, made, [AlterConfig("retention.mz", "1")])
    assert code_of(admin.incremental_alter_configs([wrong])[wrong].exception(WAIT_S)) == KafkaError.INVALID_CONFIG


def test_a_group_has_settings_of_its_own(admin: Admin, made: str) -> None:
    name = "consumer.session.timeout.ms"

    def altered(value: str | None, operation: AlterOperation) -> Future[None]:
        change = ConfigResource(ResourceType.GROUP, made, [AlterConfig(name, value, operation)])
        return admin.incremental_alter_configs([change])[change]

    def setting() -> tuple[str | None, ConfigSource]:
        asked = ConfigResource("group", made)  # type: ignore[arg-type]
        entry = admin.describe_configs([asked])[asked].result(WAIT_S)[name]
        return entry.value, entry.source

    altered("50000", AlterOperation.SET).result(WAIT_S)
    until(lambda: setting() == ("50000", ConfigSource.GROUP_CONFIG), "the group's own")
    assert code_of(altered("1", AlterOperation.SET).exception(WAIT_S)) == KafkaError.INVALID_CONFIG
    altered(None, AlterOperation.DELETE).result(WAIT_S)
    until(lambda: setting() == ("45000", ConfigSource.DEFAULT_CONFIG), "that of all groups")


def test_a_broker_tells_its_own_settings(admin: Admin) -> None:
    node_id = next(iter(admin.list_topics().brokers))
    broker = ConfigResource(ResourceType.BROKER, str(node_id))
    assert admin.describe_configs([broker])[broker].result(WAIT_S)["message.max.bytes"].value == "1048588"
    nobody = ConfigResource(ResourceType.BROKER, "99")
    asked = admin.describe_configs([nobody], request_timeout=3_600)  # refused at once, however much time there is
    assert code_of(asked[nobody].exception(WAIT_S)) == KafkaError._UNKNOWN_BROKER
    unnamed = ConfigResource(ResourceType.BROKER, "one")
    assert code_of(admin.describe_configs([unnamed])[unnamed].exception(WAIT_S)) == KafkaError._INVALID_ARG


def test_offsets_are_found_by_end_beginning_and_time(admin: Admin, filled: str) -> None:
    def found(at: int) -> tuple[int, int]:
        partition = TopicPartition(filled, 0)
        place = admin.list_offsets({partition: at})[partition].result(WAIT_S)
        return place.offset, place.timestamp_ms

    assert found(EARLIEST) == (0, -1)
    assert found(LATEST) == (3, -1)
    assert found(1_500) == (1, 3_000)
    assert found(GREATEST_TIME) == (1, 3_000)
    assert found(3_001) == (-1, -1)


def test_unknown_partitions_fail_by_themselves(admin: Admin, filled: str) -> None:
    known, beyond, nowhere = TopicPartition(filled, 0), TopicPartition(filled, 7), TopicPartition(NOWHERE, 0)
    futures = admin.list_offsets({known: LATEST, beyond: LATEST, nowhere: LATEST})
    assert futures[known].result(WAIT_S).offset == 3
    assert code_of(futures[beyond].exception(WAIT_S)) == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert code_of(futures[nowhere].exception(WAIT_S)) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_records_are_cut_at_the_front_up_to_an_offset_or_the_end(admin: Admin, filled: str) -> None:
    def cut(before: int) -> int:
        partition = TopicPartition(filled, 0, before)
        return admin.delete_records([partition])[partition].result(WAIT_S).low_watermark

    assert cut(2) == 2
    assert cut(OFFSET_END) == 3
    beyond = TopicPartition(filled, 0, 9)
    failure = admin.delete_records([beyond])[beyond].exception(WAIT_S)
    assert code_of(failure) == KafkaError.OFFSET_OUT_OF_RANGE


def test_producers_that_a_partition_remembers_are_told(admin: Admin, filled: str) -> None:
    asked = [TopicPartition(filled, 0), TopicPartition(filled, 1)]
    futures = admin.describe_producers(asked)
    (producer,) = futures[asked[0]].result(WAIT_S)
    assert (producer.producer_epoch, producer.last_sequence, producer.last_timestamp_ms) == (0, 2, 2_000)
    assert producer.current_transaction_start_offset is None
    assert futures[asked[1]].result(WAIT_S) == []


def test_leases_are_told_by_oncelog_and_no_feature_elsewhere(admin: Admin, filled: str, server: ServerProcess) -> None:
    here, beyond = TopicPartition(filled, 0), TopicPartition(filled, 7)
    futures = admin.describe_leases([here, beyond])
    if server.name != "oncelog":
        assert code_of(futures[here].exception(WAIT_S)) == KafkaError._UNSUPPORTED_FEATURE
        return
    told = futures[here].result(WAIT_S)
    (producer,) = told.producers
    assert (producer.last_sequence, producer.last_offset, producer.last_timestamp_ms) == (2, 2, 2_000)
    assert (producer.is_leased, told.lifetime_ms, told.capacity) == (False, 86_400_000, 65_536)
    assert code_of(futures[beyond].exception(WAIT_S)) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_a_groups_offsets_are_committed_listed_and_removed(admin: Admin, filled: str, server: ServerProcess) -> None:
    group = f"group-of-{filled}"
    wanted = GroupOffsets(group, [TopicPartition(filled, 0, 2, "where I was"), TopicPartition(filled, 1, 0)])
    admin.alter_consumer_group_offsets([wanted])[group].result(WAIT_S)
    theirs = Consumer({"bootstrap.servers": server.bootstrap_servers, "group.id": group})
    assert [each.offset for each in theirs.committed([TheirPartition(filled, 0)], timeout=WAIT_S)] == [2]
    theirs.close()

    listed = admin.list_consumer_group_offsets([GroupOffsets(group)])[group].result(WAIT_S)
    assert [(each.partition, each.offset, each.metadata) for each in listed.topic_partitions or ()] == [
        (0, 2, "where I was"),
        (1, 0, None),
    ]
    assert group in [each.group_id for each in admin.list_consumer_groups().result(WAIT_S) if each.is_simple]

    gone = GroupOffsets(group, [TopicPartition(filled, 0)])
    admin.delete_consumer_group_offsets([gone])[group].result(WAIT_S)
    left = admin.list_consumer_group_offsets([gone])[group].result(WAIT_S)
    assert [each.offset for each in left.topic_partitions or ()] == [OFFSET_INVALID]


def test_a_group_with_members_is_described_and_not_to_be_removed(
    admin: Admin, filled: str, server: ServerProcess
) -> None:
    group = f"group-of-{filled}"
    theirs = Consumer(
        {"bootstrap.servers": server.bootstrap_servers, "group.id": group, "auto.offset.reset": "earliest"}
    )
    theirs.subscribe([filled])
    first = theirs.poll(WAIT_S)
    assert first is not None and first.error() is None

    described = admin.describe_consumer_groups([group])[group].result(WAIT_S)
    assert (described.state, described.protocol_type, described.partition_assignor) == ("Stable", "consumer", "range")
    (member,) = described.members
    assert member.assignment == ((filled, 0), (filled, 1))
    assert code_of(admin.delete_consumer_groups([group])[group].exception(WAIT_S)) == KafkaError.NON_EMPTY_GROUP

    theirs.close()
    assert admin.delete_consumer_groups([group])[group].result(WAIT_S) is None
    futures = admin.describe_consumer_groups([group, NOWHERE])
    assert code_of(futures[group].exception(WAIT_S)) == KafkaError.GROUP_ID_NOT_FOUND
    assert code_of(futures[NOWHERE].exception(WAIT_S)) == KafkaError.GROUP_ID_NOT_FOUND
