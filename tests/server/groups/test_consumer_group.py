"""Groups of KIP-848: what their coordinator stores, takes back, reads back, and whom it sends away."""

import asyncio
import errno
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from oncelog.log.work_steps import at_once
from oncelog.security.documents import Document, Kind
from oncelog.server.api import apis
from oncelog.server.call import Call
from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.group_configs import with_own
from oncelog.server.groups.consumer import place_sharing
from oncelog.server.groups.consumer.assignors import Subscriber, range_, uniform
from oncelog.server.groups.consumer.records import decode, decode_key, encode
from oncelog.server.groups.consumer.values import (
    JOINS,
    LEAVES,
    LEAVES_FOR_A_WHILE,
    NOWHERE,
    Beat,
    BeatAnswer,
    Classic,
    ConsumerLimits,
    ConsumerState,
    Current,
    GroupEpoch,
    MemberCurrent,
    MemberSaid,
    MemberState,
    Pattern,
    Place,
    Resolved,
    Said,
    Target,
    TargetEpoch,
)
from oncelog.server.groups.messages import Leaving
from oncelog.server.groups.offsets import TopicPartition
from oncelog.server.groups.store import Settled
from tests.log.memory_disk import MemoryDisk
from tests.server.groups.consumer_support import REBALANCE_MS, SESSION_MS, assigned, beat, group_of, indexes
from tests.server.groups.support import House, join_request
from tests.server.groups.two_brokers import move, place, two_brokers
from tests.server.topics_support import EVERY_TURN_IS_OVER


@pytest.fixture
def house() -> House:
    house = House()
    house.make_topic("t", 4)
    return house


def test_partitions_go_to_a_second_member_when_the_first_has_given_them_up(house: House) -> None:
    first = beat(house, "a")
    second = beat(house, "b")
    told = beat(house, "a", first.epoch)
    still = beat(house, "b", second.epoch)
    beat(house, "a", told.epoch, owned=told.assigned)
    given = beat(house, "b", still.epoch)
    found = [assigned(each) for each in (first, second, told, given)]
    assert [len(each) for each in found] == [4, 0, 2, 2]
    assert still.assigned is None
    assert found[2] | found[3] == found[0]


