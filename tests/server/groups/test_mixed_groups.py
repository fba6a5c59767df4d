"""Groups whose members speak both protocols: how they go over from one to the other, and what is refused."""

import asyncio
import errno
from contextlib import nullcontext
from typing import Any

import pytest

from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.groups.consumer import place_sharing, protocol_moving
from oncelog.server.groups.consumer.group import ConsumerGroup
from oncelog.server.groups.consumer.values import JOINS, LEAVES, NOWHERE, Beat, BeatAnswer, MemberState
from oncelog.server.groups.embedded import read_share, share_bytes
from oncelog.server.groups.group import Group
from oncelog.server.groups.messages import JoinAnswer, Leaving, SyncAnswer, SyncRequest
from oncelog.server.groups.state import State
from tests.log.memory_disk import MemoryDisk
from tests.server.groups.consumer_support import assigned, beat, indexes
from tests.server.groups.support import SESSION_MS, House, join_request, joined
from tests.server.groups.two_brokers import move, two_brokers
from tests.server.groups.words import subscription
from tests.server.topics_support import grow_to

REBALANCING, NONE = ErrorCode.rebalance_in_progress, ErrorCode.none
NOTHING_ADDED = b"\xff\xff\xff\xff"  # by the assignor
SETTINGS = "group.consumer.session.timeout.ms=60000", "message.max.bytes=4000"


@pytest.fixture
def house() -> House:
    return a_house()


def a_house(*given: str) -> House:
    house = House(*SETTINGS, *given)
    house.make_topic("t", 4)
    return house


class Classic:
    """A member of the classic protocol."""

    def __init__(
        self,
        house: House,
        name: str,
        instance: str | None = None,
        rebalance_ms: int = SESSION_MS,
        assignor: str = "range",
    ) -> None:
        self.house, self.name, self.instance, self.rebalance_ms = house, name, instance, rebalance_ms
        self.assignor, self.added = assignor, NOTHING_ADDED
        self.id, self.generation = "", -1
        self.has: tuple[int, ...] = ()  # what it says that it has

    async def join(self, *topics: str, **more: Any) -> JoinAnswer:
        answer = await joined(
            self.house,
            member_id=self.id,
            fresh_id=f"{self.name}-{self.generation}",
            instance_id=self.instance,
            protocols=((self.assignor, subscription(topics or ("t",), [("t", index) for index in self.has])),),
            rebalance_timeout_ms=self.rebalance_ms,
            **more,
        )
        if answer.error is NONE:
            self.id, self.generation = answer.member_id, answer.generation
        return answer

    async def sync(self, **shares: tuple[int, ...]) -> SyncAnswer:
        given = {
            member: share_bytes(subscription([]), {"t": share}).removesuffix(NOTHING_ADDED) + self.added
            for member, share in shares.items()
        }
        request = SyncRequest(
            member_id=self.id, generation=self.generation, instance_id=self.instance, assignments=given
        )
        answer = self.house.groups.sync("g", request, self.house.clock.now())
        return answer if isinstance(answer, SyncAnswer) else await answer

    async def share(self) -> tuple[int, ...]:
        answer = await self.sync()
        assert answer.error is NONE
        return read_share(answer.assignment).partitions.get("t", ())

    def beat(self) -> ErrorCode:
        return self.house.groups.heartbeat("g", self.id, self.instance, self.generation, self.house.clock.now())

    def commits(self) -> ErrorCode:
        return self.house.groups.check_commit("g", self.id, self.instance, self.generation, self.house.clock.now())

    def leave(self) -> None:
        self.house.groups.leave("g", [Leaving(member_id=self.id)], self.house.clock.now())


async def alone(house: House, name: str = "a", **more: Any) -> Classic:
    """One that leads, and has taken all."""
    member = Classic(house, name, **more)
    await member.join()
    await member.sync(**{member.id: (0, 1, 2, 3)})
    return member


async def second_of(first: Classic) -> Classic:
    """Another member of the classic protocol, in a generation that the first one leads."""
    second = Classic(first.house, "z")
    later = asyncio.ensure_future(second.join())
    await asyncio.sleep(0)
    await first.join()
    await later
    return second


