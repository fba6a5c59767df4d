"""Consumers that share topics: callbacks where the application polls, patterns, and what is committed on the way."""

import threading
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from oncelog.client.consumer.consumer import Consumer
from oncelog.client.consumer.message import Message
from oncelog.client.errors import KafkaError, KafkaException
from oncelog.client.types import OFFSET_BEGINNING, OFFSET_INVALID, TopicPartition
from tests.client.consumer.conftest import MakeConsumer
from tests.client.consumer.reading import PATIENCE_S, take, values, write
from tests.client.inside import driver_of
from tests.raw import RawConnection
from tests.raw.topics import new_topic
from tests.waiting import until

_groups = count(1)
STRATEGIES = ("range", "roundrobin", "sticky", "cooperative-sticky")


@pytest.fixture
def group() -> str:
    return f"sharing-{next(_groups)}"


@pytest.fixture
def topic(raw: RawConnection) -> str:
    """Four partitions of ten records."""
    topic = new_topic(raw, partitions=4)
    for partition in range(4):
        write(raw, topic, [f"{partition}.{i}".encode() for i in range(10)], partition=partition)
    return topic


def indexes(consumer: Consumer) -> list[int]:
    return [each.partition for each in consumer.assignment()]


def poll_until(consumers: list[Consumer], is_so: Callable[[], bool], what: str) -> list[Message]:
    """All of them poll, as a group needs it; what they got meanwhile."""
    found: list[Message] = []

    def look() -> bool:
        for consumer in consumers:
            message = consumer.poll(0)
            if message is not None:
                found.append(message)
        return is_so()

    until(look, what)
    return found


def test_one_member_gets_everything(topic: str, group: str, make_consumer: MakeConsumer) -> None:
    consumer = make_consumer(group_id=group)
    consumer.subscribe([topic])
    assert len(take(consumer, 40)) == 40
    assert indexes(consumer) == [0, 1, 2, 3]
    assert consumer.memberid()
    assert consumer.subscription() == [topic]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_members_share_and_one_that_leaves_gives_its_share_to_the_others(
    topic: str, group: str, make_consumer: MakeConsumer, strategy: str
) -> None:
    sharing = {"group_id": group, "partition_assignment_strategy": strategy, "heartbeat_interval_ms": 50}
    first, second = (make_consumer(**sharing, enable_auto_commit=True) for _ in range(2))
    first.subscribe([topic])
    found = poll_until([first], lambda: len(indexes(first)) == 4, "the first member to have everything")
    second.subscribe([topic])
    found += poll_until(
        [first, second], lambda: len(indexes(first)) == len(indexes(second)) == 2, "an even share of two each"
    )
    assert sorted(indexes(first) + indexes(second)) == [0, 1, 2, 3]
    second.close()
    found += poll_until([first], lambda: len(indexes(first)) == 4, "the first member to have everything again")
    found += poll_until(
        [first], lambda: len({each.value() for each in found}) >= 0 and first.poll(0.3) is None, "the end"
    )
    first.close()
    committed = make_consumer(group_id=group).committed([TopicPartition(topic, i) for i in range(4)], PATIENCE_S)
    assert [each.offset for each in committed] == [10] * 4


def test_callbacks_come_in_the_thread_that_polls_with_the_partitions_concerned(
    topic: str, group: str, make_consumer: MakeConsumer
) -> None:
    told: list[tuple[str, list[int], str]] = []

    def remember(what: str) -> Any:
        def callback(which: Consumer, partitions: list[TopicPartition]) -> None:
            assert which is consumer
            told.append((what, [each.partition for each in partitions], threading.current_thread().name))

        return callback

    consumer = make_consumer(group_id=group)
    consumer.subscribe([topic], on_assign=remember("assign"), on_revoke=remember("revoke"), on_lost=remember("lost"))
    take(consumer, 40)
    consumer.close()
    here = threading.current_thread().name
    assert told == [("assign", [0, 1, 2, 3], here), ("revoke", [0, 1, 2, 3], here)]


