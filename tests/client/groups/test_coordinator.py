"""A member over real connections: what happens to it, and what the application is told."""

import asyncio
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from oncelog.client.errors import KafkaError
from oncelog.client.groups.membership_steps import Member
from oncelog.embedded import Server
from oncelog.wire.requests import RequestSchema
from tests.client.groups.mixed import make_topic
from tests.client.groups.support import CONSUMER, Ours, until

_numbers = count()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(settings={"group.consumer.heartbeat.interval.ms": 50}) as server:
        yield server


@pytest.fixture
def servers(server: Server) -> str:
    return server.bootstrap_servers


@pytest.fixture
def topic(servers: str) -> str:
    name = f"topic-{next(_numbers)}"
    make_topic(servers, name)
    return name


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "sticky", "cooperative-sticky", CONSUMER])
async def test_members_share_and_take_over(servers: str, topic: str, assignor: str) -> None:
    async with Ours(servers, topic, assignor) as first:
        first.group.subscribe([topic])
        await until(lambda: len(first.owned) == 6, [first])
        async with Ours(servers, topic, assignor) as second:
            second.group.subscribe([topic])
            await until(lambda: len(first.owned) == len(second.owned) == 3, [first, second])
            assert not first.owned & second.owned
        await until(lambda: len(first.owned) == 6, [first])
    assert first.owned == set() and first.errors == []
    assert first.group.member == Member()


@pytest.mark.parametrize("assignor", ["cooperative-sticky", CONSUMER])
async def test_new_partitions_are_shared_out_too(servers: str, topic: str, assignor: str) -> None:
    async with Ours(servers, topic, assignor) as one, Ours(servers, topic, assignor) as two:
        one.group.subscribe([topic])
        two.group.subscribe([topic])
        await until(lambda: len(one.owned) == len(two.owned) == 3, [one, two])
        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_partitions([NewPartitions(topic, 8)])[topic].result(30)
        await until(lambda: len(one.owned) == len(two.owned) == 4, [one, two])


@pytest.mark.parametrize("assignor", ["cooperative-sticky", CONSUMER])
async def test_another_subscription_changes_what_is_owned(servers: str, topic: str, assignor: str) -> None:
    make_topic(servers, f"{topic}-too", 2)
    async with Ours(servers, topic, assignor) as one:
        one.group.subscribe([topic])
        await until(lambda: len(one.owned) == 6, [one])
        one.group.subscribe([topic, f"{topic}-too"])
        await until(lambda: len(one.owned) == 8, [one])
        one.group.subscribe([f"{topic}-too"])
        await until(lambda: {name for name, _ in one.owned} == {f"{topic}-too"} and one.group.is_steady, [one])
        one.group.subscribe([])
        await until(lambda: not one.owned, [one])
        one.group.subscribe([topic])
        await until(lambda: len(one.owned) == 6, [one])


