"""One member of a group of KIP-848, told by hand what happens: what it does next, and when."""

from typing import Any
from uuid import UUID

import pytest

from oncelog.client.errors import KafkaError, error_of
from oncelog.client.groups.consumer_membership import TABLE, ConsumerMembership, Event, State
from oncelog.client.groups.membership_steps import (
    NOWHERE,
    Assign,
    Beat,
    Beaten,
    FindCoordinator,
    FindNames,
    Leave,
    Member,
    MemberLimits,
    Place,
    Report,
    Revoke,
    Wanted,
)

A, B = UUID(int=1), UUID(int=2)
NAMES = {A: "a", B: "b"}
BOTH = frozenset({(A, 0), (A, 1)})
BOTH_NAMED = frozenset({("a", 0), ("a", 1)})
BEAT_MS = 5000


class Told:
    """A member and the clock. Each call says what it wants done then."""

    def __init__(self, instance_id: str | None = None) -> None:
        limits = MemberLimits(
            instance_id=instance_id,
            session_timeout_ms=45_000,
            rebalance_timeout_ms=60_000,
            heartbeat_interval_ms=3000,
            retry_backoff_ms=100,
            retry_backoff_max_ms=400,
        )
        self.machine = ConsumerMembership(limits, "me", lambda: 0.5)
        self.now_ms = 1000
        self.epoch = 1

    def act(self) -> list[Any]:
        return self.machine.actions(self.now_ms)

    def one(self, kind: type) -> Any:
        (action,) = self.act()
        assert isinstance(action, kind), action
        return action

    def at(self, now_ms: int) -> "Told":
        self.now_ms = now_ms
        return self

    def after(self, pause_ms: int) -> "Told":
        return self.at(self.now_ms + pause_ms)

    def find(self) -> None:
        self.machine.coordinator_found(self.one(FindCoordinator).request_id, 7)

    def answer(self, beat: Beat, *assigned: Place, epoch: int = 1, is_new: bool = True) -> None:
        places = frozenset(assigned) if is_new else None
        self.machine.beaten(beat.request_id, Beaten(0, None, epoch, BEAT_MS, places), self.now_ms)

    def hear(self, beat: Beat) -> None:
        """Answered, and all is as before."""
        self.answer(beat, is_new=False)

    def refuse(self, beat: Beat, code: int, message: str | None = None) -> None:
        self.machine.beaten(beat.request_id, Beaten(code, message), self.now_ms)

    def name(self, find: FindNames) -> None:
        self.machine.named(find.request_id, {each: NAMES[each] for each in find.topic_ids}, self.now_ms)

    def done(self, kind: type) -> Any:
        action = self.one(kind)
        self.machine.application_done()
        return action

    def beat(self, interval_ms: int = BEAT_MS) -> Beat:
        found = self.after(interval_ms).one(Beat)
        assert isinstance(found, Beat)
        return found


def joining(instance_id: str | None = None) -> Told:
    told = Told(instance_id)
    told.machine.subscribe({"a"}, told.now_ms)
    told.find()
    return told


def settled(instance_id: str | None = None) -> Told:
    told = joining(instance_id)
    told.answer(told.one(Beat), *BOTH)
    told.name(told.one(FindNames))
    told.done(Assign)
    told.hear(told.one(Beat))
    assert told.act() == [] and told.machine.is_steady
    return told


def test_a_member_says_all_is_told_takes_on_and_says_that_it_did() -> None:
    told = joining()
    first = told.one(Beat)
    assert (first.node_id, first.member_id, first.epoch) == (7, "me", 0)
    assert (first.wanted, first.owned, first.is_whole) == (Wanted(frozenset({"a"})), NOWHERE, True)
    assert told.machine.member == Member() and not told.machine.is_steady
    told.answer(first, *BOTH, epoch=3)
    assert told.machine.member == Member(3, "me")
    told.name(told.one(FindNames))
    assert told.one(Assign).partitions == BOTH_NAMED
    assert told.act() == [] and not told.machine.is_steady, "the application is waited for"
    told.machine.application_done()
    second = told.one(Beat)
    assert (second.epoch, second.wanted, second.owned) == (3, None, BOTH)
    told.answer(second, epoch=3, is_new=False)
    assert told.act() == [] and told.machine.is_steady and told.machine.owned == BOTH_NAMED


def test_who_is_given_nothing_is_settled_with_nothing() -> None:
    told = joining()
    told.answer(told.one(Beat))
    assert told.act() == [] and told.machine.is_steady and told.machine.owned == frozenset()


