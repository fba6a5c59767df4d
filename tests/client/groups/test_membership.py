"""One member, told by hand what happens: what it does next, and when."""

from typing import Any

import pytest

from oncelog.client.errors import KafkaError, error_of
from oncelog.client.groups.assignors import ASSIGNORS
from oncelog.client.groups.membership import Membership
from oncelog.client.groups.membership_steps import (
    Assign,
    CountPartitions,
    FindCoordinator,
    Heartbeat,
    Join,
    Joined,
    Leave,
    Member,
    MemberLimits,
    Report,
    Revoke,
    Sync,
)
from oncelog.client.groups.protocol import (
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)

PLACES = frozenset({("a", 0), ("a", 1)})


class Told:
    """A member and the clock. Each call says what it wants done then."""

    def __init__(self, *assignors: str, instance_id: str | None = None) -> None:
        limits = MemberLimits(
            instance_id=instance_id,
            session_timeout_ms=6000,
            rebalance_timeout_ms=60_000,
            heartbeat_interval_ms=1000,
            retry_backoff_ms=100,
            retry_backoff_max_ms=400,
        )
        self.machine = Membership(limits, [ASSIGNORS[name] for name in assignors or ("range",)], lambda: 0.5)
        self.now_ms = 1000

    def act(self) -> list[Any]:
        return self.machine.actions(self.now_ms)

    def one(self, kind: type) -> Any:
        (action,) = self.act()
        assert isinstance(action, kind), action
        return action

    def at(self, now_ms: int) -> "Told":
        self.now_ms = now_ms
        return self

    # --- steps that go well

    def find(self) -> None:
        self.machine.coordinator_found(self.one(FindCoordinator).request_id, 7)

    def joined(self, generation: int = 1, leader: str = "other", member_id: str = "me", **more: Any) -> None:
        join = self.one(Join)
        self.machine.joined(join.request_id, Joined(0, generation, "range", leader, member_id, **more), self.now_ms)

    def synced(self, *places: tuple[str, int]) -> None:
        self.machine.synced(self.one(Sync).request_id, 0, encode_assignment(places), self.now_ms)

    def done(self, kind: type) -> Any:
        action = self.one(kind)
        self.machine.application_done()
        return action

    def settle(self, *places: tuple[str, int], generation: int = 1) -> "Told":
        if self.machine.coordinator is None:
            self.find()
        self.joined(generation)
        self.synced(*places)
        assert self.act() == [Assign(frozenset(places) - self.machine.owned)]
        self.machine.application_done()
        assert self.act() == [] and self.machine.is_steady
        return self

    def beaten(self, code: int = 0) -> None:
        self.machine.beaten(self.one(Heartbeat).request_id, code, self.now_ms)


def settled(*assignors: str, instance_id: str | None = None) -> Told:
    told = Told(*assignors, instance_id=instance_id)
    told.machine.subscribe({"a"}, told.now_ms)
    if assignors == ("cooperative-sticky",):
        told.find()
        join = told.one(Join)
        answer = Joined(0, 1, "cooperative-sticky", "other", "me")
        told.machine.joined(join.request_id, answer, told.now_ms)
        told.synced(*PLACES)
        told.done(Assign)
        assert told.act() == []
        return told
    return told.settle(*PLACES)


def rebalance(told: Told) -> None:
    told.at(told.now_ms + 1000).beaten(KafkaError.REBALANCE_IN_PROGRESS)


def test_a_coordinator_that_is_found_and_refuses_every_join_is_asked_less_and_less_often() -> None:
    told = Told()
    told.machine.subscribe({"a"}, told.now_ms)
    pauses = []
    for _ in range(4):
        told.find()
        join = told.one(Join)
        told.machine.joined(join.request_id, Joined(KafkaError.NOT_COORDINATOR), told.now_ms)
        assert told.act() == []
        due_ms = told.machine.next_due_ms()
        assert due_ms is not None
        pauses.append(due_ms - told.now_ms)
        told.at(due_ms)
    assert pauses == [100, 200, 400, 400]
    told.find()
    told.joined()
    told.synced(*PLACES)


