"""Committed offsets: by hand, by the clock, at the end; and what the next consumer of the group begins with."""

import threading
from itertools import count
from typing import Any

import pytest

from oncelog.chaos.proxy import FaultProxy
from oncelog.client.consumer import core
from oncelog.client.consumer.calls import Call
from oncelog.client.consumer.consumer import Consumer
from oncelog.client.errors import KafkaError, KafkaException
from oncelog.client.groups.commits import ToCommit
from oncelog.client.groups.membership_steps import Member
from oncelog.client.types import OFFSET_INVALID, TopicPartition
from oncelog.embedded import Server
from tests.client.consumer.conftest import MakeConsumer
from tests.client.consumer.reading import PATIENCE_S, beginning, take, values, write
from tests.client.inside import driver_of
from tests.raw import RawConnection
from tests.raw.topics import new_topic
from tests.waiting import until

_groups = count(1)


@pytest.fixture
def group() -> str:
    return f"group-{next(_groups)}"


@pytest.fixture
def written(raw: RawConnection, topic: str) -> str:
    write(raw, topic, [str(i).encode() for i in range(100)])
    return topic


def committed(consumer: Any, topic: str, partition: int = 0) -> int:
    return int(consumer.committed([TopicPartition(topic, partition)], PATIENCE_S)[0].offset)


def test_what_was_handed_out_is_committed_and_the_next_of_the_group_goes_on_there(
    written: str, group: str, make_consumer: MakeConsumer
) -> None:
    consumer = make_consumer(group_id=group)
    consumer.assign([TopicPartition(written, 0)])
    assert committed(consumer, written) == OFFSET_INVALID
    take(consumer, 7)
    (done,) = consumer.commit(asynchronous=False) or []
    assert (done.topic, done.partition, done.offset, done.error) == (written, 0, 7, None)
    assert committed(consumer, written) == 7
    follower = make_consumer(group_id=group)
    follower.assign([TopicPartition(written, 0)])
    assert values(take(follower, 2)) == [b"7", b"8"]


def test_a_record_or_offsets_can_be_named(written: str, group: str, make_consumer: MakeConsumer) -> None:
    consumer = make_consumer(group_id=group)
    consumer.assign(beginning(written))
    message = take(consumer, 20)[10]
    consumer.commit(message, asynchronous=False)
    assert committed(consumer, written) == 11
    consumer.commit(offsets=[TopicPartition(written, 0, 3, "with a note")], asynchronous=False)
    (found,) = consumer.committed([TopicPartition(written, 0)], PATIENCE_S)
    assert (found.offset, found.metadata) == (3, "with a note")


def test_an_asynchronous_commit_is_told_to_the_callback_when_the_application_polls(
    written: str, group: str, make_consumer: MakeConsumer
) -> None:
    told: list[tuple[Any, list[TopicPartition], str]] = []
    came = threading.Event()

    def on_commit(error: Any, partitions: list[TopicPartition]) -> None:
        told.append((error, partitions, threading.current_thread().name))
        came.set()

    consumer = make_consumer(group_id=group, on_commit=on_commit)
    consumer.assign(beginning(written))
    take(consumer, 5)
    assert consumer.commit() is None
    consumer.pause([TopicPartition(written, 0)])
    until(lambda: consumer.poll(0) is None and came.is_set(), "the outcome of a commit")
    ((error, (partition,), thread),) = told
    assert (error, partition.offset, thread) == (None, 5, threading.current_thread().name)


def test_callbacks_are_served_between_the_records_of_one_block(
    written: str, group: str, make_consumer: MakeConsumer
) -> None:
    seen: list[str] = []
    consumer = make_consumer(group_id=group, on_commit=lambda error, partitions: seen.append("committed"))
    consumer.assign(beginning(written))
    calls = driver_of(consumer).operations.core.calls
    for message in consumer:
        seen.append(str(message.offset()))
        if len(seen) == 3:
            consumer.commit()
            until(lambda: bool(calls), "the outcome of a commit")
        if len(seen) == 6:
            break
    assert seen == ["0", "1", "2", "committed", "3", "4"]


