"""A member of a group as a state machine: KIP-848, from the member's side.

The coordinator decides who is to have what, and says so in answers to heartbeats. The member goes there step by step,
and its heartbeats say how far it is:

    | state | what it does | it ends when |
    |---|---|---|
    | OUT | nothing | it wants topics |
    | JOINING | says all in epoch 0 | it is welcomed |
    | RECONCILING | gives back what is not to be its own, says so, takes on what is | it has what it is to have |
    | STABLE | is heard of now and then | it is to have something else |
    | FENCED | the group goes on without it: loses all that it has | it has nothing; then it joins again |
    | STALE | its application does not poll: said goodbye, loses all that it has | a poll |
    | LEAVING | gives back what it has, says goodbye | that was answered, or could not be |
    | ENDED | another bears its name: loses all that it has | never |

`TABLE` has the events that lead from one to another. Heartbeats go on while the application is called; one of them is
under way at a time.

No partition is ever with two members: what a heartbeat says to be owned is never less than what the application may
have, and nothing is taken on before the coordinator has heard of all that the member has, since it may give away
meanwhile what it was not told of. After a heartbeat without an answer it may have heard anything, so the next one says
all. That the group goes on without the member shows by an answer alone, as in Java's client and librdkafka: only the
coordinator knows for how long it waits for a member that it does not hear of.
"""

from collections.abc import Callable, Collection, Mapping
from enum import Enum, auto
from typing import Final
from uuid import UUID

from oncelog.client.errors import KafkaError, error_of, is_retriable
from oncelog.client.groups.membership_steps import (
    NOWHERE,
    Asked,
    Assign,
    Beat,
    Beaten,
    FindCoordinator,
    FindNames,
    Leave,
    Member,
    MemberLimits,
    Place,
    Revoke,
    Wanted,
)
from oncelog.client.groups.participant import Participant
from oncelog.client.net.coordinators import has_moved
from oncelog.slots import AnyPlace

JOINS: Final = 0
NOTHING: Final = Wanted()
# The group goes on without the member, or is not there any more.
THROWN_OUT: Final = frozenset(
    {KafkaError.UNKNOWN_MEMBER_ID, KafkaError.FENCED_MEMBER_EPOCH, KafkaError.GROUP_ID_NOT_FOUND}
)
# Answers to commits that a heartbeat clears up.
TELLING: Final = THROWN_OUT | {KafkaError.STALE_MEMBER_EPOCH}


class State(Enum):
    OUT = auto()
    JOINING = auto()
    RECONCILING = auto()
    STABLE = auto()
    FENCED = auto()
    STALE = auto()
    LEAVING = auto()
    ENDED = auto()


class Event(Enum):
    WANTS = auto()
    WELCOMED = auto()
    TOLD = auto()  # to have something else
    HAS_ALL = auto()
    THROWN_OUT = auto()
    HAS_NOTHING = auto()
    NOT_POLLED = auto()
    POLLED = auto()
    LEAVES = auto()
    LEFT = auto()
    REPLACED = auto()


TABLE: Final[Mapping[State, Mapping[Event, State]]] = {
    State.OUT: {Event.WANTS: State.JOINING},
    State.JOINING: {
        Event.WELCOMED: State.RECONCILING,
        Event.THROWN_OUT: State.FENCED,
        Event.NOT_POLLED: State.STALE,
        Event.LEAVES: State.LEAVING,
        Event.REPLACED: State.ENDED,
    },
    State.RECONCILING: {
        Event.HAS_ALL: State.STABLE,
        Event.THROWN_OUT: State.FENCED,
        Event.NOT_POLLED: State.STALE,
        Event.LEAVES: State.LEAVING,
        Event.REPLACED: State.ENDED,
    },
    State.STABLE: {
        Event.TOLD: State.RECONCILING,
        Event.THROWN_OUT: State.FENCED,
        Event.NOT_POLLED: State.STALE,
        Event.LEAVES: State.LEAVING,
        Event.REPLACED: State.ENDED,
    },
    State.FENCED: {
        Event.HAS_NOTHING: State.JOINING,
        Event.NOT_POLLED: State.STALE,
        Event.LEAVES: State.LEAVING,
    },
    State.STALE: {Event.POLLED: State.FENCED, Event.LEAVES: State.LEAVING},
    State.LEAVING: {Event.LEFT: State.OUT, Event.REPLACED: State.ENDED},
    State.ENDED: {},
}
IN_THE_GROUP: Final = frozenset({State.RECONCILING, State.STABLE})
POLLED: Final = frozenset({State.JOINING, State.FENCED}) | IN_THE_GROUP
LOSING: Final = frozenset({State.FENCED, State.STALE, State.ENDED})