def test_a_settled_member_is_heard_of_as_often_as_the_coordinator_says_and_says_nothing_new() -> None:
    told = settled()
    for _ in range(3):
        assert told.machine.next_due_ms() == told.now_ms + BEAT_MS
        assert told.after(BEAT_MS - 1).act() == []
        beat = told.after(1).one(Beat)
        assert (beat.epoch, beat.wanted, beat.owned) == (1, None, None)
        assert told.act() == [], "one at a time"
        told.machine.polled(told.now_ms)
        told.hear(beat)
        assert told.act() == []


def test_what_was_given_back_is_said_before_anything_is_taken_on() -> None:
    told = settled()
    told.answer(told.beat(), (A, 0), (B, 0), epoch=1)
    assert told.one(Revoke) == Revoke(frozenset({("a", 1)}), is_lost=False)
    keepalive = told.beat()
    assert keepalive.owned is None, "the application still has it"
    told.hear(keepalive)
    assert told.act() == []
    told.machine.application_done()
    said = told.one(Beat)
    assert said.owned == {(A, 0)}
    assert told.act() == [], "nothing is taken on before that was heard"
    told.answer(said, (A, 0), (B, 0), epoch=2)
    told.name(told.one(FindNames))
    assert told.done(Assign).partitions == {("b", 0)}
    assert told.one(Beat).owned == {(A, 0), (B, 0)}


def test_what_is_being_taken_on_is_owned_already() -> None:
    """A coordinator that takes it away meanwhile must not think that it was given back."""
    told = joining()
    told.answer(told.one(Beat), *BOTH)
    told.name(told.one(FindNames))
    told.one(Assign)
    lost = told.beat()
    told.machine.failed(lost.request_id, error_of(KafkaError._TRANSPORT), told.now_ms)
    told.after(100).find()
    assert told.one(Beat).owned == BOTH


def test_after_a_heartbeat_without_an_answer_nothing_is_taken_on_before_one_that_says_all_is_answered() -> None:
    told = settled()
    told.answer(told.beat(), (A, 0))
    told.done(Revoke)
    said = told.one(Beat)
    told.machine.failed(said.request_id, error_of(KafkaError._TIMED_OUT), told.now_ms)
    assert told.act() == []
    told.after(100).find()
    again = told.one(Beat)
    assert again.is_whole and again.owned == {(A, 0)} and again.wanted == Wanted(frozenset({"a"}))
    assert told.act() == []
    told.answer(again, *BOTH, epoch=2)
    assert told.done(Assign).partitions == {("a", 1)}


@pytest.mark.parametrize(
    "code", [KafkaError.UNKNOWN_MEMBER_ID, KafkaError.FENCED_MEMBER_EPOCH, KafkaError.GROUP_ID_NOT_FOUND]
)
def test_a_member_that_the_group_goes_on_without_loses_all_and_joins_again(code: int) -> None:
    told = settled()
    told.refuse(told.beat(), code)
    assert told.one(Revoke) == Revoke(BOTH_NAMED, is_lost=True)
    assert told.machine.thrown_out == code and told.machine.member == Member()
    assert told.after(60_000 - BEAT_MS - 1).act() == [], "it does not join with what it has"
    told.machine.application_done()
    join = told.one(Beat)
    assert (join.epoch, join.owned, join.is_whole) == (0, NOWHERE, True)
    told.answer(join, (A, 0), epoch=9)
    assert told.machine.thrown_out is None and told.machine.member == Member(9, "me")


def test_what_a_fenced_member_is_about_to_take_on_is_lost_too() -> None:
    told = joining()
    told.answer(told.one(Beat), *BOTH)
    told.name(told.one(FindNames))
    told.one(Assign)
    told.refuse(told.beat(), KafkaError.UNKNOWN_MEMBER_ID)
    assert told.act() == []
    told.machine.application_done()
    assert told.one(Revoke) == Revoke(BOTH_NAMED, is_lost=True)


def test_a_refused_join_is_tried_again_after_pauses_that_grow_and_reported_once() -> None:
    told = joining()
    pauses, reports = [], []
    for _ in range(4):
        told.refuse(told.one(Beat), KafkaError.UNSUPPORTED_ASSIGNOR, "which one?")
        reports += told.act()
        due_ms = told.machine.next_due_ms()
        assert due_ms is not None
        pauses.append(due_ms - told.now_ms)
        told.at(due_ms)
    assert pauses == [100, 200, 400, 400]
    assert [each.error.code() for each in reports] == [KafkaError.UNSUPPORTED_ASSIGNOR]
    assert "which one?" in reports[0].error.str()