def test_the_clock_commits_what_the_application_has_done_with_and_not_what_it_holds(
    written: str, group: str, make_consumer: MakeConsumer
) -> None:
    consumer = make_consumer(group_id=group, enable_auto_commit=True, auto_commit_interval_ms=10)
    observer = make_consumer(group_id=group)
    consumer.assign(beginning(written))
    for _ in range(6):
        assert consumer.poll(PATIENCE_S) is not None
    until(lambda: committed(observer, written) == 5, "a commit of the five records before the one in hand")
    consumer.consume(10, PATIENCE_S)
    until(lambda: committed(observer, written) == 6, "a commit of all before the ten in hand")
    consumer.consume(1, PATIENCE_S)
    until(lambda: committed(observer, written) == 16, "a commit of those ten")


def test_close_commits_everything_that_was_handed_out(written: str, group: str, make_consumer: MakeConsumer) -> None:
    consumer = make_consumer(group_id=group, enable_auto_commit=True)
    consumer.assign(beginning(written))
    take(consumer, 42)
    consumer.close()
    assert committed(make_consumer(group_id=group), written) == 42


def test_without_automatic_commits_close_commits_nothing(written: str, group: str, make_consumer: MakeConsumer) -> None:
    consumer = make_consumer(group_id=group)
    consumer.assign(beginning(written))
    take(consumer, 42)
    consumer.close()
    assert committed(make_consumer(group_id=group), written) == OFFSET_INVALID


def test_stored_offsets_are_what_is_committed_where_the_application_stores_them(
    written: str, group: str, make_consumer: MakeConsumer
) -> None:
    consumer = make_consumer(group_id=group, enable_auto_offset_store=False, enable_auto_commit=True)
    consumer.assign(beginning(written))
    messages = take(consumer, 50)
    with pytest.raises(KafkaException) as raised:
        consumer.commit(asynchronous=False)
    assert raised.value.error.code() == KafkaError._NO_OFFSET
    consumer.store_offsets(messages[8])
    consumer.commit(asynchronous=False)
    assert committed(consumer, written) == 9
    consumer.store_offsets(offsets=[TopicPartition(written, 0, 33)])
    consumer.close()
    assert committed(make_consumer(group_id=group), written) == 33


def test_storing_is_refused_where_it_goes_by_itself_or_nothing_is_assigned(
    written: str, group: str, make_consumer: MakeConsumer
) -> None:
    consumer = make_consumer(group_id=group)
    with pytest.raises(KafkaException) as raised:
        consumer.store_offsets(offsets=[TopicPartition(written, 0, 1)])
    assert raised.value.error.code() == KafkaError._INVALID_ARG
    storing = make_consumer(group_id=group, enable_auto_offset_store=False)
    with pytest.raises(KafkaException) as raised:
        storing.store_offsets(offsets=[TopicPartition(written, 0, 1)])
    assert raised.value.error.code() == KafkaError._STATE


def test_a_commit_without_a_group_says_what_is_missing(written: str, make_consumer: MakeConsumer) -> None:
    consumer = make_consumer()
    consumer.assign([TopicPartition(written, 0)])
    take(consumer, 1)
    with pytest.raises(KafkaException, match=r"`group.id` is not set"):
        consumer.commit(asynchronous=False)


def test_a_partition_that_is_given_away_is_committed_first(
    raw: RawConnection, group: str, make_consumer: MakeConsumer
) -> None:
    topic = new_topic(raw, partitions=2)
    for partition in range(2):
        write(raw, topic, [b"x"] * 10, partition=partition)
    consumer = make_consumer(group_id=group, enable_auto_commit=True)
    consumer.assign(beginning(topic))
    take(consumer, 10)
    consumer.incremental_assign(beginning(topic, 1))
    consumer.incremental_unassign([TopicPartition(topic, 0)])
    assert committed(consumer, topic) == 10
    take(consumer, 10)
    consumer.unassign()
    assert committed(consumer, topic, 1) == 10