class ConsumerMembership(Participant):
    """`member_id` is the member's own choice, for as long as it lives."""

    def __init__(self, limits: MemberLimits, member_id: str, random: Callable[[], float]) -> None:
        super().__init__(limits, random)
        self.state = State.OUT
        self._member_id = member_id
        self._epoch = JOINS
        self._wanted = NOTHING
        self._has: frozenset[Place] = NOWHERE  # what the application may have
        self._to_have: frozenset[Place] = NOWHERE  # as the coordinator said last
        self._moving: frozenset[Place] = NOWHERE  # what the application is called for
        # What the coordinator has heard; None where it may have heard anything.
        self._said_wanted: Wanted | None = None
        self._said: frozenset[Place] | None = None
        self._is_known = False  # to the coordinator, perhaps
        self._gives_up_name = False  # held by another id, which may have been its own
        self._names: dict[UUID, str] = {}
        self._finding: FindNames | None = None
        self._find_ms = 0
        self.interval_ms = limits.heartbeat_interval_ms
        self._beat_ms = 0
        self._reported = 0

    # --- what the application wants

    def subscribe(self, topics: Collection[str], now_ms: int, pattern: str = "") -> None:
        """Be a member that wants these topics, and those that the pattern finds; nothing at all is leaving."""
        wanted = Wanted(frozenset(topics), pattern)
        if wanted == NOTHING:
            self.leave()
            return
        self._wanted = wanted
        if self._on(Event.WANTS):
            self._polled_ms = now_ms

    def leave(self) -> None:
        self._wanted = NOTHING
        if self._on(Event.LEAVES):
            self._retry_ms = 0

    def polled(self, now_ms: int) -> None:
        self._polled_ms = now_ms
        self._on(Event.POLLED)

    def application_done(self) -> None:
        """The application has done the work of `Revoke` or `Assign`."""
        called, self._calling = self._calling, None
        if isinstance(called, Revoke):
            self._has -= self._moving

    # --- what was answered

    def beaten(self, request_id: int, answer: Beaten, now_ms: int) -> None:
        asked = self._answered(request_id)
        if not isinstance(asked, Beat):
            return
        if answer.error_code:
            self._refused(error_of(answer.error_code, answer.message), now_ms, asked)
            return
        self._failures = self._reported = 0
        self._epoch = answer.epoch
        self.interval_ms = answer.interval_ms or self.interval_ms
        self._beat_ms = self._asked_ms + self.interval_ms
        if asked.wanted is not None:
            self._said_wanted = asked.wanted
        if asked.owned is not None:
            self._said = asked.owned
        if answer.assigned is not None:
            self._to_have, self._find_ms = answer.assigned, 0
        self.member = Member(self._epoch, self._member_id, self.limits.instance_id)
        self.thrown_out = None
        self._on(Event.WELCOMED)
        if self._to_have != self._has:
            self._on(Event.TOLD)

    def named(self, request_id: int, names: Mapping[UUID, str], now_ms: int) -> None:
        """The answer to FindNames. What is not there yet, or not any more, is asked for again in a while."""
        if self._finding is not None and self._finding.request_id == request_id:
            self._find_ms = 0 if names.keys() >= self._finding.topic_ids else self._later_ms(now_ms)
            self._finding = None
            self._names.update(names)

    def left(self, request_id: int, code: int = 0) -> None:
        """A member that leaves does not mind what is answered. One that only wanted its name free has to know."""
        if self._answered(request_id) is None:
            return
        if self.state is State.LEAVING:
            self._gone()
        elif code:
            self._report_once(error_of(KafkaError.UNRELEASED_INSTANCE_ID))
            self._pause(self._now_ms)

    def failed(self, request_id: int, error: KafkaError, now_ms: int) -> None:
        """No answer came: the connection broke, it took too long, or nobody could be asked."""
        if self._finding is not None and self._finding.request_id == request_id:
            self._finding, self._find_ms = None, self._later_ms(now_ms)
            return
        asked = self._answered(request_id)
        if isinstance(asked, Leave) and self.state is State.LEAVING:
            self._gone()
        elif asked is not None:
            self._refused(error, now_ms, asked)

    def refused(self, code: int, generation: int, now_ms: int) -> None:
        """A commit in this epoch was answered so. How things stand is for a heartbeat to say, and at once."""
        if code in TELLING and generation == self._epoch:
            self._beat_ms = now_ms

    def _refused(self, error: KafkaError, now_ms: int, asked: Asked) -> None:
        code = error.code()
        self._said = self._said_wanted = None  # the next one says all
        was_in = isinstance(asked, Beat) and asked.epoch != JOINS
        if code == KafkaError.FENCED_INSTANCE_ID:
            self.fatal = KafkaError(code, error.str(), fatal=True)
            self._thrown_out(self.fatal, Event.REPLACED)
            self._report(self.fatal)
        elif was_in and code in THROWN_OUT:
            self._thrown_out(error, Event.THROWN_OUT)
        elif code == KafkaError.UNRELEASED_INSTANCE_ID:
            self._gives_up_name = True
        else:
            self._pause(now_ms)
            if has_moved(code):
                self._node_id = None
            if not is_retriable(code):
                self._report_once(error)

    def _thrown_out(self, error: KafkaError, event: Event) -> None:
        self.thrown_out = error
        self.member = Member(instance_id=self.limits.instance_id)
        self._forget()
        self._on(event)

    def _forget(self) -> None:
        """Forget what was said and answered: the member is out of that group."""
        self._epoch, self._is_known = JOINS, False
        self._asked, self._finding = None, None
        self._said = self._said_wanted = None
        self._to_have = NOWHERE
        self._retry_ms = 0

    def _gone(self) -> None:
        self._forget()
        self.thrown_out = None
        self._on(Event.LEFT)
        if self._wanted != NOTHING:  # again, meanwhile
            self._polled_ms = self._now_ms
            self._on(Event.WANTS)

    def _report_once(self, error: KafkaError) -> None:
        """Report an error once, until a heartbeat is taken or something else is wrong: it is tried again and again."""
        if error.code() != self._reported:
            self._reported = error.code()
            self._report(error)

    def _later_ms(self, now_ms: int) -> int:
        return now_ms + self.limits.retry_backoff_max_ms

    def _on(self, event: Event) -> bool:
        after = TABLE[self.state].get(event)
        self.state = after or self.state
        return after is not None

    # --- what is to be done

    @property
    def owned(self) -> frozenset[AnyPlace]:
        return self._named(self._has)

    @property
    def is_steady(self) -> bool:
        """A member with its partitions, and nothing going on."""
        return self.state is State.STABLE and self._calling is None and self._said_wanted == self._wanted

    @property
    def is_out(self) -> bool:
        """The member has left: nothing is owned and nobody needs to be told."""
        return self.state in (State.OUT, State.ENDED) and not (self._has or self._calling or self._asked)

    def next_due_ms(self) -> int | None:
        """The time to call `actions` again though nothing arrives."""
        due = []
        if self.state in POLLED:
            due.append(self._polled_ms + self.limits.rebalance_timeout_ms)
        if self._retry_ms:
            due.append(self._retry_ms)
        elif self._is_heard and self._asked is None:
            due.append(self._beat_ms)
        if self._find_ms and self.state is State.RECONCILING:
            due.append(self._find_ms)
        return min(due, default=None)

    @property
    def _is_heard(self) -> bool:
        """Whether the coordinator is to hear of it now and then: also for as long as its application gives back."""
        return self.state in IN_THE_GROUP or (self.state is State.LEAVING and self._is_known and bool(self._has))

    def _look_at_clocks(self, now_ms: int) -> None:
        if now_ms >= self._retry_ms:
            self._retry_ms = 0
        if now_ms >= self._find_ms:
            self._find_ms = 0
        if self.state in POLLED and now_ms >= self._polled_ms + self.limits.rebalance_timeout_ms:
            error = self._not_polled()
            self._report(error)
            if self._is_known and self._node_id is not None:
                self._out.append(self._goodbye(self._node_id, error.str()))
            self._thrown_out(error, Event.NOT_POLLED)

    def _next(self) -> bool:
        if self.state in LOSING:
            return self._take(self._has, is_lost=True) if self._has else self._on(Event.HAS_NOTHING)
        if self.state is State.LEAVING:
            return self._leave()
        return self.state is State.RECONCILING and self._reconcile()

    def _reconcile(self) -> bool:
        """Say what is given back, before anything is taken on."""
        if self._has - self._to_have:
            return self._take(self._has - self._to_have, is_lost=False)
        if self._said != self._has:
            return False
        missing = self._to_have - self._has
        self._moving = frozenset(place for place in missing if place[0] in self._names)
        if self._moving:
            self._has |= self._moving
            return self._call(Assign(self._named(self._moving)))
        if missing:
            self._find_names(frozenset(topic_id for topic_id, _ in missing))
            return False
        ids = {topic_id for topic_id, _ in self._has}
        self._names = {topic_id: name for topic_id, name in self._names.items() if topic_id in ids}
        return self._on(Event.HAS_ALL)

    def _find_names(self, topic_ids: frozenset[UUID]) -> None:
        if self._finding is None and not self._find_ms:
            self._finding = FindNames(next(self._request_ids), topic_ids)
            self._out.append(self._finding)

    def _take(self, places: frozenset[Place], *, is_lost: bool) -> bool:
        self._moving = places
        return self._call(Revoke(self._named(places), is_lost=is_lost))

    def _named(self, places: frozenset[Place]) -> frozenset[AnyPlace]:
        return frozenset((self._names[topic_id], index) for topic_id, index in places)

    def _leave(self) -> bool:
        if self._has:
            return self._take(self._has, is_lost=self.thrown_out is not None)
        if isinstance(self._asked, Leave):
            return False
        self.member = Member(instance_id=self.limits.instance_id)
        if self._is_known and self._node_id is not None:
            return self._ask(self._goodbye(self._node_id, "the consumer is closed"))
        self._gone()
        return True

    def _goodbye(self, node_id: int, reason: str) -> Leave:
        return Leave(next(self._request_ids), node_id, self._member_id, reason)

    def _beat(self, now_ms: int) -> None:
        is_joining = self.state is State.JOINING
        if self._asked is not None or self._retry_ms or not (is_joining or self._is_heard):
            return
        if self._node_id is None:
            self._ask(FindCoordinator(next(self._request_ids)))
        elif self._gives_up_name:
            self._gives_up_name = False
            self._ask(self._goodbye(self._node_id, "its name is to be its own"))
        elif is_joining or self._has_news or now_ms >= self._beat_ms:
            self._ask(self._heartbeat(self._node_id))

    @property
    def _has_news(self) -> bool:
        return self._wants_another or self._has_moved

    @property
    def _wants_another(self) -> bool:
        return self.state is not State.LEAVING and self._said_wanted != self._wanted

    @property
    def _has_moved(self) -> bool:
        """The member has given back, or taken on, partitions, and is not about to do more of it."""
        is_there = self._calling is None and self._has <= self._to_have
        return self.state is not State.LEAVING and is_there and self._said != self._has

    def _heartbeat(self, node_id: int) -> Beat:
        is_whole = self._said is None or self._said_wanted is None
        wanted = self._wanted if self._wants_another else None
        owned = self._has if is_whole or self._has_moved else None
        self._is_known = True
        return Beat(next(self._request_ids), node_id, self._member_id, self._epoch, wanted, owned)