@pytest.mark.parametrize("code", [KafkaError.UNKNOWN_MEMBER_ID, KafkaError.GROUP_ID_NOT_FOUND])
def test_who_is_not_in_the_group_cannot_be_thrown_out(code: int) -> None:
    """The group may be one of the classic protocol: it is asked again now and then, and not at once."""
    told = joining()
    told.refuse(told.one(Beat), code)
    assert told.one(Report).error == code
    assert told.act() == [] and told.machine.next_due_ms() == told.now_ms + 100


@pytest.mark.parametrize("code", [KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_NOT_AVAILABLE])
def test_a_coordinator_that_moved_is_found_and_told_all_and_nothing_is_given_up(code: int) -> None:
    told = settled()
    told.refuse(told.beat(), code)
    assert told.act() == []
    told.after(100).machine.polled(told.now_ms)
    told.find()
    again = told.one(Beat)
    assert (again.epoch, again.owned, again.is_whole) == (1, BOTH, True)
    told.answer(again, *BOTH)
    assert told.act() == [] and told.machine.is_steady


def test_a_coordinator_that_loads_is_asked_again() -> None:
    told = settled()
    told.refuse(told.beat(), KafkaError.COORDINATOR_LOAD_IN_PROGRESS)
    assert told.act() == []
    assert told.after(100).one(Beat).is_whole


def test_a_name_that_its_own_id_holds_is_given_up_and_taken_again() -> None:
    """So it is after a join whose answer was lost, and after a fence."""
    told = joining("static")
    told.refuse(told.one(Beat), KafkaError.UNRELEASED_INSTANCE_ID)
    told.machine.left(told.one(Leave).request_id)
    assert told.one(Beat).epoch == 0


def test_a_name_that_another_holds_is_waited_for_and_that_is_reported_once() -> None:
    told = joining("static")
    reports = []
    for _ in range(3):
        told.refuse(told.one(Beat), KafkaError.UNRELEASED_INSTANCE_ID)
        told.machine.left(told.one(Leave).request_id, KafkaError.FENCED_INSTANCE_ID)
        reports += told.act()
        told.after(400)
    assert [each.error.code() for each in reports] == [KafkaError.UNRELEASED_INSTANCE_ID]
    told.answer(told.one(Beat))
    assert told.act() == [] and told.machine.is_steady and told.machine.fatal is None


def test_a_member_whose_name_another_bears_by_now_ends() -> None:
    told = settled("static")
    told.refuse(told.beat(), KafkaError.FENCED_INSTANCE_ID)
    report, revoke = told.act()
    assert report.error == KafkaError.FENCED_INSTANCE_ID and report.error.fatal()
    assert revoke == Revoke(BOTH_NAMED, is_lost=True)
    told.machine.application_done()
    assert told.act() == [] and told.machine.is_out and told.machine.next_due_ms() is None
    told.machine.subscribe({"b"}, told.now_ms)
    told.machine.leave()
    assert told.act() == [] and told.machine.fatal == KafkaError.FENCED_INSTANCE_ID


@pytest.mark.parametrize("code", [KafkaError.STALE_MEMBER_EPOCH, KafkaError.UNKNOWN_MEMBER_ID])
def test_a_refused_commit_is_cleared_up_by_a_heartbeat_at_once(code: int) -> None:
    told = settled()
    told.machine.refused(code, 0, told.now_ms)
    assert told.act() == [], "of an epoch before"
    told.machine.refused(code, 1, told.now_ms)
    told.answer(told.one(Beat), epoch=2, is_new=False)
    assert told.machine.member == Member(2, "me")


def test_another_subscription_is_said_at_once() -> None:
    told = settled()
    told.machine.subscribe({"b"}, told.now_ms, "^c")
    assert not told.machine.is_steady
    beat = told.one(Beat)
    assert (beat.wanted, beat.owned) == (Wanted(frozenset({"b"}), "^c"), None)
    told.machine.subscribe({"b"}, told.now_ms)
    told.hear(beat)
    assert not told.machine.is_steady
    again = told.one(Beat)
    assert again.wanted == Wanted(frozenset({"b"}))
    told.hear(again)
    assert told.machine.is_steady


def test_topics_whose_names_are_not_known_are_asked_for_again_and_the_others_taken_on() -> None:
    told = joining()
    told.answer(told.one(Beat), (A, 0), (B, 0))
    find = told.one(FindNames)
    assert find.topic_ids == {A, B}
    told.machine.named(find.request_id, {A: "a"}, told.now_ms)
    assert told.done(Assign).partitions == {("a", 0)}
    told.hear(told.one(Beat))
    assert told.act() == [] and not told.machine.is_steady
    again = told.after(400).one(FindNames)
    assert again.topic_ids == {B}
    told.machine.failed(again.request_id, error_of(KafkaError._TRANSPORT), told.now_ms)
    assert told.act() == []
    told.name(told.after(400).one(FindNames))
    assert told.one(Assign).partitions == {("b", 0)}


