"""Consumers in groups of KIP-848 (`group.protocol=consumer`), of both faces: shared topics, patterns, commits."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from oncelog.client.consumer.asynchronous import AsyncConsumer
from oncelog.client.consumer.consumer import Consumer
from oncelog.client.consumer.core import Core
from oncelog.client.errors import KafkaError, KafkaException
from oncelog.client.groups import commits
from oncelog.client.groups.commits import Committed, ToCommit
from oncelog.client.groups.membership_steps import Member
from oncelog.client.properties import consumer_settings
from oncelog.client.types import OFFSET_INVALID, TopicPartition
from oncelog.embedded import Server
from tests.client.consumer.conftest import MakeConsumer
from tests.client.consumer.reading import PATIENCE_S, take, values, write
from tests.client.consumer.test_groups import indexes, poll_until
from tests.raw import RawConnection
from tests.raw.topics import new_topic
from tests.waiting import until

_groups = count(1)
PARTITIONS = 4
OFTEN = {"group.consumer.heartbeat.interval.ms": 50}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(settings=OFTEN) as server:
        yield server


@pytest.fixture
def group() -> str:
    return f"told-{next(_groups)}"


@pytest.fixture
def topic(raw: RawConnection) -> str:
    """Four partitions of ten records."""
    topic = new_topic(raw, partitions=PARTITIONS)
    fill(raw, topic)
    return topic


def fill(raw: RawConnection, topic: str) -> None:
    for partition in range(PARTITIONS):
        write(raw, topic, [f"{partition}.{i}".encode() for i in range(10)], partition=partition)


def sharing(group: str, **more: Any) -> dict[str, Any]:
    return {"group_id": group, "group_protocol": "consumer", **more}


def has_all(consumer: Consumer) -> bool:
    return len(indexes(consumer)) == PARTITIONS


def committed(consumer: Consumer, topic: str) -> list[int]:
    return [each.offset for each in consumer.committed([TopicPartition(topic, n) for n in range(PARTITIONS)], 20)]


def test_members_share_and_one_that_leaves_gives_its_share_to_the_others(
    topic: str, group: str, make_consumer: MakeConsumer
) -> None:
    told: list[tuple[str, int]] = []
    first, second = (make_consumer(**sharing(group, enable_auto_commit=True)) for _ in range(2))
    first.subscribe(
        [topic],
        on_assign=lambda _, given: told.append(("assigned", len(given))),
        on_revoke=lambda _, taken: told.append(("revoked", len(taken))),
    )
    poll_until([first], lambda: has_all(first), "the first member to have everything")
    assert first.memberid() and first.consumer_group_metadata().generation_id > 0
    second.subscribe([topic])
    poll_until([first, second], lambda: len(indexes(first)) == len(indexes(second)) == 2, "an even share of two each")
    second.close()
    poll_until([first], lambda: has_all(first), "the first member to have everything again")
    poll_until([first], lambda: positions(first, topic) == [10] * PARTITIONS, "every record")
    first.close()
    assert told == [("assigned", 4), ("revoked", 2), ("assigned", 2), ("revoked", 4)]
    assert committed(make_consumer(group_id=group), topic) == [10] * PARTITIONS


def test_a_pattern_is_the_brokers_to_resolve(raw: RawConnection, group: str, make_consumer: MakeConsumer) -> None:
    """It matches whole names; `\\pL`, a letter, is RE2's and not Python's."""
    for name in ("a-1", "a-12", "b-1", "c-1"):
        raw.create_topic(f"{group}-{name}")
    consumer = make_consumer(**sharing(group))
    consumer.subscribe([f"^{group}-\\pL-1", f"{group}-c-1", f"^{group}-d.*"])

    def names() -> set[str]:
        return {each.topic.removeprefix(f"{group}-") for each in consumer.assignment()}

    poll_until([consumer], lambda: names() == {"a-1", "b-1", "c-1"}, "what matches wholly, and what is named")
    raw.create_topic(f"{group}-d-7")
    poll_until([consumer], lambda: names() == {"a-1", "b-1", "c-1", "d-7"}, "a topic that came later")
    consumer.subscribe([f"^{group}-(?=d).*"])
    told = consumer.poll(PATIENCE_S)
    while told is None or told.error() is None:
        told = consumer.poll(PATIENCE_S)
    assert told.error() == KafkaError.INVALID_REGULAR_EXPRESSION


def test_a_topic_that_is_not_there_is_read_as_soon_as_it_is_without_a_word(
    raw: RawConnection, group: str, make_consumer: MakeConsumer
) -> None:
    consumer = make_consumer(**sharing(group))
    consumer.subscribe([f"late-{group}"])
    assert consumer.poll(0.2) is None
    raw.create_topic(f"late-{group}")
    write(raw, f"late-{group}", [b"at last"])
    assert values(take(consumer, 1)) == [b"at last"]


def test_a_callback_may_commit_before_its_partitions_go(topic: str, group: str, make_consumer: MakeConsumer) -> None:
    consumer = make_consumer(**sharing(group))
    consumer.subscribe([topic], on_revoke=lambda which, _: which.commit(asynchronous=False))
    take(consumer, 40)
    consumer.close()
    assert committed(make_consumer(group_id=group), topic) == [10] * PARTITIONS


def test_unsubscribing_gives_everything_back_and_a_new_subscription_joins_again(
    topic: str, group: str, make_consumer: MakeConsumer
) -> None:
    consumer = make_consumer(**sharing(group))
    consumer.subscribe([topic])
    poll_until([consumer], lambda: has_all(consumer), "everything")
    consumer.unsubscribe()
    poll_until([consumer], lambda: not consumer.assignment(), "the partitions to be given back")
    consumer.subscribe([topic])
    poll_until([consumer], lambda: has_all(consumer), "everything again")


def test_who_does_not_poll_loses_its_partitions_commits_nothing_and_comes_back(
    topic: str, group: str, make_consumer: MakeConsumer, stop_polling: Callable[[], None]
) -> None:
    lost: list[int] = []
    consumer = make_consumer(**sharing(group))
    consumer.subscribe([topic], on_lost=lambda _, partitions: lost.extend(each.partition for each in partitions))
    take(consumer, 5)
    stop_polling()
    until(lambda: consumer.memberid() is None, "the group to go on without a consumer that does not poll")
    with pytest.raises(KafkaException) as refused:
        consumer.commit(asynchronous=False)
    assert refused.value.error.code() == KafkaError._MAX_POLL_EXCEEDED
    poll_until([consumer], lambda: bool(lost), "the loss to be told")
    assert sorted(lost) == list(range(PARTITIONS))
    poll_until([consumer], lambda: has_all(consumer), "the partitions to come back")
    assert committed(make_consumer(group_id=group), topic) == [OFFSET_INVALID] * PARTITIONS


def test_of_two_members_with_one_name_the_newer_waits_until_the_older_is_gone(
    topic: str, group: str, make_consumer: MakeConsumer
) -> None:
    older = make_consumer(**sharing(group, group_instance_id="one"))
    older.subscribe([topic])
    poll_until([older], lambda: has_all(older), "the older one to have everything")
    newer = make_consumer(**sharing(group, group_instance_id="one"))
    newer.subscribe([topic])
    errors: list[Any] = []

    def is_told() -> bool:
        message = newer.poll(0)
        errors.extend([] if message is None else [message.error()])
        return bool(errors)

    poll_until([older], is_told, "the newer one to be told")
    assert errors == [KafkaError.UNRELEASED_INSTANCE_ID] and not errors[0].fatal()
    assert has_all(older) and not newer.assignment()
    older.close()
    poll_until([newer], lambda: has_all(newer), "the newer one to have everything")


async def test_a_commit_in_an_epoch_that_is_over_is_made_in_the_next(
    server: Server, topic: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"bootstrap.servers": server.bootstrap_servers, "group.id": group, "group.protocol": "consumer"}
    core = Core(consumer_settings(given), lambda *, is_explicit: {}, lambda: None, lambda function: None)
    attempts: list[tuple[int, int]] = []  # of commits and of fetches
    refused: list[tuple[int, int]] = []

    class Behind:
        """A group whose coordinator is an epoch ahead until it was heard of."""

        thrown_out = None

        @property
        def member(self) -> Member:
            return Member(5 + len(refused), "me")

        def refused(self, code: int, generation: int) -> None:
            refused.append((code, generation))

    async def commit(brokers: Any, node: int, group: str, offsets: Any, member: Member, **more: Any) -> Any:
        attempts.append((member.generation, 0))
        return dict.fromkeys(offsets, KafkaError.STALE_MEMBER_EPOCH if member.generation == 5 else 0)

    async def fetch(brokers: Any, node: int, group: str, places: Any, *, member: Member, **more: Any) -> Any:
        attempts.append((0, member.generation))
        code = KafkaError.STALE_MEMBER_EPOCH if member.generation == 6 else 0
        return code, {} if code else {place: Committed(0, 7, -1, None) for place in places}

    monkeypatch.setattr(commits, "commit_offsets", commit)
    monkeypatch.setattr(commits, "fetch_committed", fetch)
    await core.start()
    await core.assign([((topic, 0), 0, -1)])
    monkeypatch.setattr(core, "group", Behind())
    codes = await core.commit({(topic, 0): ToCommit(7)})
    found = await core.committed([(topic, 0)], 20_000)
    await core.close()
    assert codes == {(topic, 0): 0} and found[topic, 0].offset == 7
    assert attempts == [(5, 0), (6, 0), (0, 6), (0, 7)]
    assert refused == [(KafkaError.STALE_MEMBER_EPOCH, 5), (KafkaError.STALE_MEMBER_EPOCH, 6)]


async def test_the_same_on_the_callers_loop(server: Server, topic: str, group: str) -> None:
    told: list[tuple[str, int]] = []

    async def on_assign(consumer: AsyncConsumer, partitions: list[TopicPartition]) -> None:
        told.append(("assign", len(partitions)))

    def on_revoke(consumer: AsyncConsumer, partitions: list[TopicPartition]) -> None:
        told.append(("revoke", len(partitions)))

    properties = {
        "bootstrap.servers": server.bootstrap_servers,
        "auto.offset.reset": "earliest",
        "group.id": group,
        "group.protocol": "consumer",
    }
    async with AsyncConsumer(properties) as consumer:
        await consumer.subscribe([topic], on_assign=on_assign, on_revoke=on_revoke)
        assert len(await consumer.consume(40, PATIENCE_S)) == 40
    assert told == [("assign", 4), ("revoke", 4)]
    async with AsyncConsumer(properties) as follower:
        found = await follower.committed([TopicPartition(topic, n) for n in range(PARTITIONS)], PATIENCE_S)
        assert [each.offset for each in found] == [10] * PARTITIONS


@pytest.mark.thorough
def test_what_a_killed_member_read_and_did_not_commit_is_read_by_another(group: str) -> None:
    """Kill by kill, a member in a process of its own; the last one is here."""
    with (
        Server(settings={**OFTEN, "group.consumer.session.timeout.ms": 2000}) as server,
        RawConnection(server.bootstrap_servers) as raw,
    ):
        topic = new_topic(raw, partitions=PARTITIONS)
        fill(raw, topic)
        options = ["-G", group, "-X", "group.protocol=consumer", "-t", topic, "-q", "-u"]
        for _ in range(3):
            command = [sys.executable, "-m", "oncelog", "consume", "-b", server.bootstrap_servers, *options]
            with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
                assert process.stdout is not None and process.stdout.readline(), "it reads"
                os.kill(process.pid, signal.SIGKILL)
            fill(raw, topic)
        properties = {"bootstrap.servers": server.bootstrap_servers, "auto.offset.reset": "earliest"}
        with Consumer(properties | {"group.id": group, "group.protocol": "consumer"}) as consumer:
            consumer.subscribe([topic])
            poll_until([consumer], lambda: has_all(consumer), "the dead to be out")
            poll_until([consumer], lambda: positions(consumer, topic) == [40] * PARTITIONS, "every record")


def positions(consumer: Consumer, topic: str) -> list[int]:
    return [each.offset for each in consumer.position([TopicPartition(topic, n) for n in range(PARTITIONS)])]