def test_a_new_member_takes_the_id_it_is_given_and_joins_with_it() -> None:
    told = Told()
    told.machine.subscribe({"a"}, told.now_ms)
    told.find()
    first = told.one(Join)
    assert (first.node_id, first.member_id, first.reason) == (7, "", "the subscription changed")
    told.machine.joined(first.request_id, Joined(KafkaError.MEMBER_ID_REQUIRED, member_id="me"), told.now_ms)
    assert told.one(Join).member_id == "me"


def test_the_leader_shares_out_what_there_is_by_the_protocol_that_was_chosen() -> None:
    told = Told("roundrobin", "range")
    told.machine.subscribe({"a"}, told.now_ms)
    told.find()
    assert [name for name, _ in told.act()[0].protocols] == ["roundrobin", "range"]
    metadata = encode_subscription(Subscription(frozenset({"a", "b"})))
    members = (("me", None, metadata), ("you", None, metadata))
    told.machine.joined(2, Joined(0, 1, "range", "me", "me", members=members), told.now_ms)
    asked = told.one(CountPartitions)
    assert asked.topics == {"a", "b"}
    told.machine.counted(asked.request_id, {"a": 3})
    sync = told.one(Sync)
    assert (sync.node_id, sync.member, sync.protocol_name) == (7, Member(1, "me"), "range")
    assert {member_id: decode_assignment(share) for member_id, share in sync.assignments.items()} == {
        "me": {("a", 0), ("a", 1)},
        "you": {("a", 2)},
    }


def test_a_leader_that_came_back_under_its_name_leaves_the_shares_as_they_are_but_watches_the_topics() -> None:
    told = Told(instance_id="one")
    told.machine.subscribe({"a"}, told.now_ms)
    told.find()
    metadata = encode_subscription(Subscription(frozenset({"a"})))
    told.joined(leader="me", is_assigned_already=True, members=(("me", "one", metadata),))
    told.machine.counted(told.one(CountPartitions).request_id, {"a": 2})
    assert told.act()[0].assignments == {}
    assert told.machine.counts == {"a": 2}


def test_a_member_whose_subscription_cannot_be_read_wants_nothing() -> None:
    told = Told()
    told.machine.subscribe({"a"}, told.now_ms)
    told.find()
    members = (("me", None, encode_subscription(Subscription(frozenset({"a"})))), ("odd", None, b"\0"))
    told.joined(leader="me", members=members)
    told.machine.counted(told.one(CountPartitions).request_id, {"a": 2})
    assert decode_assignment(told.one(Sync).assignments["odd"]) == frozenset()


def test_an_assignment_that_cannot_be_read_is_told_and_is_none() -> None:
    told = Told()
    told.machine.subscribe({"a"}, told.now_ms)
    told.find()
    told.joined()
    told.machine.synced(told.one(Sync).request_id, 0, b"\0\0\0\0\0\7", told.now_ms)
    report, assign = told.act()
    assert report.error == KafkaError._BAD_MSG and assign == Assign(frozenset())


def test_an_eager_member_gives_everything_back_before_it_joins() -> None:
    told = settled()
    rebalance(told)
    assert told.done(Revoke) == Revoke(PLACES, is_lost=False)
    join = told.one(Join)
    assert (join.member_id, join.reason) == ("me", "the group rebalances")
    assert decode_subscription(join.protocols[0][1]).owned == frozenset()


def test_a_cooperative_member_joins_with_what_it_has_and_once_more_after_it_gave_something_back() -> None:
    told = settled("cooperative-sticky")
    rebalance(told)
    join = told.one(Join)
    said = decode_subscription(join.protocols[0][1])
    assert (said.owned, said.generation) == (PLACES, 1)
    told.machine.joined(join.request_id, Joined(0, 2, "cooperative-sticky", "other", "me"), told.now_ms)
    told.synced(("a", 1), ("a", 2))
    assert told.done(Revoke) == Revoke(frozenset({("a", 0)}), is_lost=False)
    assert told.done(Assign) == Assign(frozenset({("a", 2)}))
    again = told.one(Join)
    assert again.reason == "partitions were given back"
    assert decode_subscription(again.protocols[0][1]).owned == {("a", 1), ("a", 2)}


