"""What groups of KIP-848 may hold and how long a step of theirs may take."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import timedelta
from heapq import heapify, merge
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import pytest

from oncelog.security.operations import Resource
from oncelog.server.access import EVERY_RIGHT, Rights
from oncelog.server.api import apis
from oncelog.server.call import Call
from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.groups import coordinator
from oncelog.server.groups.consumer import assignors, pattern_finding, place_sharing
from oncelog.server.groups.consumer.assignors import Assignor, Counts, Shares, Subscriber, range_, uniform
from oncelog.server.groups.consumer.members import PATTERN_NAMES, PLACE_BYTES, Members
from oncelog.server.groups.consumer.pattern_finding import FEW_TOPICS
from oncelog.server.groups.consumer.place_sharing import TOO_LARGE_MS
from oncelog.server.groups.consumer.topics import KnownTopics, topics_hash
from oncelog.server.groups.consumer.values import (
    JOINS,
    LEAVES,
    NOWHERE,
)
from oncelog.server.groups.messages import MEMBER_BYTES, Leaving
from oncelog.server.groups.offsets import Offsets, TopicPartition, expired
from oncelog.server.groups.records import CommittedOffset
from oncelog.server.memory import Memory
from oncelog.server.names import MOST_ID_CHARACTERS
from tests.server.groups.consumer_support import REBALANCE_MS, SESSION_MS, assigned, beat, group_of, indexes
from tests.server.groups.support import House, joined
from tests.server.topics_support import EVERY_TURN_IS_OVER, AlwaysOver


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

    monkeypatch.setattr(place_sharing, "ASSIGNORS", {"uniform": counted})
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


@pytest.mark.parametrize(("topics", "pattern"), [(("small", "t"), None), (("small",), "small|t")])
def test_who_reads_more_is_refused_where_there_is_no_memory_for_what_it_would_have(
    monkeypatch: pytest.MonkeyPatch, topics: tuple[str, ...], pattern: str | None
) -> None:
    """Partitions are shared anew a little later, at a heartbeat that asks for nothing."""
    house = House()
    house.make_topic("small")
    house.make_topic("t", 100)
    first = beat(house, "a", topics=("small",))
    held_bytes = group_of(house).held_bytes
    monkeypatch.setattr(coordinator, "MEMBERS_BYTES", held_bytes + MEMBER_BYTES + 150 * PLACE_BYTES)
    with pytest.raises(KafkaError) as refused:
        beat(house, "a", first.epoch, topics=topics, pattern=pattern)
    assert refused.value.code is ErrorCode.coordinator_not_available
    with pytest.raises(KafkaError) as refused:
        beat(house, "b", topics=topics, pattern=pattern)
    assert refused.value.code is ErrorCode.coordinator_not_available
    house.timers.advance(SESSION_MS - 1)
    assert beat(house, "a", first.epoch).epoch == first.epoch
    assert group_of(house).held_bytes == held_bytes
    monkeypatch.setattr(coordinator, "MEMBERS_BYTES", held_bytes + MEMBER_BYTES + 250 * PLACE_BYTES)
    told = beat(house, "a", first.epoch, topics=topics, pattern=pattern)
    house.timers.advance(SESSION_MS - 1)
    beat(house, "a", told.epoch)
    assert len(group_of(house).members.current_of("a").assigned) == 101


def test_who_says_more_of_itself_is_refused_where_there_is_no_memory_for_it(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = beat(house, "a")
    monkeypatch.setattr(coordinator, "MEMBERS_BYTES", group_of(house).held_bytes + 100)
    with pytest.raises(KafkaError) as refused:
        beat(house, "a", first.epoch, rack_id="r" * 101)
    assert refused.value.code is ErrorCode.coordinator_not_available
    beat(house, "a", first.epoch, rack_id="r" * 100)
    beat(house, "a", first.epoch)


async def test_a_classic_member_takes_no_id_that_is_longer_than_those_that_are_handed_out(house: House) -> None:
    beat(house, "a")
    longest = f"{'c' * MOST_ID_CHARACTERS}-{uuid4()}"
    held_bytes = group_of(house).held_bytes
    assert (await joined(house, member_id=longest + "x")).error is ErrorCode.invalid_request
    assert group_of(house).held_bytes == held_bytes
    assert (await joined(house, member_id=longest)).error is ErrorCode.none


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
    finding.keep(found)
    assert (len(found.names), finding.work("t.*[02468]")) == (FEW_TOPICS // 2, None)
    house.make_topic("t1000")
    assert finding.work("t.*[02468]") is not None
    assert len(assigned(beat(house, "a", topics=(), pattern="t.*[02468]"))) == FEW_TOPICS // 2 + 1


def test_the_names_that_a_group_reads_have_a_bound_and_what_is_said_alike_counts_once(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place_sharing, "MOST_SUBSCRIBED", 10)
    names = ("t", *(f"topic-{number}" for number in range(5)))
    for member in "abc":
        joined = beat(house, member, topics=names)
    others = tuple(f"another-{number}" for number in range(5))
    with pytest.raises(KafkaError) as refused:
        beat(house, "d", topics=others)
    assert refused.value.code is ErrorCode.invalid_request
    with pytest.raises(KafkaError) as refused:
        beat(house, "c", joined.epoch, topics=others)
    assert refused.value.code is ErrorCode.invalid_request
    group = group_of(house)
    assert (set(group.members.said), group.members.names) == ({"a", "b", "c"}, 6)
    beat(house, "c", joined.epoch, topics=others[:4])
    for member in "abc":
        beat(house, member, LEAVES)
    assert (group.members.names, group.held_bytes) == (0, 0)


def test_a_pattern_counts_as_many_names_since_it_may_find_more_later(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place_sharing, "MOST_SUBSCRIBED", 2 * PATTERN_NAMES)
    for member in "abc":
        beat(house, member, topics=(), pattern="t.*")
    beat(house, "d", topics=(), pattern="u.*")
    with pytest.raises(KafkaError) as refused:
        beat(house, "e", topics=(), pattern="v.*")
    assert refused.value.code is ErrorCode.invalid_request
    assert (set(group_of(house).members.said), set(group_of(house).members.patterns)) == (set("abcd"), {"t.*", "u.*"})


def test_a_group_that_has_more_names_goes_on_and_only_more_are_refused(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    joined = beat(house, "a", topics=("t", *map(str, range(9))))
    monkeypatch.setattr(place_sharing, "MOST_SUBSCRIBED", 5)
    joined = beat(house, "a", joined.epoch, topics=("t", *map(str, range(8))))
    with pytest.raises(KafkaError):
        beat(house, "a", joined.epoch, topics=("t", *map(str, range(9))))
    assert group_of(house).members.names == 9


@pytest.mark.parametrize("assignor", [uniform, range_])
def test_members_that_read_alike_are_looked_at_together_with_each_topic(
    assignor: Assignor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand members that read a thousand topics, and one that reads another one besides."""
    topics = frozenset(number.to_bytes(16, "big") for number in range(1_000))
    more = topics | {b"x" * 16}
    members = [Subscriber(f"m{number:03d}", None, topics) for number in range(999)]
    looked: list[int] = []

    def counted(heap: list[Any]) -> None:
        looked.append(len(heap))
        heapify(heap)

    def counted_merge(*kinds: Any) -> Any:
        looked.append(len(kinds))
        return merge(*kinds)

    monkeypatch.setattr(assignors, "heapify", counted)
    monkeypatch.setattr(assignors, "merge", counted_merge)
    shares = assignor([*members, Subscriber("x", None, more)], dict.fromkeys(more, 1))
    assert sum(map(len, shares.values())) == 1_001
    assert sum(looked) < 30 * 1_000


