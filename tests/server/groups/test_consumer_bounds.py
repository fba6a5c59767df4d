"""What groups of KIP-848 may hold and how long a step of theirs may take."""

from collections.abc import Sequence

import pytest

from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.groups import coordinator
from oncelog.server.groups.consumer import group as group_
from oncelog.server.groups.consumer.assignors import Counts, Shares, Subscriber, uniform
from oncelog.server.groups.consumer.finding import FEW_TOPICS
from oncelog.server.groups.consumer.group import TOO_LARGE_MS
from oncelog.server.groups.consumer.values import (
    LEAVES,
    NOWHERE,
)
from oncelog.server.groups.messages import MEMBER_BYTES
from tests.server.groups.consumer_support import REBALANCE_MS, SESSION_MS, assigned, beat, group_of, indexes
from tests.server.groups.support import House


@pytest.fixture
def house() -> House:
    house = House()
    house.make_topic("t", 4)
    return house


def test_a_group_takes_no_more_members_than_it_may_have() -> None:
    house = House("group.consumer.max.size=2")
    house.make_topic("t")
    for member in ("a", "b"):
        beat(house, member)
    with pytest.raises(KafkaError) as refused:
        beat(house, "c")
    assert refused.value.code is ErrorCode.group_max_size_reached
    assert set(group_of(house).members.said) == {"a", "b"}


def test_who_joins_is_refused_where_what_all_are_to_have_cannot_be_stored() -> None:
    house = House("message.max.bytes=1200")
    house.make_topic("t", 400)
    with pytest.raises(KafkaError) as refused:
        beat(house, "a")
    assert refused.value.code is ErrorCode.group_max_size_reached
    assert house.groups.groups == {}


def test_members_go_on_with_what_they_have_where_more_cannot_be_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    house = House("message.max.bytes=1200")
    house.make_topic("t", 2)
    first = beat(house, "a")
    house.delete_topic("t")
    house.make_topic("t", 400)
    shared: list[int] = []

    def counted(members: Sequence[Subscriber], counts: Counts) -> Shares:
        shared.append(len(members))
        return uniform(members, counts)

    monkeypatch.setattr(group_, "ASSIGNORS", {"uniform": counted})
    answer = beat(house, "a", first.epoch)
    for _ in range(3):
        answer = beat(house, "a", answer.epoch, owned=NOWHERE)
    with pytest.raises(KafkaError) as refused:
        beat(house, "b")
    assert refused.value.code is ErrorCode.group_max_size_reached
    assert len(shared) == 1, "it is not tried with each heartbeat"
    house.delete_topic("t")
    house.make_topic("t", 3)
    house.timers.advance(SESSION_MS - 1)
    answer = beat(house, "a", answer.epoch)
    house.timers.advance(TOO_LARGE_MS - SESSION_MS + 1)
    answer = beat(house, "a", answer.epoch, owned=NOWHERE)
    assert indexes(assigned(answer)) == [0, 1, 2]


def test_what_members_say_counts_with_what_those_of_the_classic_protocol_say(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = beat(house, "a", topics=("t", *(f"topic-{number}" for number in range(1_000))))
    held_bytes = group_of(house).held_bytes
    monkeypatch.setattr(coordinator, "MEMBERS_BYTES", held_bytes)
    with pytest.raises(KafkaError) as refused:
        beat(house, "b")
    assert refused.value.code is ErrorCode.coordinator_not_available
    less = beat(house, "a", first.epoch)
    beat(house, "a", LEAVES)
    assert (less.epoch, group_of(house).held_bytes) == (first.epoch, 0)
    beat(house, "b")


def test_members_stay_and_leave_where_there_is_memory_for_no_more(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = beat(house, "a")
    beat(house, "b")
    monkeypatch.setattr(coordinator, "MEMBERS_BYTES", group_of(house).held_bytes - 1)
    told = beat(house, "a", first.epoch)
    beat(house, "a", told.epoch, rebalance_timeout_ms=REBALANCE_MS, topics=("t",), owned=assigned(told))
    beat(house, "b", LEAVES)
    assert set(group_of(house).members.said) == {"a"}


def test_who_joins_is_refused_where_there_is_no_memory_for_what_it_would_have(monkeypatch: pytest.MonkeyPatch) -> None:
    house = House()
    house.make_topic("t", 100)
    monkeypatch.setattr(coordinator, "MEMBERS_BYTES", 2 * MEMBER_BYTES)
    with pytest.raises(KafkaError) as refused:
        beat(house, "a")
    assert refused.value.code is ErrorCode.coordinator_not_available
    assert house.groups.groups == {}


@pytest.mark.parametrize("pattern", ["(", "x" * 1_025, "(x{900}){900}", "(?=x)"])
def test_a_pattern_that_cannot_be_used_is_refused_and_nothing_is_kept(house: House, pattern: str) -> None:
    with pytest.raises(KafkaError) as refused:
        beat(house, "a", pattern=pattern)
    assert refused.value.code is ErrorCode.invalid_regular_expression
    assert house.groups.groups == {}


def test_what_a_pattern_finds_among_many_topics_is_work_for_a_thread(house: House) -> None:
    finding = house.groups.consumer.finding
    assert finding.work("t.*") is None, "among few it is no work"
    for number in range(FEW_TOPICS):
        house.make_topic(f"t{number}")
    work = finding.work("t.*[02468]")
    assert work is not None
    found = work()
    finding.keep("t.*[02468]", found)
    assert (len(found.names), finding.work("t.*[02468]")) == (FEW_TOPICS // 2, None)
    house.make_topic("t1000")
    assert finding.work("t.*[02468]") is not None
    assert len(assigned(beat(house, "a", topics=(), pattern="t.*[02468]"))) == FEW_TOPICS // 2 + 1