def test_a_cooperative_member_gives_back_what_it_no_longer_wants_before_it_joins() -> None:
    told = settled("cooperative-sticky")
    told.machine.subscribe({"b"}, told.now_ms)
    assert told.done(Revoke) == Revoke(PLACES, is_lost=False)
    assert decode_subscription(told.one(Join).protocols[0][1]).topics == {"b"}


def test_a_sticky_member_tells_what_it_had_though_it_gave_it_back() -> None:
    told = Told("sticky")
    told.machine.subscribe({"a"}, told.now_ms)
    told.settle(*PLACES)
    rebalance(told)
    told.done(Revoke)
    said = decode_subscription(told.one(Join).protocols[0][1])
    assert said.userdata == ASSIGNORS["sticky"].userdata(PLACES, 1)


def test_heartbeats_are_sent_at_their_interval_also_while_the_application_gives_back() -> None:
    told = settled()
    assert told.machine.next_due_ms() == 2000
    assert told.at(1999).act() == []
    told.at(2000).beaten()
    told.at(3000).beaten(KafkaError.REBALANCE_IN_PROGRESS)
    assert isinstance(told.one(Revoke), Revoke)
    told.at(4000).beaten(KafkaError.REBALANCE_IN_PROGRESS)
    assert told.act() == []
    told.machine.application_done()
    told.one(Join)


def test_nothing_else_is_asked_while_the_application_is_called() -> None:
    told = settled()
    told.machine.subscribe({"a", "b"}, told.now_ms)
    told.one(Revoke)
    told.machine.subscribe({"b"}, told.now_ms)
    assert told.at(1500).act() == []
    told.machine.application_done()
    assert decode_subscription(told.one(Join).protocols[0][1]).topics == {"b"}


@pytest.mark.parametrize("code", [KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_NOT_AVAILABLE])
def test_when_the_coordinator_moves_it_is_looked_for_and_the_partitions_are_kept(code: int) -> None:
    told = settled()
    told.at(2000).beaten(code)
    told.machine.coordinator_found(told.one(FindCoordinator).request_id, 8)
    assert told.act() == [] and told.machine.owned == PLACES
    assert told.at(3000).one(Heartbeat).node_id == 8


@pytest.mark.parametrize(
    ("code", "keeps_id"), [(KafkaError.UNKNOWN_MEMBER_ID, False), (KafkaError.ILLEGAL_GENERATION, True)]
)
def test_a_member_that_was_thrown_out_has_lost_its_partitions_and_joins_again(code: int, keeps_id: bool) -> None:
    told = settled("cooperative-sticky")
    told.at(2000).beaten(code)
    assert told.done(Revoke) == Revoke(PLACES, is_lost=True)
    join = told.one(Join)
    assert join.member_id == ("me" if keeps_id else "")
    assert decode_subscription(join.protocols[0][1]).owned == frozenset()


def test_a_commit_that_was_refused_is_as_good_as_a_heartbeat_but_only_in_this_generation() -> None:
    told = settled()
    told.machine.refused(KafkaError.UNKNOWN_MEMBER_ID, 0, told.now_ms)
    assert told.act() == []
    told.machine.refused(KafkaError.UNKNOWN_MEMBER_ID, 1, told.now_ms)
    assert told.one(Revoke).is_lost


def test_a_session_counts_from_the_last_heartbeat_that_was_sent_and_answered() -> None:
    told = settled()
    beat = told.at(2000).one(Heartbeat)
    told.machine.beaten(beat.request_id, 0, 2900)
    told.at(3000).one(Heartbeat)  # never answered
    assert told.at(7999).act() == []
    assert told.machine.next_due_ms() == 8000
    assert told.at(8000).act()[0] == Revoke(PLACES, is_lost=True)


def test_a_join_on_its_way_does_not_keep_what_is_owned_beyond_the_session() -> None:
    told = settled("cooperative-sticky")
    rebalance(told)
    told.one(Join)
    for now_ms in (3000, 4000):
        told.at(now_ms).beaten(KafkaError.REBALANCE_IN_PROGRESS)
    told.at(5000).one(Heartbeat)
    assert told.at(10_000).act()[0] == Revoke(PLACES, is_lost=True)