def test_a_callback_may_assign_other_offsets(topic: str, group: str, make_consumer: MakeConsumer) -> None:
    def on_assign(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            each.offset = 7
        consumer.assign(partitions)

    consumer = make_consumer(group_id=group)
    consumer.subscribe([topic], on_assign=on_assign)
    assert sorted(message.offset() for message in take(consumer, 12)) == [7] * 4 + [8] * 4 + [9] * 4


def test_a_callback_may_commit_before_its_partitions_go(topic: str, group: str, make_consumer: MakeConsumer) -> None:
    def on_revoke(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        consumer.commit(asynchronous=False)

    consumer = make_consumer(group_id=group)
    consumer.subscribe([topic], on_revoke=on_revoke)
    take(consumer, 40)
    consumer.close()
    follower = make_consumer(group_id=group)
    committed = follower.committed([TopicPartition(topic, i) for i in range(4)], PATIENCE_S)
    assert [each.offset for each in committed] == [10] * 4


def test_an_error_in_a_callback_comes_out_of_poll_and_the_consumer_goes_on(
    topic: str, group: str, make_consumer: MakeConsumer
) -> None:
    def on_assign(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        raise LookupError("of the application's own")

    consumer = make_consumer(group_id=group)
    consumer.subscribe([topic], on_assign=on_assign)
    with pytest.raises(LookupError):
        take(consumer, 1)
    assert len(take(consumer, 40)) == 40


def test_a_pattern_matches_topics_that_come_later(raw: RawConnection, group: str, make_consumer: MakeConsumer) -> None:
    name = f"pattern-{group}"
    raw.create_topic(f"{name}-1")
    raw.create_topic(f"other-{name}")
    write(raw, f"{name}-1", [b"old"])
    write(raw, f"other-{name}", [b"not ours"])
    consumer = make_consumer(group_id=group, topic_metadata_refresh_interval_ms=50, heartbeat_interval_ms=50)
    consumer.subscribe([f"^{name}-[0-9]"])
    assert values(take(consumer, 1)) == [b"old"]
    raw.create_topic(f"{name}-2")
    write(raw, f"{name}-2", [b"new"])
    assert values(take(consumer, 1))[0] in (b"new", b"old")
    assert sorted({each.topic for each in consumer.assignment()}) == [f"{name}-1", f"{name}-2"]


def test_a_pattern_does_not_match_the_clusters_own_topics(topic: str, group: str, make_consumer: MakeConsumer) -> None:
    consumer = make_consumer(group_id=group)
    assert consumer.list_topics().topics["__consumer_offsets"].partitions
    consumer.subscribe([f"^(__consumer_offsets|{topic})$"])
    take(consumer, 40)
    assert {each.topic for each in consumer.assignment()} == {topic}


def test_a_topic_that_does_not_exist_is_told_and_read_as_soon_as_it_does(
    raw: RawConnection, group: str, make_consumer: MakeConsumer
) -> None:
    name = f"late-{group}"
    consumer = make_consumer(group_id=group, topic_metadata_refresh_interval_ms=50)
    consumer.subscribe([name])
    told = consumer.poll(PATIENCE_S)
    assert told is not None
    error = told.error()
    assert error == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert name in str(error)
    raw.create_topic(name)
    write(raw, name, [b"at last"])
    assert values(take(consumer, 1)) == [b"at last"]


def test_unsubscribing_gives_everything_back(topic: str, group: str, make_consumer: MakeConsumer) -> None:
    revoked: list[int] = []
    consumer = make_consumer(group_id=group)
    consumer.subscribe([topic], on_revoke=lambda _, partitions: revoked.extend(each.partition for each in partitions))
    take(consumer, 1)
    consumer.unsubscribe()
    poll_until([consumer], lambda: not consumer.assignment(), "the partitions to be given back")
    assert sorted(revoked) == [0, 1, 2, 3]
    assert consumer.poll(0.1) is None


def test_an_application_that_does_not_poll_loses_its_partitions_and_gets_them_back_when_it_does(
    topic: str, group: str, make_consumer: MakeConsumer, stop_polling: Callable[[], None]
) -> None:
    lost: list[int] = []
    consumer = make_consumer(group_id=group, heartbeat_interval_ms=50)
    consumer.subscribe([topic], on_lost=lambda _, partitions: lost.extend(each.partition for each in partitions))
    take(consumer, 5)
    stop_polling()
    calls = driver_of(consumer).operations.core.calls
    until(lambda: bool(calls), "the group to take the partitions from a consumer that does not poll")
    poll_until([consumer], lambda: bool(lost), "the loss to be told")
    assert sorted(lost) == [0, 1, 2, 3]
    poll_until([consumer], lambda: len(indexes(consumer)) == 4, "the partitions to come back")


def test_who_has_lost_its_partitions_commits_nothing_over_what_their_new_owner_does(
    topic: str, group: str, make_consumer: MakeConsumer, stop_polling: Callable[[], None]
) -> None:
    consumer = make_consumer(group_id=group, heartbeat_interval_ms=50)
    consumer.subscribe([topic])
    (message,) = take(consumer, 1)
    stop_polling()
    calls = driver_of(consumer).operations.core.calls
    until(lambda: bool(calls), "the group to take the partitions from a consumer that does not poll")
    for what in ({"message": message}, {"offsets": [TopicPartition(topic, message.partition(), 1)]}, {}):
        with pytest.raises(KafkaException) as refused:
            consumer.commit(**what, asynchronous=False)
        assert refused.value.error.code() == KafkaError._MAX_POLL_EXCEEDED
    (found,) = make_consumer(group_id=group).committed([TopicPartition(topic, message.partition())], 20)
    assert found.offset == OFFSET_INVALID


def test_a_manual_assignment_needs_no_group_and_a_subscription_does(topic: str, make_consumer: MakeConsumer) -> None:
    consumer = make_consumer()
    with pytest.raises(KafkaException, match=r"`group.id` is not set"):
        consumer.subscribe([topic])
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    assert len(take(consumer, 10)) == 10


@pytest.mark.parametrize("topics", ["a name", None, 5, [5]])
def test_topics_are_a_list_of_names(topics: Any, group: str, make_consumer: MakeConsumer) -> None:
    with pytest.raises(TypeError):
        make_consumer(group_id=group).subscribe(topics)


def test_a_pattern_that_is_none_is_refused(group: str, make_consumer: MakeConsumer) -> None:
    with pytest.raises(KafkaException, match="regular expression"):
        make_consumer(group_id=group).subscribe(["^(unclosed"])