def group_of(house: House) -> object:
    return house.groups.groups["g"]


def newer(house: House) -> ConsumerGroup:
    group = house.groups.consumer.get("g")
    assert group is not None
    return group


def came(house: House, name: str = "b", **more: Any) -> BeatAnswer:
    return beat(house, name, **more)


def goes(house: House) -> BeatAnswer:
    return beat(house, "b", LEAVES)


async def both(house: House) -> tuple[Classic, int]:
    """A member of each kind, with two partitions each. And the epoch of the newer one."""
    classic = await alone(house)
    epoch = came(house).epoch
    await classic.join()
    assert await classic.share() == (0, 1)
    answer = beat(house, "b", epoch)
    assert indexes(assigned(answer)) == [2, 3]
    return classic, answer.epoch


async def test_a_group_goes_over_with_its_first_newer_member_and_back_when_it_is_out(house: House) -> None:
    classic, epoch = await both(house)
    assert (isinstance(group_of(house), ConsumerGroup), classic.generation, classic.beat()) == (True, epoch, NONE)
    beat(house, "b", LEAVES)
    group = group_of(house)
    assert isinstance(group, Group)
    assert (group.generation, group.state, classic.beat()) == (epoch, State.PREPARING_REBALANCE, REBALANCING)
    assert classic.commits() is NONE, "before it gives anything up"
    answer = await classic.join()
    assert (answer.generation, answer.leader) == (epoch + 1, classic.id)


async def test_a_classic_member_keeps_its_partitions_until_it_joins_again(house: House) -> None:
    classic = await alone(house)
    answer = came(house)
    assert (assigned(answer), classic.beat(), classic.commits()) == (NOWHERE, REBALANCING, NONE)
    assert beat(house, "b", answer.epoch).assigned is None
    await classic.join()
    assert indexes(assigned(beat(house, "b", answer.epoch))) == [2, 3]


async def test_a_cooperative_member_gives_up_one_after_the_other(house: House) -> None:
    classic = await alone(house)
    classic.has = (0, 1, 2, 3)
    epoch, before = came(house).epoch, classic.generation
    await classic.join()
    assert (classic.generation, await classic.share(), classic.beat()) == (before, (0, 1), REBALANCING)
    assert beat(house, "b", epoch).assigned is None, "it has not said yet that it gave them up"
    classic.has = (0, 1)
    await classic.join()
    assert (classic.generation, classic.beat()) == (epoch, NONE)
    assert indexes(assigned(beat(house, "b", epoch))) == [2, 3]


async def test_what_a_member_may_not_have_given_up_yet_is_nobody_elses(house: House) -> None:
    classic = await alone(house)
    classic.has = (0, 1, 2, 3)
    second = await second_of(classic)
    await classic.sync(**{classic.id: (0, 1), second.id: ()})
    epoch = came(house).epoch
    assert beat(house, "b", epoch).assigned is None, "the first may not have heard of its share"


async def test_who_waits_for_a_generation_is_told_to_join_again() -> None:
    house = a_house("group.initial.rebalance.delay.ms=3000")
    waits = house.groups.join("g", join_request(), house.clock.now())
    assert isinstance(waits, asyncio.Future)
    came(house)
    answer = await waits
    assert (answer.error, answer.member_id) == (REBALANCING, "m1")
    again = await joined(house, member_id="m1")
    assert (again.error, again.leader, again.members) == (NONE, "", ())


async def test_offsets_stay_both_ways(house: House) -> None:
    await alone(house)
    house.commit("g", "t", 7)
    came(house)
    assert house.offset("g", "t") == 7
    beat(house, "b", LEAVES)
    assert (house.offset("g", "t"), house.after_restart().offset("g", "t")) == (7, 7)