async def test_a_goodbye_that_cannot_be_said_is_not_waited_for(
    servers: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connecting to a coordinator that is gone may take long."""
    monkeypatch.setattr("oncelog.client.groups.coordinator.LEAVE_PATIENCE_MS", 10)
    async with Ours(servers, topic, "range") as one:
        one.group.subscribe([topic])
        await until(lambda: len(one.owned) == 6, [one])
        connection = one.brokers.connection

        async def unreachable(node_id: int | None, purpose: str = "") -> Any:
            return await (asyncio.Event().wait() if purpose == "group" else connection(node_id, purpose))

        monkeypatch.setattr(one.brokers, "connection", unreachable)
        async with asyncio.timeout(20):
            await one.group.leave()
    assert one.owned == set() and one.errors == []


@pytest.mark.parametrize("assignor", ["range", CONSUMER])
async def test_a_member_that_is_not_polled_loses_its_partitions_and_comes_back_with_the_next_poll(
    servers: str, topic: str, assignor: str
) -> None:
    async with Ours(servers, topic, assignor) as stuck, Ours(servers, topic, assignor) as other:
        stuck.group.subscribe([topic])
        other.group.subscribe([topic])
        await until(lambda: len(stuck.owned) == len(other.owned) == 3, [stuck, other])
        stuck.ahead_ms += stuck.settings.max_poll_interval_ms
        while not stuck.errors or len(other.owned) < 6:
            other.group.polled()
            other.changed.clear()
            waits = [asyncio.ensure_future(each.changed.wait()) for each in (stuck, other)]
            await asyncio.wait(waits, timeout=0.1, return_when=asyncio.FIRST_COMPLETED)
        assert stuck.errors == [KafkaError(KafkaError._MAX_POLL_EXCEEDED)]
        assert stuck.told[-1][0] == "lost" and stuck.owned == set()
        await until(lambda: len(stuck.owned) == len(other.owned) == 3, [stuck, other])


@pytest.mark.parametrize("assignor", ["range", CONSUMER])
async def test_a_static_member_keeps_its_partitions_over_a_restart(servers: str, topic: str, assignor: str) -> None:
    async with Ours(servers, topic, assignor) as other:
        other.group.subscribe([topic])
        async with Ours(servers, topic, assignor, group_instance_id="one") as first:
            first.group.subscribe([topic])
            await until(lambda: len(first.owned) == len(other.owned) == 3, [first, other])
            kept, told = set(first.owned), list(other.told)
        async with Ours(servers, topic, assignor, group_instance_id="one") as again:
            again.group.subscribe([topic])
            await until(lambda: again.group.is_steady, [again, other])
            assert again.owned == kept and other.told == told


async def test_of_two_members_with_one_name_the_older_is_fenced_for_good(servers: str, topic: str) -> None:
    async with Ours(servers, topic, "range", group_instance_id="one") as older:
        older.group.subscribe([topic])
        await until(lambda: len(older.owned) == 6, [older])
        async with Ours(servers, topic, "range", group_instance_id="one") as newer:
            newer.group.subscribe([topic])
            await until(lambda: len(newer.owned) == 6 and bool(older.errors), [older, newer])
            assert older.errors == [KafkaError(KafkaError.FENCED_INSTANCE_ID)] and older.errors[0].fatal()
            await until(lambda: not older.owned, [older])
            assert older.told[-1][0] == "lost" and older.group.fatal is not None


@pytest.mark.parametrize("assignor", ["cooperative-sticky", CONSUMER])
async def test_a_member_that_the_coordinator_forgot_is_told_that_it_lost_and_joins_again(
    servers: str, topic: str, assignor: str
) -> None:
    async with Ours(servers, topic, assignor) as one:
        one.group.subscribe([topic])
        await until(lambda: len(one.owned) == 6, [one])
        await remove(one)
        await until(lambda: [what for what, _ in one.told] == ["assigned", "lost", "assigned"], [one])
        assert len(one.owned) == 6


async def test_a_commit_that_was_refused_tells_the_member_at_once(servers: str, topic: str) -> None:
    async with Ours(servers, topic, "range", heartbeat_interval_ms=5000) as one:
        one.group.subscribe([topic])
        await until(lambda: one.group.is_steady, [one])
        await remove(one)
        one.group.refused(KafkaError.UNKNOWN_MEMBER_ID, one.group.member.generation)
        await until(lambda: [what for what, _ in one.told] == ["assigned", "lost", "assigned"], [one])


async def remove(member: Ours) -> None:
    """Out of the group, behind its back."""

    def build(spoken: RequestSchema) -> Any:
        gone = spoken.new("MemberIdentity", member_id=member.group.member.member_id, group_instance_id=None)
        return spoken.new("LeaveGroupRequest", group_id=member.group.group_id, members=(gone,))

    node_id = await member.brokers.coordinators.node(member.group.group_id)
    answer = await member.brokers.request(node_id, "leave_group", build, versions=(3, 5))
    assert int(answer.members[0].error_code) == 0


async def test_a_callback_that_fails_is_told_and_the_group_goes_on(servers: str, topic: str) -> None:
    class Failing(Ours):
        async def assigned(self, added: frozenset[tuple[str, int]]) -> None:
            await super().assigned(added)
            raise RuntimeError("of the application")

    async with Failing(servers, topic, "range") as one:
        one.group.subscribe([topic])
        await until(lambda: one.group.is_steady, [one])
        assert one.errors == [KafkaError(KafkaError._APPLICATION)]
        assert "of the application" in one.errors[0].str()


@pytest.mark.parametrize("assignor", ["range", CONSUMER])
async def test_leaving_without_ever_having_joined_is_nothing(servers: str, topic: str, assignor: str) -> None:
    async with Ours(servers, topic, assignor) as one:
        await one.group.leave()
    assert one.told == [] and one.errors == []