def test_who_gives_nothing_up_in_time_is_sent_away(house: House) -> None:
    first, second = beat(house, "a"), beat(house, "b")
    told = beat(house, "a", first.epoch)
    epoch = second.epoch
    for _ in range(3):  # both go on sending heartbeats
        house.timers.advance(REBALANCE_MS // 3)
        beat(house, "a", told.epoch, owned=assigned(first))
        epoch = beat(house, "b", epoch).epoch
    house.timers.advance(REBALANCE_MS)
    with pytest.raises(KafkaError) as refused:
        beat(house, "a", told.epoch)
    assert refused.value.code is ErrorCode.unknown_member_id
    assert len(assigned(beat(house, "b", epoch))) == 4


def test_a_static_member_that_has_not_heard_its_answer_joins_again(house: House) -> None:
    first = beat(house, "a", instance_id="one")
    again = beat(house, "a", instance_id="one")
    assert again == first
    with pytest.raises(KafkaError) as refused:
        beat(house, "b", instance_id="one")
    assert refused.value.code is ErrorCode.unreleased_instance_id
    with pytest.raises(KafkaError) as refused:
        beat(house, "a", 99, instance_id="one")
    assert refused.value.code is ErrorCode.fenced_member_epoch
    assert beat(house, "a", instance_id="one") == first


def test_a_member_that_takes_a_static_members_place_leaves_nothing_of_its_own(house: House) -> None:
    beat(house, "a", instance_id="one")
    beat(house, "b", topics=(), pattern="t.*")
    beat(house, "a", LEAVES_FOR_A_WHILE, instance_id="one")
    beat(house, "b", instance_id="one")
    members = group_of(house).members
    assert (list(members.said), list(members.patterns)) == (["b"], [])
    beat(house, "b", LEAVES, instance_id="one")
    assert (members.held_bytes, members.names) == (0, 0)


def test_who_is_not_heard_of_for_a_session_is_sent_away(house: House) -> None:
    beat(house, "a")
    house.timers.advance(SESSION_MS - 1)
    before = len(group_of(house).members)
    house.timers.advance(1)
    assert (before, len(group_of(house).members)) == (1, 0)
    assert group_of(house).state is ConsumerState.EMPTY


def test_a_coordinator_that_comes_back_knows_all_of_it(house: House) -> None:
    first = beat(house, "a", instance_id="one")
    beat(house, "b", pattern="t.*", topics=())
    beat(house, "a", first.epoch, instance_id="one")
    before = group_of(house).members
    after = house.after_restart()
    members = group_of(after).members
    for name in ("said", "current", "target", "patterns", "instances", "epoch", "topics_hash", "target_epoch"):
        assert getattr(members, name) == getattr(before, name), name
    after.timers.advance(REBALANCE_MS - 1)
    assert len(members) == 2, "one has its whole time to give up what it must, the other a session to be heard of"
    after.timers.advance(1)
    assert set(members.said) == {"b"}
    after.timers.advance(SESSION_MS)
    assert not group_of(after).members


def test_what_the_disk_refuses_has_not_happened(house: House) -> None:
    first = beat(house, "a")
    assert isinstance(house.disk, MemoryDisk)
    house.disk.fail("pwritev", errno.ENOSPC, times=1)
    with pytest.raises(KafkaError) as refused:
        beat(house, "b")
    assert refused.value.code is ErrorCode.not_coordinator
    assert set(group_of(house).members.said) == {"a"}
    assert beat(house, "a", first.epoch).epoch == first.epoch
    assert assigned(beat(house, "b")) == NOWHERE


def refuse(house: House, member: str, epoch: int, **more: object) -> None:
    assert isinstance(house.disk, MemoryDisk)
    house.disk.fail("pwritev", errno.ENOSPC, times=1)
    with pytest.raises(KafkaError):
        beat(house, member, epoch, **more)  # type: ignore[arg-type]


def test_who_gave_up_what_the_disk_refused_to_hear_of_still_has_no_more_than_its_time(house: House) -> None:
    first = beat(house, "a")
    beat(house, "b")
    told = beat(house, "a", first.epoch)
    refuse(house, "a", told.epoch, owned=assigned(told))
    house.timers.advance(REBALANCE_MS)
    assert set(group_of(house).members.said) == {"b"}


def test_nobodys_time_to_give_up_begins_in_a_heartbeat_that_the_disk_refused(house: House) -> None:
    first = beat(house, "a")
    beat(house, "b")
    refuse(house, "a", first.epoch)
    house.timers.advance(REBALANCE_MS)
    assert set(group_of(house).members.said) == {"a", "b"}


def test_what_fails_half_way_has_not_happened(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    beat(house, "a")
    before = group_of(house).members.epoch
    with monkeypatch.context() as patch:
        patch.setattr(place_sharing, "reconciled", lambda *about, **more: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            beat(house, "b")
    members = group_of(house).members
    assert (set(members.said), members.epoch) == ({"a"}, before)


def test_an_assignor_of_another_server_is_as_none(house: House) -> None:
    beat(house, "a")
    group = group_of(house)
    group.members.apply(MemberSaid("a", Said(topics=("t",), assignor="another")))
    beat(house, "b")
    assert group.sharing.assignor == "uniform"


def test_who_says_all_again_hears_what_it_has_also_when_it_reads_by_a_pattern_alone(house: House) -> None:
    first = beat(house, "a", topics=None, pattern="t.*")
    again = beat(house, "a", first.epoch, pattern="t.*", rebalance_timeout_ms=REBALANCE_MS, owned=NOWHERE)
    assert assigned(again) == assigned(first)


async def test_an_epoch_is_told_again_only_when_it_is_safe() -> None:
    house = House("oncelog.flush=every")
    house.make_topic("t", 2)

    def say(member: str, epoch: int, **more: object) -> tuple[BeatAnswer, Settled]:
        found = Beat(member_id=member, epoch=epoch, **more)  # type: ignore[arg-type]
        return house.groups.consumer.heartbeat("g", found, lambda topic: True, house.clock.now())

    joins = {"rebalance_timeout_ms": 1, "topics": ("t",), "owned": NOWHERE}
    first, _ = say("a", JOINS, **joins)
    say("b", JOINS, **joins)
    told, _ = say("a", first.epoch)
    say("a", first.epoch, owned=assigned(told))  # the answer is lost
    again, settled = say("a", first.epoch, owned=assigned(told))
    assert (again.epoch > first.epoch, again.assigned) == (True, None)
    assert isinstance(settled, asyncio.Future)
    assert not settled.done()


def test_a_deleted_topic_is_nobodys_and_its_next_one_is_new(house: House) -> None:
    first = beat(house, "a")
    house.delete_topic("t")
    without = beat(house, "a", first.epoch)
    without = beat(house, "a", without.epoch, owned=NOWHERE)
    house.make_topic("t", 2)
    again = beat(house, "a", without.epoch)
    assert indexes(assigned(again)) == [0, 1]
    assert not assigned(again) & assigned(first)


def test_partitions_that_are_added_are_found_at_the_next_heartbeat(house: House) -> None:
    first = beat(house, "a")
    house.make_topic("t2", 1)
    same = beat(house, "a", first.epoch)
    more = beat(house, "a", same.epoch, topics=("t", "t2"))
    assert (same.assigned, len(assigned(more))) == (None, 5)


def test_a_pattern_finds_topics_that_come_later(house: House) -> None:
    first = beat(house, "a", topics=(), pattern="t.*")
    house.make_topic("tt", 2)
    house.make_topic("other", 2)
    assert len(assigned(first)) == 4
    assert len(assigned(beat(house, "a", first.epoch))) == 6


def test_a_pattern_finds_nothing_that_its_member_may_not_know(house: House) -> None:
    house.make_topic("t-secret", 2)
    found = Beat(member_id="a", epoch=JOINS, rebalance_timeout_ms=1, pattern="t.*", topics=(), owned=NOWHERE)
    answer, _ = house.groups.consumer.heartbeat("g", found, lambda name: "secret" not in name, house.clock.now())
    assert len(assigned(answer)) == 4


def test_only_a_member_of_that_epoch_may_commit(house: House) -> None:
    epoch = beat(house, "a").epoch
    now = house.clock.now()
    asked = [("a", epoch), ("a", epoch - 1), ("b", epoch), ("", -1)]
    found = [house.groups.check_commit("g", member, None, at, now, [TopicPartition("t", 0)]) for member, at in asked]
    unknown = ErrorCode.unknown_member_id
    assert found == [ErrorCode.none, ErrorCode.stale_member_epoch, unknown, unknown]
    older = [
        house.groups.consumer.in_older_words("g", member, each) for (member, _), each in zip(asked, found, strict=True)
    ]
    assert older == [ErrorCode.unsupported_version, ErrorCode.unsupported_version, unknown, unknown]
    beat(house, "a", LEAVES)
    assert house.groups.check_commit("g", "", None, -1, now) is ErrorCode.none


def test_a_member_that_lags_commits_for_what_it_still_has(house: House) -> None:
    first = beat(house, "a")
    beat(house, "b")
    told = beat(house, "a", first.epoch)
    beat(house, "a", told.epoch, owned=assigned(told))  # and does not hear that it is in another epoch now
    now, still = house.clock.now(), indexes(assigned(told))
    gone = [index for index in range(4) if index not in still]

    def error(epoch: int, *places: int) -> ErrorCode:
        committed = [TopicPartition("t", index) for index in places]
        return house.groups.check_commit("g", "a", None, epoch, now, committed)

    found = [error(first.epoch, *still), error(first.epoch, *still, gone[0]), error(first.epoch - 1, *still)]
    assert found == [ErrorCode.none, ErrorCode.stale_member_epoch, ErrorCode.stale_member_epoch]
    late = indexes(assigned(beat(house, "b", 3)))
    found_of_b = house.groups.check_commit("g", "b", None, 2, now, [TopicPartition("t", index) for index in late])
    assert found_of_b is ErrorCode.stale_member_epoch, "it had them in no epoch before"


async def test_a_group_with_members_takes_no_members_of_another_kind(house: House) -> None:
    beat(house, "a")
    joined = house.groups.join("g", join_request(protocol_type="connect"), house.clock.now())
    assert getattr(joined, "error", None) is ErrorCode.inconsistent_group_protocol
    waits = house.groups.join("classic", join_request(protocol_type="connect"), house.clock.now())
    assert waits is not None
    found = Beat(member_id="a", epoch=JOINS, rebalance_timeout_ms=1, topics=("t",), owned=NOWHERE)
    with pytest.raises(KafkaError) as refused:
        house.groups.consumer.heartbeat("classic", found, lambda name: True, house.clock.now())
    assert refused.value.code is ErrorCode.group_id_not_found


def test_an_administrator_sends_members_away(house: House) -> None:
    beat(house, "a")
    beat(house, "b", instance_id="one")
    asked = ("a", None), ("", "one"), ("c", None)
    leavings = [Leaving(member_id=member, instance_id=instance) for member, instance in asked]
    error, left = house.groups.leave("g", leavings, house.clock.now())
    assert error is ErrorCode.none
    assert [each.error for each in left] == [ErrorCode.none, ErrorCode.none, ErrorCode.unknown_member_id]
    assert not group_of(house).members


async def test_who_is_sent_away_is_so_when_it_is_safe() -> None:
    house = House("oncelog.flush=every")
    house.make_topic("t")
    joins = Beat(member_id="a", epoch=JOINS, rebalance_timeout_ms=1, topics=("t",), owned=NOWHERE)
    house.groups.consumer.heartbeat("g", joins, lambda topic: True, house.clock.now())
    broker: Any = SimpleNamespace(groups=house.groups, turns=EVERY_TURN_IS_OVER)
    call = Call(broker, "leave_group", 5, "test", "127.0.0.1", "PLAINTEXT", house.clock.now())
    request = SimpleNamespace(group_id="g", members=[SimpleNamespace(member_id="a", group_instance_id=None)])
    handle: Callable[[Any, Call], Awaitable[Any]] | None = apis()[13].handle
    assert handle is not None
    answer = asyncio.ensure_future(handle(request, call))
    for _ in range(10):
        await asyncio.sleep(0)
    seen = [answer.done()]
    partition = house.flushes[-1]
    partition.log.flush()
    partition.wake()
    assert (await answer).members[0].error_code is ErrorCode.none
    assert seen == [False]


def test_a_large_group_does_not_share_anew_for_each_who_comes() -> None:
    house = House("group.consumer.assignment.interval.ms=1000")
    house.make_topic("t", 4)
    first, second = beat(house, "a"), beat(house, "b")
    soon = beat(house, "a", first.epoch)
    house.timers.advance(1_000)
    later = beat(house, "a", soon.epoch)
    assert (soon.assigned, len(assigned(first)), len(assigned(second)), len(assigned(later))) == (None, 4, 0, 2)


def set_of_group(house: House, **own: str) -> None:
    configs = {f"consumer.{name.replace('_', '.')}": value for name, value in own.items()}

    def change(document: Document) -> Document:
        return with_own(document, "g", configs)

    at_once(house.topics.changing_document(Kind.GROUP_CONFIGS, change, house.clock.now()))


def test_what_a_group_has_of_its_own_counts_from_the_next_heartbeat_on() -> None:
    house = House()
    house.make_topic("t")
    answer = beat(house, "a")
    set_of_group(house, session_timeout_ms="60000", heartbeat_interval_ms="9000")
    longer = beat(house, "a", answer.epoch)
    assert (answer.heartbeat_interval_ms, longer.heartbeat_interval_ms) == (5_000, 9_000)
    house.timers.advance(59_999)
    assert group_of(house).members
    set_of_group(house)
    assert beat(house, "a", answer.epoch).heartbeat_interval_ms == 5_000
    house.timers.advance(45_000)
    assert not group_of(house).members


def test_what_a_group_has_of_its_own_outlives_a_restart() -> None:
    house = House()
    house.make_topic("t")
    set_of_group(house, session_timeout_ms="60000")
    beat(house, "a")
    house = house.after_restart()
    house.timers.advance(59_999)
    assert group_of(house).members
    house.timers.advance(1)
    assert not group_of(house).members


# Among brokers


async def test_a_group_goes_on_where_its_partition_went() -> None:
    house, first, second = two_brokers()
    epoch = -1
    for leader, other in ((first, second), (second, first)):
        answer = beat(house, "a", JOINS if epoch < 0 else epoch, groups=leader.groups)
        assert (answer.epoch, other.groups.consumer.get("group")) == (answer.epoch if epoch < 0 else epoch, None)
        epoch = answer.epoch
        move(house, other, leader)
        assert leader.groups.consumer.get("group") is None
    end = place(house).log.next_offset
    house.timers.advance(SESSION_MS - 1)
    assert place(house).log.next_offset == end, "a session begins anew where it went, and elsewhere nobody writes"
    house.timers.advance(1)
    group = first.groups.consumer.get("group")
    assert group is not None
    assert not group.members


# The assignors

T, U = b"t" * 16, b"u" * 16
COUNTS = {T: 5, U: 4}


def test_uniform_leaves_what_can_be_left() -> None:
    had = {"a": frozenset({Place(T, 3), Place(U, 3)}), "b": frozenset({Place(T, 0), Place(T, 1)}), "c": NOWHERE}
    members = [Subscriber(name, None, frozenset(COUNTS), places) for name, places in had.items()]
    shares = uniform(members, COUNTS)
    assert sorted(map(len, shares.values())) == [3, 3, 3]
    assert all(had[name] <= shares[name] for name in had)


def test_range_gives_neighbours_and_static_members_keep_their_turn() -> None:
    members = [Subscriber("a", None, frozenset(COUNTS)), Subscriber("z", "one", frozenset(COUNTS))]
    shares = range_(members, COUNTS)
    assert {name: sorted((p.topic_id[:1], p.partition) for p in places) for name, places in shares.items()} == {
        "z": [(b"t", 0), (b"t", 1), (b"t", 2), (b"u", 0), (b"u", 1)],
        "a": [(b"t", 3), (b"t", 4), (b"u", 2), (b"u", 3)],
    }


# The records

SAID = Said(
    instance_id="one",
    rack_id="r",
    client_id="c",
    client_host="/h",
    topics=("t", "u"),
    pattern="x.*",
    rebalance_timeout_ms=5,
    assignor="range",
)


@pytest.mark.parametrize(
    "change",
    [
        GroupEpoch(7, -5),
        GroupEpoch(7),
        GroupEpoch(None),
        TargetEpoch(7, 1_700_000_000_000),
        TargetEpoch(None),
        MemberSaid("m", SAID),
        MemberSaid("m", Said(classic=Classic(session_timeout_ms=9, protocols=(("range", b"\0\1"), ("x", b""))))),
        MemberSaid("m", None),
        Target("m", frozenset({Place(T, 1), Place(T, 0), Place(U, 300)})),
        Target("m", NOWHERE),
        Target("m", None),
        MemberCurrent(
            "m",
            Current(
                epoch=4,
                previous_epoch=3,
                state=MemberState.UNREVOKED,
                assigned={Place(T, 1): 3, Place(T, 2): 4},
                revoking={Place(U, 0): 2},
            ),
        ),
        MemberCurrent("m", None),
        Pattern("x.*", Resolved(frozenset({"t", "u"}), 3, 1_700_000_000_000)),
        Pattern("x.*", None),
    ],
)
def test_a_record_says_what_was_stored(change: object) -> None:
    data, value = encode("g", change)  # type: ignore[arg-type]
    key = decode_key(data)
    assert key is not None
    assert decode(key, value) == change


def test_limits_are_kafkas_by_default() -> None:
    assert (ConsumerLimits().session_timeout_ms, ConsumerLimits().heartbeat_interval_ms) == (45_000, 5_000)