@pytest.mark.parametrize("policy", ["disabled", "upgrade", "downgrade", "bidirectional"])
async def test_the_policy_says_which_way_a_group_may_go(policy: str) -> None:
    house = a_house(f"group.consumer.migration.policy={policy}")
    await alone(house)
    if policy in ("upgrade", "bidirectional"):
        came(house)
    else:
        with pytest.raises(KafkaError) as refused:
            came(house)
        assert refused.value.code is ErrorCode.group_id_not_found
        return
    beat(house, "b", LEAVES)
    assert isinstance(group_of(house), Group if policy == "bidirectional" else ConsumerGroup)


@pytest.mark.parametrize("policy", ["upgrade", "downgrade"])
async def test_a_newer_group_takes_classic_members_whatever_the_policy(policy: str) -> None:
    house = a_house(f"group.consumer.migration.policy={policy}")
    epoch = came(house).epoch
    classic = Classic(house, "a")
    assert (await classic.join()).error is NONE
    beat(house, "b", epoch)
    beat(house, "b", LEAVES)
    assert isinstance(group_of(house), Group if policy == "downgrade" else ConsumerGroup)
    assert classic.beat() is REBALANCING
    await classic.join()
    shares = {"": (), classic.id: (0, 1, 2, 3)}
    answer = await classic.sync(**(shares if policy == "downgrade" else {}))
    assert read_share(answer.assignment).partitions == {"t": (0, 1, 2, 3)}


async def test_a_mixed_group_is_read_back(house: House) -> None:
    classic, epoch = await both(house)
    before = newer(house).members
    house = classic.house = house.after_restart()
    members = newer(house).members
    for name in ("said", "current", "target", "instances", "epoch", "topics_hash", "target_epoch", "classics"):
        assert getattr(members, name) == getattr(before, name), name
    assert (classic.beat(), await classic.share()) == (NONE, (0, 1))
    beat(house, "b", epoch)
    beat(house, "b", LEAVES)
    house = classic.house = house.after_restart()
    group = group_of(house)
    assert isinstance(group, Group)
    assert (group.generation, len(group.members), group.protocol_type) == (epoch, 1, "consumer")


async def test_a_mixed_group_goes_on_where_its_partition_went() -> None:
    house, first, second = two_brokers()
    house.groups = first.groups
    classic = Classic(house, "a")
    await classic.join()
    await classic.sync(**{classic.id: (0,)})
    came(house)
    move(house, second, first)
    assert classic.beat() is ErrorCode.not_coordinator
    house.groups = second.groups
    assert (classic.beat(), classic.commits()) == (REBALANCING, NONE)
    await classic.join()
    assert await classic.share() == (0,)
    goes(house)
    move(house, first, second)
    house.groups = first.groups
    assert isinstance(group_of(house), Group)
    assert (classic.beat(), house.offset("g", "t")) == (REBALANCING, 5)


async def test_nobody_hears_of_what_could_still_be_lost() -> None:
    house = a_house("oncelog.flush=every")
    joins = Beat(member_id="b", epoch=JOINS, rebalance_timeout_ms=1, topics=("t",), owned=NOWHERE)
    house.groups.consumer.heartbeat("g", joins, lambda name: True, house.clock.now())
    answer = house.groups.join("g", join_request(), house.clock.now())
    await asyncio.sleep(0)
    assert isinstance(answer, asyncio.Future)
    assert not answer.done()
    partition = house.flushes[-1]
    partition.log.flush()
    partition.wake()
    assert (await answer).generation == newer(house).members.current_of("m1").epoch


async def test_a_group_that_could_not_be_stored_has_not_gone_over(house: House) -> None:
    classic = await alone(house)
    assert isinstance(house.disk, MemoryDisk)
    for go in (came, goes):
        before = group_of(house)
        house.disk.fail("pwritev", errno.ENOSPC, times=1)
        with pytest.raises(KafkaError):
            go(house)
        assert group_of(house) is before
        assert classic.beat() is (NONE if isinstance(before, Group) else REBALANCING)
        go(house)
        assert type(group_of(house)) is not type(before)