def test_a_group_shares_anew_no_earlier_and_looks_at_nobody_because_a_stranger_was_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    house = House("group.consumer.assignment.interval.ms=1000")
    house.make_topic("t", 4)
    for member in "ab":
        beat(house, member)
    sharing = group_of(house).sharing
    epoch = sharing.members.target_epoch
    monkeypatch.setattr(sharing.sessions, "has", lambda member: pytest.fail("each member is looked at"))
    with pytest.raises(KafkaError) as refused:
        beat(house, "stranger", epoch)
    beat(house, "c")
    assert (refused.value.code, sharing.members.target_epoch) == (ErrorCode.unknown_member_id, epoch)


class Aside:
    """A thread that takes its time, in which topics may be made."""

    def __init__(self, house: House, *, is_late: bool = False) -> None:
        self.house = house
        self.runs = 0
        self.is_late = is_late

    async def run(self, work: Callable[[], object]) -> object:
        found = work()
        self.runs += 1
        if self.is_late:
            self.house.make_topic(f"t-late-{self.runs}")
        return found


async def answered(call: Call, member: str, epoch: int = JOINS, pattern: str | None = None) -> Any:
    request = SimpleNamespace(
        group_id="g",
        member_id=member,
        member_epoch=epoch,
        instance_id=None,
        rack_id=None,
        rebalance_timeout=timedelta(minutes=1),
        subscribed_topic_names=None,
        subscribed_topic_regex=pattern,
        server_assignor=None,
        topic_partitions=() if epoch == JOINS else None,
    )
    handle: Callable[[Any, Call], Awaitable[Any]] | None = apis()[68].handle
    assert handle is not None
    return await handle(request, call)