def test_another_topic_of_the_same_name_is_another_place() -> None:
    told = settled()
    made_anew = UUID(int=3)
    told.answer(told.beat(), (made_anew, 0), epoch=2)
    assert told.done(Revoke).partitions == BOTH_NAMED
    said = told.one(Beat)
    assert said.owned == NOWHERE
    told.hear(said)
    told.machine.named(told.one(FindNames).request_id, {made_anew: "a"}, told.now_ms)
    assert told.done(Assign).partitions == {("a", 0)}
    assert told.one(Beat).owned == {(made_anew, 0)}


def test_an_application_that_does_not_poll_leaves_and_comes_back_with_a_poll() -> None:
    told = settled()
    beat = told.at(60_999).one(Beat)
    report, goodbye, revoke = told.at(61_000).act()
    assert report.error == KafkaError._MAX_POLL_EXCEEDED
    assert isinstance(goodbye, Leave) and revoke == Revoke(BOTH_NAMED, is_lost=True)
    told.hear(beat)
    assert told.machine.thrown_out == KafkaError._MAX_POLL_EXCEEDED
    told.machine.application_done()
    assert told.act() == [] and told.machine.next_due_ms() is None
    told.machine.polled(told.now_ms)
    assert told.one(Beat).epoch == 0


def test_a_member_that_leaves_gives_back_and_says_goodbye() -> None:
    told = settled()
    told.machine.leave()
    assert told.one(Revoke) == Revoke(BOTH_NAMED, is_lost=False)
    keepalive = told.beat()
    assert (keepalive.epoch, keepalive.wanted, keepalive.owned) == (1, None, None), "it has not left yet"
    told.answer(keepalive, epoch=2, is_new=False)
    assert told.machine.member == Member(2, "me"), "and may commit"
    told.machine.application_done()
    goodbye = told.one(Leave)
    assert goodbye.member_id == "me" and not told.machine.is_out
    told.machine.left(goodbye.request_id)
    assert told.act() == [] and told.machine.is_out and told.machine.member == Member()


def test_a_goodbye_that_fails_is_as_good() -> None:
    told = settled()
    told.machine.leave()
    told.done(Revoke)
    told.machine.failed(told.one(Leave).request_id, error_of(KafkaError._TIMED_OUT), told.now_ms)
    assert told.act() == [] and told.machine.is_out


def test_who_leaves_before_it_was_answered_says_goodbye_too() -> None:
    told = joining()
    join = told.one(Beat)
    told.machine.leave()
    told.machine.left(told.one(Leave).request_id)
    told.answer(join, *BOTH)
    assert told.act() == [] and told.machine.is_out and told.machine.owned == frozenset()


def test_who_never_asked_has_nobody_to_say_goodbye_to() -> None:
    told = Told()
    told.machine.leave()
    assert told.act() == [] and told.machine.is_out
    told.machine.subscribe({"a"}, told.now_ms)
    told.one(FindCoordinator)
    told.machine.leave()
    assert told.act() == [] and told.machine.is_out


def test_a_member_that_is_thrown_out_while_it_leaves_has_said_goodbye() -> None:
    told = settled()
    told.machine.leave()
    told.one(Revoke)
    told.refuse(told.beat(), KafkaError.UNKNOWN_MEMBER_ID)
    assert told.machine.thrown_out == KafkaError.UNKNOWN_MEMBER_ID, "nothing may be committed"
    assert told.act() == []
    told.machine.application_done()
    assert told.act() == [] and told.machine.is_out and told.machine.thrown_out is None


def test_who_subscribes_again_while_it_leaves_joins_again() -> None:
    told = settled()
    told.machine.subscribe((), told.now_ms)
    told.done(Revoke)
    goodbye = told.one(Leave)
    told.machine.subscribe({"b"}, told.now_ms)
    assert told.act() == []
    told.machine.left(goodbye.request_id)
    join = told.one(Beat)
    assert join.epoch == 0 and join.wanted == Wanted(frozenset({"b"}))


def test_every_state_is_reached_and_every_event_leads_somewhere() -> None:
    reached = {after for row in TABLE.values() for after in row.values()}
    assert TABLE.keys() == set(State) == reached
    assert {event for row in TABLE.values() for event in row} == set(Event)