async def test_a_group_stays_where_it_would_be_too_much_to_be_stored(house: House) -> None:
    came(house)
    members = [Classic(house, f"m{number}") for number in range(6)]
    for each in members:
        await each.join("t", *("x" * 230 + str(number) for number in range(3)))
    before = newer(house).members.epoch
    beat(house, "b", LEAVES)
    assert (newer(house).members.epoch, set(newer(house).members.said)) == (before + 1, {each.id for each in members})
    assert members[0].beat() is REBALANCING


async def test_a_classic_member_has_its_own_session_and_its_time_to_join_and_to_ask(house: House) -> None:
    classic = await alone(house)
    came(house)
    house.timers.advance(SESSION_MS - 1)
    assert classic.id in newer(house).members.said
    house.timers.advance(1)
    assert set(newer(house).members.said) == {"b"}


@pytest.mark.parametrize("joins", [False, True])
async def test_who_sends_heartbeats_but_does_not_do_what_it_is_told_is_out(house: House, joins: bool) -> None:
    classic = await alone(house, rebalance_ms=25_000)
    epoch = came(house).epoch
    if joins:
        await classic.join()  # and does not ask for its share
    for at in range(10):
        assert (classic.beat() is ErrorCode.unknown_member_id) == (at * 5_000 >= 25_000), at
        beat(house, "b", epoch, owned=NOWHERE)
        epoch = newer(house).members.current_of("b").epoch
        house.timers.advance(5_000)


async def test_who_must_act_has_no_more_time_because_the_disk_refused_something(house: House) -> None:
    classic = await alone(house, rebalance_ms=8_000)
    came(house)
    assert classic.beat() is REBALANCING
    house.timers.advance(5_000)
    assert isinstance(house.disk, MemoryDisk)
    house.disk.fail("pwritev", errno.ENOSPC, times=1)
    with pytest.raises(KafkaError):
        came(house, "c")
    assert classic.beat() is REBALANCING
    house.timers.advance(3_000)
    assert classic.beat() is ErrorCode.unknown_member_id


async def test_who_was_sent_away_and_joins_again_with_what_it_had_is_told_so(house: House) -> None:
    classic, epoch = await both(house)
    classic.leave()
    classic.has = (0, 1)
    assert (await classic.join()).error is ErrorCode.unknown_member_id
    beat(house, "b", epoch)
    classic.has = ()
    assert (await classic.join()).error is NONE


async def test_a_group_of_classic_members_alone_notices_new_partitions() -> None:
    house = a_house("group.consumer.migration.policy=upgrade")
    classic = await alone(house)
    came(house)
    beat(house, "b", LEAVES)
    await classic.join()
    assert (await classic.share(), classic.beat()) == ((0, 1, 2, 3), NONE)
    house.make_topic("other", 1)
    assert classic.beat() is NONE
    topic = house.topics.get("t")
    assert topic is not None
    grow_to(house.topics, topic, 5)
    assert classic.beat() is REBALANCING
    await classic.join()
    assert await classic.share() == (0, 1, 2, 3, 4)


async def test_a_static_member_goes_over_and_back_under_its_name(house: House) -> None:
    classic = await alone(house, instance="one")
    answer = came(house, instance_id="one")
    assert indexes(assigned(answer)) == [0, 1, 2, 3]
    assert classic.beat() is ErrorCode.fenced_instance_id
    back = Classic(house, "c", "one")
    told = await back.join()
    assert (told.error, told.generation, back.beat()) == (NONE, answer.epoch, NONE)
    assert isinstance(group_of(house), Group)
    assert await back.share() == (0, 1, 2, 3), "nothing has changed for it"


async def test_a_group_in_which_two_members_have_the_same_does_not_go_over(house: House) -> None:
    classic = await alone(house)
    second = await second_of(classic)
    await classic.sync(**{classic.id: (0, 1), second.id: (1, 2)})
    with pytest.raises(KafkaError) as refused:
        came(house)
    assert refused.value.code is ErrorCode.group_id_not_found