def test_what_was_given_back_while_a_commit_was_tried_again_is_left_to_its_new_owner(
    written: str, group: str, make_consumer: MakeConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = make_consumer(group_id=group)
    consumer.assign(beginning(written))
    attempts: list[tuple[int, list[Any]]] = []

    class Rebalanced:
        """A group whose next generation begins with the first attempt."""

        thrown_out = None
        assigned: frozenset[Any] = frozenset()

        @property
        def member(self) -> Member:
            return Member(5 + len(attempts), "me")

        def refused(self, code: int, generation: int) -> None:
            """Heard."""

    async def commit(brokers: Any, node: int, group: str, offsets: Any, member: Any, **more: Any) -> dict[Any, int]:
        attempts.append((member.generation, sorted(offsets)))
        code = KafkaError.COORDINATOR_LOAD_IN_PROGRESS if len(attempts) == 1 else 0
        return dict.fromkeys(offsets, code)

    monkeypatch.setattr("oncelog.client.groups.commits.commit_offsets", commit)
    core = driver_of(consumer).operations.core
    core.group = Rebalanced()  # type: ignore[assignment]
    kept, gone = (written, 0), (written, 1)
    codes = driver_of(consumer).run(core.commit({kept: ToCommit(7), gone: ToCommit(7)}))
    core.group = None
    assert attempts == [(5, [kept, gone]), (6, [kept])]
    assert codes == {kept: 0, gone: KafkaError.ILLEGAL_GENERATION}


def test_what_a_call_has_collected_is_the_applications_before_anything_is_given_back(
    written: str, group: str, make_consumer: MakeConsumer
) -> None:
    consumer = make_consumer(group_id=group)
    consumer.assign(beginning(written))
    operations = driver_of(consumer).operations
    given_back: list[dict[Any, Any]] = []

    async def give_back() -> None:
        given_back.append(operations.core.to_commit(is_explicit=True))

    async def call() -> None:
        operations.core.call(Call(None, give_back))

    def rebalance() -> None:
        until(lambda: operations.is_waiting and (100, 0) in operations.delivery.handed().values(), "all collected")
        driver_of(consumer).run(call())

    rebalancing = threading.Thread(target=rebalance)
    rebalancing.start()
    assert len(consumer.consume(150, PATIENCE_S)) == 100
    rebalancing.join()
    assert given_back == [], "what was not handed out yet would be committed"
    consumer.poll(0)
    assert [each[written, 0].offset for each in given_back] == [100]


@pytest.mark.parametrize("metadata", [0, 7, b"note"])
def test_metadata_that_is_no_text_is_refused(group: str, make_consumer: MakeConsumer, metadata: Any) -> None:
    with pytest.raises(TypeError, match=r"t \[0\]: what is committed as metadata is a str, not"):
        make_consumer(group_id=group).commit(offsets=[TopicPartition("t", 0, 1, metadata)], asynchronous=False)


def test_a_commit_that_nobody_answers_ends_with_its_time(
    server: Server, topic: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time is documented as 60 seconds; here it is shorter."""
    with FaultProxy(server.bootstrap_servers, []) as proxy:
        properties = {"bootstrap.servers": proxy.bootstrap_servers, "group.id": group, "enable.auto.commit": False}
        consumer = Consumer(properties)
        consumer.commit(offsets=[TopicPartition(topic, 0, 5)], asynchronous=False)
        monkeypatch.setattr(core, "PATIENCE_MS", 300)
        proxy.refuse(True)
        proxy.cut_all()
        with pytest.raises(KafkaException) as raised:
            consumer.commit(offsets=[TopicPartition(topic, 0, 6)], asynchronous=False)
        consumer.close()
    error = raised.value.args[0]
    assert error.code() in (KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT)
