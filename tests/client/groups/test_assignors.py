"""Assignors: every partition once, as even as can be, moved as little as can be, and what Kafka's own would say."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.client.groups.assignors import ASSIGNORS, Candidate, Shares
from oncelog.client.groups.protocol import Subscription
from oncelog.slots import AnyPlace
from tests.client.groups.java_cases import ask_java
from tests.peers.jars import MissingPeer, kafka_jars, need_or_skip

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parent / "java_cases.json").read_text())
NAMES = {"Range": "range", "RoundRobin": "roundrobin", "Sticky": "sticky", "CooperativeSticky": "cooperative-sticky"}
STICKY = ("sticky", "cooperative-sticky")


def candidate(
    name: str,
    member_id: str,
    topics: Any,
    owned: Any = (),
    generation: int = -1,
    instance_id: str | None = None,
) -> Candidate:
    """A member as the assignor of this name would describe itself."""
    had = frozenset((topic, partition) for topic, partition in owned)
    assignor = ASSIGNORS[name]
    userdata = assignor.userdata(had, generation) if generation >= 0 else b""
    tells = had if assignor.is_cooperative else frozenset()
    return Candidate(member_id, instance_id, Subscription(frozenset(topics), userdata, tells, generation))


def members_of(case: dict[str, Any]) -> list[Candidate]:
    name = NAMES[case["assignor"]]
    return [
        candidate(name, each["id"], each["topics"], each["owned"], each["generation"], each["instance"])
        for each in case["members"]
    ]


def places(answer: dict[str, list[list[Any]]]) -> dict[str, set[AnyPlace]]:
    return {member_id: {(topic, partition) for topic, partition in pairs} for member_id, pairs in answer.items()}


def cases(*names: str) -> list[dict[str, Any]]:
    found = [case for case in CASES if NAMES[case["assignor"]] in names]
    assert len(found) > 50
    return found


@pytest.mark.parametrize("name", ["range", "roundrobin"])
def test_partitions_are_shared_out_as_by_kafkas_own_assignor(name: str) -> None:
    for case in cases(name):
        ours = {
            member: set(found) for member, found in ASSIGNORS[name].assign(case["topics"], members_of(case)).items()
        }
        assert ours == places(case["java"]), case


@pytest.mark.parametrize("name", STICKY)
def test_no_more_partitions_change_hands_than_with_kafkas_own_assignor(name: str) -> None:
    """Only as many partitions as Kafka gives can be shared more or less evenly: its cooperative assignor withholds what
    moves, and a member that is alone gets topics from it that it never asked for."""
    ours_moved, javas_moved, compared = 0, 0, 0
    for case in cases(name):
        ours = {
            member: set(found) for member, found in ASSIGNORS[name].assign(case["topics"], members_of(case)).items()
        }
        java = places(case["java"])
        if size(ours) == size(java):
            assert unevenness(ours) <= unevenness(java), case
            compared += 1
        ours_moved += taken_away(case, ours)
        javas_moved += taken_away(case, java)
    assert 0 < ours_moved <= javas_moved
    assert compared > 40


def size(shares: dict[str, set[AnyPlace]]) -> int:
    return sum(len(found) for found in shares.values())


def unevenness(shares: dict[str, set[AnyPlace]]) -> int:
    return sum(len(found) ** 2 for found in shares.values())


def taken_away(case: dict[str, Any], shares: dict[str, set[AnyPlace]]) -> int:
    return sum(
        tuple(each) not in shares[member["id"]] and each[0] in member["topics"]
        for member in case["members"]
        for each in member["owned"]
    )


@st.composite
def groups(draw: st.DrawFn) -> tuple[dict[str, int], list[tuple[str, str | None, frozenset[str]]]]:
    topics = draw(st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), st.integers(0, 9), min_size=1))
    wants = st.frozensets(st.sampled_from(["a", "b", "c", "d"]), max_size=4)
    count = draw(st.integers(1, 6))
    same = draw(st.one_of(st.none(), wants))
    members = [
        (f"m{number}", draw(st.sampled_from([None, f"i{9 - number}"])), same if same is not None else draw(wants))
        for number in range(count)
    ]
    return topics, members


Group = tuple[dict[str, int], list[tuple[str, str | None, frozenset[str]]]]


def check_whole(topics: dict[str, int], members: list[Candidate], shares: Shares, withheld: int = 0) -> None:
    """Every partition that someone wants is given once, to someone who wants it."""
    given = [each for found in shares.values() for each in found]
    wanted = frozenset[str]().union(*(member.subscription.topics for member in members))
    whole = {(topic, partition) for topic in wanted & topics.keys() for partition in range(topics[topic])}
    assert len(given) == len(set(given))
    assert set(given) <= whole and len(whole) - len(given) == withheld
    assert shares.keys() == {member.member_id for member in members}
    for member in members:
        assert {topic for topic, _ in shares[member.member_id]} <= member.subscription.topics


def check_even(topics: dict[str, int], members: list[Candidate], shares: Shares) -> None:
    """No partition could go to a member that has two or more fewer than the one that has it."""
    for giver in members:
        for topic, _ in shares[giver.member_id]:
            for taker in members:
                if topic in taker.subscription.topics:
                    assert len(shares[giver.member_id]) - len(shares[taker.member_id]) < 2


@pytest.mark.parametrize("name", ASSIGNORS)
@given(group=groups())
def test_every_partition_goes_to_one_member_that_wants_it(name: str, group: Group) -> None:
    topics, described = group
    members = [candidate(name, *each[::2], instance_id=each[1]) for each in described]
    shares = ASSIGNORS[name].assign(topics, members)
    check_whole(topics, members, shares)
    if name in STICKY:
        check_even(topics, members, shares)
    assert ASSIGNORS[name].assign(topics, members[::-1]) == shares


def settle(name: str, topics: dict[str, int], described: Any, had: Shares, generation: int) -> tuple[Shares, int]:
    """Rounds until nothing moves, as a group would; how many there were."""
    for rounds in range(1, 4):
        members = [
            candidate(name, member_id, wants, had.get(member_id, ()), generation if member_id in had else -1, instance)
            for member_id, instance, wants in described
        ]
        shares = ASSIGNORS[name].assign(topics, members)
        held = {each for member in members for each in member.subscription.owned}
        for member in members:
            others = held - member.subscription.owned
            assert not others & set(shares[member.member_id]), "given before it was given back"
        if not ASSIGNORS[name].is_cooperative or all(set(had.get(each, ())) <= set(shares[each]) for each in shares):
            check_whole(topics, members, shares)
            return shares, rounds
        had = shares  # what is to move was given back, what is new was taken on
        generation += 1
    raise AssertionError("the group does not settle")


@pytest.mark.parametrize("name", STICKY)
@given(group=groups(), change=groups())
def test_after_any_change_the_group_is_even_again_and_only_as_many_partitions_move_as_must(
    name: str, group: Group, change: Group
) -> None:
    topics, described = group
    before, _ = settle(name, topics, described, {}, 1)
    new_topics, new_described = change
    kept = {member: found for member, found in before.items() if member in {each[0] for each in new_described}}
    after, rounds = settle(name, new_topics, new_described, kept, 2)
    members = [candidate(name, member_id, wants) for member_id, _, wants in new_described]
    check_even(new_topics, members, after)
    assert rounds <= 2
    if len({wants for _, _, wants in new_described}) == 1:
        check_least_moved(new_topics, new_described, kept, after)


def check_least_moved(topics: dict[str, int], described: Any, before: Shares, after: Shares) -> None:
    """With one subscription for all, a member keeps what it had up to its share; shares differ by one."""
    wants = described[0][2]
    whole = sum(count for topic, count in topics.items() if topic in wants)
    each, more = divmod(whole, len(described))
    had = {
        member_id: {
            place for place in before.get(member_id, ()) if place[0] in wants and place[1] < topics.get(place[0], 0)
        }
        for member_id, _, _ in described
    }
    keeps_most = sorted((len(found) for found in had.values()), reverse=True)
    could_stay = sum(min(count, each + (rank < more)) for rank, count in enumerate(keeps_most))
    assert sum(len(had[member_id] & set(found)) for member_id, found in after.items()) == could_stay


@pytest.mark.parametrize("name", STICKY)
def test_nothing_moves_when_nothing_changed(name: str) -> None:
    described = [(f"m{number}", None, frozenset({"a", "b"})) for number in range(3)]
    before, _ = settle(name, {"a": 7, "b": 4}, described, {}, 1)
    after, rounds = settle(name, {"a": 7, "b": 4}, described, before, 2)
    assert (after, rounds) == (before, 1)


@pytest.mark.parametrize("name", STICKY)
def test_of_two_claims_to_a_partition_the_newer_generation_counts(name: str) -> None:
    stale = candidate(name, "stale", {"a"}, [("a", 0), ("a", 1)], 3)
    fresh = candidate(name, "fresh", {"a"}, [("a", 0), ("a", 1)], 4)
    shares = ASSIGNORS[name].assign({"a": 2}, [stale, fresh])
    if name == "sticky":
        assert Counter(len(found) for found in shares.values()) == {1: 2}
    assert len(shares["fresh"]) == 1


def test_what_moves_in_a_cooperative_group_is_given_out_only_after_it_was_given_back() -> None:
    old = candidate("cooperative-sticky", "old", {"a"}, [("a", partition) for partition in range(4)], 1)
    new = candidate("cooperative-sticky", "new", {"a"})
    first = ASSIGNORS["cooperative-sticky"].assign({"a": 4}, [old, new])
    assert (len(first["old"]), first["new"]) == (2, [])
    gave_back = candidate("cooperative-sticky", "old", {"a"}, first["old"], 2)
    came = candidate("cooperative-sticky", "new", {"a"}, (), 2)
    second = ASSIGNORS["cooperative-sticky"].assign({"a": 4}, [gave_back, came])
    assert (second["old"], len(second["new"])) == (first["old"], 2)


@pytest.mark.parametrize("name", STICKY)
def test_userdata_that_cannot_be_read_is_no_claim(name: str) -> None:
    members = [Candidate(f"m{number}", None, Subscription(frozenset({"a"}), b"\xff" * number)) for number in range(5)]
    check_whole({"a": 5}, members, ASSIGNORS[name].assign({"a": 5}, members))


def test_a_large_group_is_shared_out_in_a_moment() -> None:
    """10,000 partitions, 100 members, a tenth of them new: bounded work, counted rather than timed."""
    topics = {f"t{number}": 100 for number in range(100)}
    described = [(f"m{number:03}", None, frozenset(topics)) for number in range(100)]
    before, _ = settle("cooperative-sticky", topics, described[:90], {}, 1)
    after, rounds = settle("cooperative-sticky", topics, described, before, 2)
    assert {len(found) for found in after.values()} == {100} and rounds == 2


@pytest.mark.thorough  # the cases hold us to Java; this says that nobody wrote them by hand
@pytest.mark.peers
def test_java_still_answers_what_the_cases_say() -> None:
    try:
        kafka_jars()
    except MissingPeer as missing:
        need_or_skip(missing)
    answers = ask_java(CASES)
    assert [places(answer) for answer in answers] == [places(case["java"]) for case in CASES]