def test_after_a_join_that_got_no_answer_nothing_is_taken_on_before_a_heartbeat_is_answered() -> None:
    told = Told()
    told.machine.subscribe({"a"}, told.now_ms)
    told.find()
    told.machine.failed(told.one(Join).request_id, error_of(KafkaError.NETWORK_EXCEPTION), told.now_ms)
    assert told.act() == []
    told.at(1100).find()
    told.joined()
    told.synced(*PLACES)
    beat = told.one(Heartbeat)
    assert told.act() == [] and not told.machine.is_steady
    told.machine.beaten(beat.request_id, 0, told.now_ms)
    assert told.one(Assign).partitions == PLACES


def test_an_application_that_does_not_poll_leaves_and_comes_back_with_the_next_poll() -> None:
    told = settled()
    told.machine.polled(30_000)
    told.at(89_999)
    told.machine.heartbeats.heard(89_000)
    assert not [action for action in told.act() if not isinstance(action, Heartbeat)]
    report, leave, revoke = told.at(90_000).act()
    assert isinstance(report, Report) and report.error == KafkaError._MAX_POLL_EXCEEDED and not report.error.fatal()
    assert isinstance(leave, Leave) and leave.member_id == "me"
    assert revoke == Revoke(PLACES, is_lost=True)
    told.machine.application_done()
    assert told.at(200_000).act() == [] and told.machine.next_due_ms() is None
    told.machine.polled(200_000)
    assert told.one(Join).reason == "the application polls again"


def test_a_static_member_never_says_goodbye() -> None:
    stuck, closing = settled(instance_id="one"), settled(instance_id="one")
    assert [type(action) for action in stuck.at(70_000).act()] == [Report, Revoke]
    closing.machine.leave()
    closing.done(Revoke)
    assert closing.act() == [] and closing.machine.is_out


def test_a_member_whose_name_another_bears_has_come_to_its_end() -> None:
    told = settled(instance_id="one")
    told.at(2000).beaten(KafkaError.FENCED_INSTANCE_ID)
    report, revoke = told.act()
    assert report.error == KafkaError.FENCED_INSTANCE_ID and report.error.fatal()
    assert revoke == Revoke(PLACES, is_lost=True)
    told.machine.application_done()
    told.machine.subscribe({"b"}, told.now_ms)
    told.machine.polled(told.now_ms)
    assert told.at(500_000).act() == [] and told.machine.is_out


def test_leaving_gives_back_then_says_goodbye_then_is_out() -> None:
    told = settled()
    told.machine.leave()
    assert told.done(Revoke) == Revoke(PLACES, is_lost=False)
    leave = told.one(Leave)
    assert not told.machine.is_out
    told.machine.left(leave.request_id)
    assert told.machine.is_out and told.machine.member == Member() and told.at(500_000).act() == []


def test_leaving_while_joining_does_not_wait_for_the_join() -> None:
    told = settled()
    rebalance(told)
    told.done(Revoke)
    join = told.one(Join)
    told.machine.leave()
    leave = told.one(Leave)
    told.machine.joined(join.request_id, Joined(0, 2, "range", "other", "me"), told.now_ms)
    assert told.act() == []
    told.machine.left(leave.request_id)
    assert told.machine.is_out


def test_a_goodbye_that_cannot_be_said_is_left_out() -> None:
    told = settled()
    told.machine.leave()
    told.done(Revoke)
    told.machine.failed(told.one(Leave).request_id, error_of(KafkaError.NETWORK_EXCEPTION), told.now_ms)
    assert told.machine.is_out


@pytest.mark.parametrize("code", [KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.NOT_COORDINATOR])
def test_a_join_that_may_be_asked_again_is_asked_again_after_a_pause_and_nobody_is_told(code: int) -> None:
    told = Told()
    told.machine.subscribe({"a"}, told.now_ms)
    told.find()
    told.machine.joined(told.one(Join).request_id, Joined(code), told.now_ms)
    assert told.act() == [] and told.machine.next_due_ms() == 1100
    again = told.at(1100).act()
    assert [type(action) for action in again] == [
        FindCoordinator if code == KafkaError.NOT_COORDINATOR else Join,
    ]