async def heartbeat(call: Call, member: str, epoch: int = JOINS, pattern: str | None = None) -> Any:
    answer = await answered(call, member, epoch, pattern)
    assert answer.error_code is ErrorCode.none, answer
    return answer


def call_of(house: House, aside: Aside) -> Call:
    broker: Any = SimpleNamespace(
        groups=house.groups, topics=house.topics, turns=EVERY_TURN_IS_OVER, memory=Memory(-1), aside=aside
    )
    return Call(broker, "consumer_group_heartbeat", 1, "test", "127.0.0.1", "PLAINTEXT", house.clock.now())


def read_by(house: House) -> int:
    return len(group_of(house).members.topics)


@pytest.fixture
def many() -> House:
    house = House()
    for number in range(FEW_TOPICS + 1):
        house.make_topic(f"t{number}")
    house.groups.make_place(house.clock.now())
    return house


async def test_client_ids_have_a_bound_and_nothing_is_kept_of_longer_ones(many: House) -> None:
    call = call_of(many, Aside(many))
    call.client_id = "c" * (MOST_ID_CHARACTERS + 1)
    assert (await answered(call, "a", pattern="t1")).error_code is ErrorCode.invalid_request
    assert "g" not in many.groups.groups
    call.client_id = "c" * MOST_ID_CHARACTERS
    await heartbeat(call, "a", pattern="t1")


async def test_topics_that_come_while_others_are_found_are_found_by_the_next_heartbeat(many: House) -> None:
    aside = Aside(many, is_late=True)
    call = call_of(many, aside)
    first = await heartbeat(call, "a", pattern="t.*")
    seen = [(aside.runs, read_by(many))]
    await heartbeat(call, "a", first.member_epoch)
    seen.append((aside.runs, read_by(many)))
    assert seen == [(1, FEW_TOPICS + 1), (2, FEW_TOPICS + 2)]


async def test_what_a_group_knows_is_not_looked_for_again_however_many_patterns_there_are(
    many: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pattern_finding, "KEPT", 1)
    aside = Aside(many)
    call = call_of(many, aside)
    epochs = {}
    for _ in range(2):  # where groups are stored is a topic, too
        epochs = {each: (await heartbeat(call, each, pattern=f"t.*{each}?")).member_epoch for each in "ab"}
    before = aside.runs
    epochs = {each: (await heartbeat(call, each, epochs[each])).member_epoch for each in "ab"}
    seen = [aside.runs - before]
    many.timers.advance(SESSION_MS - 1)
    for each in "ab":
        await heartbeat(call, each, epochs[each])
    assert (seen, aside.runs - before) == ([0], 0)