@pytest.mark.parametrize(("assignor", "goes_over"), [("cooperative-sticky", True), ("mine", False)])
async def test_data_that_an_assignor_adds_to_shares_are_no_loss_where_it_is_a_sticky_one_of_the_clients(
    house: House, assignor: str, goes_over: bool
) -> None:
    classic = Classic(house, "a", assignor=assignor)
    classic.added = b"\0\0\0\1x"
    await classic.join()
    await classic.sync(**{classic.id: (0, 1, 2, 3)})
    with nullcontext() if goes_over else pytest.raises(KafkaError, match="an unsupported custom assignor is in use"):
        came(house)
    assert isinstance(group_of(house), ConsumerGroup if goes_over else Group)
    assert classic.beat() is (REBALANCING if goes_over else NONE)


async def test_no_more_members_go_over_than_take_no_time(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    classic = await alone(house)
    with monkeypatch.context() as patch:
        patch.setattr(protocol_moving, "MOST_MOVED", 0)
        with pytest.raises(KafkaError) as refused:
            came(house)
        assert (refused.value.code, classic.beat()) == (ErrorCode.group_id_not_found, NONE)
    came(house)
    monkeypatch.setattr(place_sharing, "MOST_MOVED", 0)
    goes(house)
    assert set(newer(house).members.said) == {classic.id}


@pytest.mark.parametrize("bound", ["MOST_PLACES", "MOST_MOVED_NAMES"])
async def test_no_more_is_read_of_a_group_that_goes_over_than_takes_no_time(
    house: House, bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol_moving, bound, 0)
    await alone(house)
    with pytest.raises(KafkaError) as refused:
        came(house)
    assert refused.value.code is ErrorCode.group_id_not_found


async def test_members_that_all_claim_the_same_are_all_looked_at_and_so_are_bounded(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await alone(house)
    first.has = (0, 1, 2, 3)
    second = Classic(house, "z")
    second.has = first.has
    later = asyncio.ensure_future(second.join())
    await asyncio.sleep(0)
    await first.join()
    await later
    monkeypatch.setattr(protocol_moving, "MOST_PLACES", 7)
    with pytest.raises(KafkaError) as refused:
        came(house)
    assert refused.value.code is ErrorCode.group_id_not_found


async def test_a_group_of_too_many_partitions_stays_what_it_is(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    classic, _ = await both(house)
    monkeypatch.setattr(place_sharing, "MOST_PLACES", 1)
    goes(house)
    assert set(newer(house).members.said) == {classic.id}


async def test_a_classic_member_hears_nothing_of_topics_that_it_may_not_know(house: House) -> None:
    house.make_topic("secret", 3)
    came(house, topics=("t",))
    classic = Classic(house, "a")
    await classic.join("t", "secret", may_know=lambda name: name != "secret")
    shares = read_share((await classic.sync()).assignment).partitions
    assert "secret" not in shares


async def test_who_was_told_another_protocol_before_it_went_back_joins_again(house: House) -> None:
    classic, _ = await both(house)
    goes(house)
    request = SyncRequest(member_id=classic.id, generation=classic.generation, protocol_name="other", assignments={})
    answer = house.groups.sync("g", request, house.clock.now())
    assert (answer if isinstance(answer, SyncAnswer) else await answer).error is REBALANCING


async def test_an_id_that_was_handed_out_before_is_good_after(house: House) -> None:
    told = await joined(house, needs_known_id=True, fresh_id="later")
    came(house)
    answer = await joined(house, needs_known_id=True, member_id=told.member_id)
    assert (answer.error, answer.member_id) == (NONE, "later")


async def test_a_member_that_changes_what_it_reads_gives_up_that_too(house: House) -> None:
    house.make_topic("u", 2)
    first = came(house, topics=("t", "u"))
    came(house, "c", topics=("t",))
    told = beat(house, "b", first.epoch, owned=assigned(first))
    members = newer(house).members
    assert members.current_of("b").state is MemberState.UNREVOKED
    left = beat(house, "b", told.epoch, topics=("t",), owned=assigned(told))
    assert assigned(left) < assigned(told)
    topic = house.topics.get("u")
    assert topic is not None
    assert not [each for each in assigned(left) if each.topic_id == topic.id.bytes]
    done = beat(house, "b", left.epoch, owned=assigned(left))
    assert done.epoch == members.epoch