def test_a_join_that_is_refused_for_a_reason_is_told_and_tried_again_at_a_growing_distance() -> None:
    told = Told()
    told.machine.subscribe({"a"}, told.now_ms)
    told.find()
    pauses = []
    for _ in range(4):
        told.machine.joined(told.one(Join).request_id, Joined(KafkaError.GROUP_AUTHORIZATION_FAILED), told.now_ms)
        assert told.one(Report).error == KafkaError.GROUP_AUTHORIZATION_FAILED
        due_ms = told.machine.next_due_ms()
        assert due_ms is not None
        pauses.append(due_ms - told.now_ms)
        told.at(due_ms)
    assert pauses == [100, 200, 400, 400]


def test_a_coordinator_that_cannot_be_found_is_looked_for_again_after_a_pause() -> None:
    told = settled()
    told.at(2000).beaten(KafkaError.NOT_COORDINATOR)
    for _ in range(3):
        asked = told.one(FindCoordinator)
        told.machine.failed(asked.request_id, KafkaError(KafkaError._ALL_BROKERS_DOWN), told.now_ms)
        assert [type(action) for action in told.act()] in ([], [Report])
        due_ms = told.machine.next_due_ms()
        assert due_ms is not None and due_ms > told.now_ms
        told.at(due_ms)
    assert told.machine.owned == PLACES


def test_answers_to_what_was_given_up_say_nothing() -> None:
    told = settled()
    rebalance(told)
    told.done(Revoke)
    join = told.one(Join)
    told.machine.refused(KafkaError.UNKNOWN_MEMBER_ID, 1, told.now_ms)
    again = told.one(Join)
    told.machine.joined(join.request_id, Joined(0, 9, "range", "me", "me"), told.now_ms)
    assert told.act() == [] and told.machine.member.generation == -1
    told.machine.joined(again.request_id, Joined(0, 3, "range", "other", "new"), told.now_ms)
    assert told.one(Sync).member == Member(3, "new")


def test_a_leader_shares_out_again_when_there_are_other_partitions() -> None:
    told = Told()
    told.machine.subscribe({"a"}, told.now_ms)
    told.find()
    members = (("me", None, encode_subscription(Subscription(frozenset({"a"})))),)
    told.joined(leader="me", members=members)
    told.machine.counted(told.one(CountPartitions).request_id, {"a": 2})
    told.synced(*PLACES)
    told.done(Assign)
    told.machine.partitions_counted({"a": 2})
    assert told.act() == []
    told.machine.partitions_counted({"a": 3})
    told.done(Revoke)
    assert told.one(Join).reason == "the partitions of a topic changed"


def test_a_follower_does_not_mind_how_many_partitions_there_are() -> None:
    told = settled()
    told.machine.partitions_counted({"a": 99})
    assert told.act() == []


def test_a_subscription_that_stays_the_same_changes_nothing() -> None:
    told = settled()
    told.machine.subscribe({"a"}, told.now_ms)
    assert told.act() == []


def test_what_is_assigned_beyond_the_subscription_is_not_taken() -> None:
    told = Told()
    told.machine.subscribe({"a"}, told.now_ms)
    told.find()
    told.joined()
    told.synced(("a", 0), ("old", 0))
    assert told.one(Assign).partitions == {("a", 0)}


def test_the_sync_goes_to_who_answered_the_join_though_a_heartbeat_was_lost_meanwhile() -> None:
    told = settled("cooperative-sticky")
    rebalance(told)
    join = told.one(Join)
    beat = told.at(told.now_ms + 1000).one(Heartbeat)
    told.machine.failed(beat.request_id, error_of(KafkaError._TRANSPORT), told.now_ms)
    told.act()
    answer = Joined(0, 2, "cooperative-sticky", "other", "me")
    told.machine.joined(join.request_id, answer, told.now_ms)
    told.machine.coordinator_found(told.one(FindCoordinator).request_id, 7)
    assert told.one(Sync).node_id == join.node_id