async def test_what_members_may_know_is_asked_again_after_a_while(many: House, monkeypatch: pytest.MonkeyPatch) -> None:
    rights = SimpleNamespace(may=lambda operation, kind, name: kind is not Resource.TOPIC or name < "t5")
    call = call_of(many, Aside(many))
    call.rights = cast(Rights, rights)
    epoch = (await heartbeat(call, "a", pattern="t.*")).member_epoch
    epoch = (await heartbeat(call, "a", epoch)).member_epoch
    seen = [read_by(many)]
    call.rights = EVERY_RIGHT
    epoch = (await heartbeat(call, "a", epoch)).member_epoch
    seen.append(read_by(many))
    many.clock.advance(place_sharing.RESOLVED_MS)
    call.now = many.clock.now()
    await heartbeat(call, "a", epoch)
    seen.append(read_by(many))
    few = len([number for number in range(FEW_TOPICS + 1) if f"t{number}" < "t5"])
    assert seen == [few, few, FEW_TOPICS + 1]


async def test_what_a_member_may_know_of_many_topics_is_asked_in_turns(many: House) -> None:
    left: list[int] = []
    turns = AlwaysOver(lambda: 0)

    async def others() -> None:
        left.append(1)

    turns.next = others  # type: ignore[method-assign]
    call = call_of(many, Aside(many))
    call.broker.turns = turns
    asked: set[int] = set()

    def may(*about: object) -> bool:
        asked.add(len(left))
        return True

    call.rights = cast(Rights, SimpleNamespace(may=may))
    await heartbeat(call, "a", pattern="t.*")
    assert len(asked) > FEW_TOPICS


@pytest.mark.parametrize("how", ["sent away", "late"])
def test_the_topics_of_a_group_are_looked_at_once_however_many_members_go(
    house: House, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    for member in "abcd":
        beat(house, member)
    looks: list[int] = []

    def counted(names: Iterable[str], topics: KnownTopics) -> int:
        looks.append(len(group_of(house).members))
        return topics_hash(names, topics)

    monkeypatch.setattr(place_sharing, "topics_hash", counted)
    if how == "late":
        house.timers.advance(SESSION_MS)
    else:
        house.groups.leave("g", [Leaving(member_id=each) for each in "abcda"], house.clock.now())
    assert looks == [0]


def test_whether_a_group_reads_a_topic_is_asked_once_for_many_offsets(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    beat(house, "a", topics=(), pattern="t.*")
    monkeypatch.setattr(Members, "topics", property(lambda members: pytest.fail("of all of them at once")))
    asked: list[str] = []
    reads = Members.reads

    def counted(members: Members, topic: str) -> bool:
        asked.append(topic)
        return reads(members, topic)

    monkeypatch.setattr(Members, "reads", counted)
    among = [TopicPartition(topic, index) for topic in "tu" for index in range(4)]
    offsets, wall_ms = Offsets(), house.clock.now().wall_ms
    for at in among:
        offsets.put("g", *at, CommittedOffset(5, -1, "", wall_ms))
    found = expired(group_of(house), offsets, among, 1, wall_ms + 1)
    assert (found, sorted(asked)) == (among[4:], ["t", "u"])


async def test_what_a_group_has_is_compared_with_what_a_client_may_know_in_turns(many: House) -> None:
    left: list[int] = []
    call = call_of(many, Aside(many))
    for member in "abc":
        await heartbeat(call, member, pattern="t.*")
    asked: set[int] = set()

    async def others() -> None:
        left.append(1)

    def may(operation: object, kind: object, name: str) -> bool:
        asked.add(len(left))
        return name != "t7"

    call = call_of(many, Aside(many))
    call.broker.turns = AlwaysOver(lambda: 0)
    call.broker.turns.next = others  # type: ignore[method-assign]
    call.api, call.rights = "consumer_group_describe", cast(Rights, SimpleNamespace(may=may))
    handle: Callable[[Any, Call], Awaitable[Any]] | None = apis()[69].handle
    assert handle is not None
    request = SimpleNamespace(group_ids=("g",), include_authorized_operations=False)
    (group,) = (await handle(request, call)).groups
    assert group.error_code is ErrorCode.topic_authorization_failed
    assert len(asked) > FEW_TOPICS
