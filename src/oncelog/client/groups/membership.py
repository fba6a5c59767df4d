"""A member of a group as a state machine: the classic protocol, from the member's side.

It is told the time, what the application wants and what was answered; `actions` says what is to be done. At most one
request of the course join, share, sync is under way, and at most one call of the application; heartbeats go on beside
both. What it does next follows from a few facts, looked at in this order:

    the application is called              wait for it
    it left, or no longer polls            give back, say goodbye
    no coordinator is known                find it
    the partitions are lost                take them from the application
    a new generation is wanted             give back what may not be kept, join, (leader: share), sync
    the shares are not what is owned       take from and give to the application; then perhaps join again
    otherwise                              steady

An eager member gives everything back before it joins. A cooperative one joins with what it has, gives back what the
shares say, and joins once more so that another may have it.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from oncelog.client.errors import KafkaError, error_of, is_retriable
from oncelog.client.groups.assignors import Assignor, Candidate
from oncelog.client.groups.heartbeats import Heartbeats
from oncelog.client.groups.membership_steps import (
    Asked,
    Assign,
    CountPartitions,
    FindCoordinator,
    Heartbeat,
    Join,
    Joined,
    Leave,
    Member,
    MemberLimits,
    Revoke,
    Sync,
)
from oncelog.client.groups.participant import Participant
from oncelog.client.groups.protocol import (
    NO_GENERATION,
    MalformedMessage,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from oncelog.client.net.coordinators import MOVED, has_moved
from oncelog.slots import AnyPlace

ID_GIVEN: Final = "a member id was given"

# The coordinator has forgotten the member, or goes on without it: what it owned may be another's by now.
THROWN_OUT: Final = frozenset({KafkaError.UNKNOWN_MEMBER_ID, KafkaError.ILLEGAL_GENERATION})


class Membership(Participant):
    def __init__(self, limits: MemberLimits, assignors: Sequence[Assignor], random: Callable[[], float]) -> None:
        super().__init__(limits, random)
        self._assignors = {assignor.name: assignor for assignor in assignors}
        self._is_cooperative = all(assignor.is_cooperative for assignor in assignors)
        self.heartbeats = Heartbeats(limits.session_timeout_ms, limits.heartbeat_interval_ms)

        self.owned: frozenset[AnyPlace] = frozenset()
        self.counts: Mapping[str, int] | None = None  # what the leader shared out by

        self._topics: frozenset[str] = frozenset()
        self._is_leaving = False
        self._is_polled_out = False
        self._is_lost = False
        # A join or sync got no answer. One sent again may be answered with a generation that began long ago, and its
        # session beginning anew; so a heartbeat comes first, and nothing is taken on before it is answered.
        self._has_doubt = False
        self._join_reason: str | None = None
        self._shares: frozenset[AnyPlace] | None = None  # what the last sync said, until it is owned
        self._previous: tuple[int, frozenset[AnyPlace]] = (NO_GENERATION, frozenset())
        self._joined: Joined | None = None

    # --- what the application wants

    def subscribe(self, topics: Collection[str], now_ms: int, pattern: str = "") -> None:
        """Be a member that wants these topics; none at all is leaving. Patterns are for members to resolve."""
        wanted = frozenset(topics)
        if not wanted:
            self.leave()
        elif wanted != self._topics or self._is_leaving:
            self._topics, self._is_leaving = wanted, False
            self._polled_ms = now_ms
            self._want_join("the subscription changed")

    def leave(self) -> None:
        if not self._is_leaving:
            self._is_leaving = True
            self._asked, self._joined, self._retry_ms = None, None, 0

    def polled(self, now_ms: int) -> None:
        self._polled_ms = now_ms
        if self._is_polled_out:
            self._is_polled_out = False
            self._join_reason = "the application polls again"

    def application_done(self) -> None:
        """The application has done the work of `Revoke` or `Assign`."""
        called, self._calling = self._calling, None
        if isinstance(called, Assign):
            self.owned |= called.partitions
        elif called is not None:
            self.owned -= called.partitions
            if self._is_cooperative and not called.is_lost and self._shares is not None:
                self._want_join("partitions were given back")

    def partitions_counted(self, counts: Mapping[str, int]) -> None:
        """The topics have these numbers of partitions now; a leader that shared out by other numbers does so again."""
        if self.counts is not None and dict(counts) != dict(self.counts):
            self.counts = None
            self._want_join("the partitions of a topic changed")

    # --- what was answered

    def joined(self, request_id: int, answer: Joined, now_ms: int) -> None:
        asked = self._answered(request_id)
        if not isinstance(asked, Join):
            return
        if answer.error_code == KafkaError.MEMBER_ID_REQUIRED:
            self.member = self.member._replace(member_id=answer.member_id)
            self._want_join(ID_GIVEN)
        elif answer.error_code:
            self._refused(answer.error_code, now_ms, asked)
        else:
            self._failures, self.thrown_out = 0, None
            self.member = self.member._replace(generation=answer.generation, member_id=answer.member_id)
            self._joined = replace(answer, node_id=asked.node_id)

    def counted(self, request_id: int, counts: Mapping[str, int]) -> None:
        """The answer to CountPartitions: the leader shares out."""
        joined = self._joined
        if not self._answered(request_id) or joined is None:
            return
        self.counts = dict(counts)
        if joined.is_assigned_already:
            self._sync(joined, {})
            return
        shares = self._assignors[joined.protocol_name].assign(counts, candidates(joined))
        self._sync(joined, {member_id: encode_assignment(partitions) for member_id, partitions in shares.items()})

    def synced(self, request_id: int, error_code: int, assignment: bytes, now_ms: int) -> None:
        asked = self._answered(request_id)
        if asked is None:
            return
        self._joined = None
        if error_code:
            self._refused(error_code, now_ms, asked)
            return
        try:
            shares = decode_assignment(assignment)
        except MalformedMessage as error:
            self._report(KafkaError(KafkaError._BAD_MSG, f"the leader's assignment cannot be read: {error}"))
            shares = frozenset()
        self._failures = 0
        self.heartbeats.next_ms = now_ms
        if not self._has_doubt:
            self.heartbeats.heard(self._asked_ms)
            self.heartbeats.next_ms += self.limits.heartbeat_interval_ms
        self._shares = frozenset(each for each in shares if each[0] in self._topics)
        self._previous = (self.member.generation, self._shares)

    def beaten(self, request_id: int, error_code: int, now_ms: int) -> None:
        """A heartbeat's answer."""
        if not self.heartbeats.answered(request_id, self.member.generation):
            return
        if error_code in (0, KafkaError.REBALANCE_IN_PROGRESS):
            self.heartbeats.confirmed()
            self._has_doubt = self._has_doubt and self._is_joining
        if error_code == 0 or (self._is_joining and error_code != KafkaError.UNKNOWN_MEMBER_ID):
            return  # while it joins, the answer to that says how things stand
        if error_code == KafkaError.REBALANCE_IN_PROGRESS:
            self._want_join("the group rebalances")
        elif error_code in MOVED:
            self._node_id = None
        elif error_code in THROWN_OUT or not is_retriable(error_code):
            self._refused(error_code, now_ms)
        else:
            self.heartbeats.next_ms = now_ms + self.limits.retry_backoff_ms

    def left(self, request_id: int, code: int = 0) -> None:
        """The answer to LeaveGroup came. Whatever it is, the member is out."""
        if self._answered(request_id):
            self.member = Member(instance_id=self.limits.instance_id)

    def failed(self, request_id: int, error: KafkaError, now_ms: int) -> None:
        """No answer came: the connection broke, it took too long, or nobody could be asked."""
        if self.heartbeats.failed(request_id):
            self._node_id = None
            return
        asked = self._answered(request_id)
        if asked is not None:
            self._has_doubt = self._has_doubt or isinstance(asked, Join | Sync)
            self._refused(error.code(), now_ms, asked, error)

    def refused(self, code: int, generation: int, now_ms: int) -> None:
        """A commit in this generation was answered so."""
        if generation != self.member.generation or generation == NO_GENERATION:
            return
        if code == KafkaError.REBALANCE_IN_PROGRESS:
            self._want_join("the group rebalances")
        elif code in THROWN_OUT or code == KafkaError.FENCED_INSTANCE_ID:
            self._refused(code, now_ms)

    def _refused(self, code: int, now_ms: int, asked: Asked | None = None, error: KafkaError | None = None) -> None:
        self._joined = None
        if code == KafkaError.FENCED_INSTANCE_ID:
            self._end(KafkaError(code, error_of(code).str(), fatal=True))
            return
        if code in THROWN_OUT:
            self._thrown_out("the coordinator goes on without this member", code)
            return
        if not isinstance(asked, FindCoordinator | Leave):
            self._want_join("the group rebalances" if code == KafkaError.REBALANCE_IN_PROGRESS else "it failed before")
        if code == KafkaError.REBALANCE_IN_PROGRESS and not isinstance(asked, Join):
            return
        self._pause(now_ms)
        if has_moved(code):
            self._node_id = None
        if not is_retriable(code):
            self._report(error or error_of(code))

    def _end(self, error: KafkaError) -> None:
        """Another bears this member's name now."""
        self.fatal = self.thrown_out = error
        self._is_lost = True
        self._asked, self._joined, self._shares = None, None, None
        self.member = Member(instance_id=self.limits.instance_id)
        self.heartbeats.stop()
        self._report(error)

    def _thrown_out(self, reason: str, code: int = KafkaError.UNKNOWN_MEMBER_ID) -> None:
        self.thrown_out = error_of(code, reason)
        keeps_id = code == KafkaError.ILLEGAL_GENERATION
        self.member = Member(NO_GENERATION, self.member.member_id if keeps_id else "", self.limits.instance_id)
        self.heartbeats.stop()
        self._has_doubt = isinstance(self._asked, Join | Sync)
        self._asked, self._joined, self._shares, self.counts = None, None, None, None
        self._is_lost = True
        self._want_join(reason)

    def _want_join(self, reason: str) -> None:
        self._join_reason = self._join_reason or reason

    # --- what is to be done

    @property
    def is_steady(self) -> bool:
        """A member with its partitions, and nothing going on."""
        is_going_on = self._asked or self._calling or self._join_reason or self._shares is not None or self._is_lost
        return self.member.generation != NO_GENERATION and not is_going_on and not self._is_leaving

    @property
    def is_out(self) -> bool:
        """The member has left: nothing is owned and nobody needs to be told."""
        is_ending = self.fatal is not None or (self._is_leaving and not self._topics)
        return is_ending and not self.owned and not self._calling and not self._asked

    def next_due_ms(self) -> int | None:
        """The time to call `actions` again though nothing arrives."""
        if self._is_stopped:
            return None
        due = [self._polled_ms + self.limits.rebalance_timeout_ms]
        if self._retry_ms:
            due.append(self._retry_ms)
        if self._is_expiring:
            due.append(self.heartbeats.expires_ms)
        if self._is_beating and self.heartbeats.is_free:
            due.append(self.heartbeats.next_ms)
        return min(due)

    @property
    def _is_joining(self) -> bool:
        return self._joined is not None or (self._asked is not None and self._node_id is not None)

    @property
    def _is_beating(self) -> bool:
        """A member that waits to join, which the coordinator keeps anyway, goes on only for what it still owns: should
        the join be lost on its way, that would be given to another after the time of a session."""
        is_member = self.member.generation != NO_GENERATION and self._node_id is not None
        return is_member and (bool(self.owned) or not self._is_joining)

    @property
    def _is_expiring(self) -> bool:
        """Whether there is anything to lose. That a join was answered says nothing about when the session began: it
        may be the answer to one that was sent before. A sync and a heartbeat begin it anew."""
        return self.member.generation != NO_GENERATION and bool(self.owned)

    @property
    def _is_stopped(self) -> bool:
        return self._is_leaving or self._is_polled_out or self.fatal is not None or not self._topics

    def _look_at_clocks(self, now_ms: int) -> None:
        if now_ms >= self._retry_ms:
            self._retry_ms = 0
        if self._is_stopped:
            return
        if now_ms >= self._polled_ms + self.limits.rebalance_timeout_ms:
            self._poll_out()
        elif self._is_expiring and now_ms >= self.heartbeats.expires_ms:
            self._node_id = None
            self._thrown_out("no heartbeat was answered for the time of a session", KafkaError.ILLEGAL_GENERATION)

    def _poll_out(self) -> None:
        """The application is stuck: let the others have its partitions."""
        error = self._not_polled()
        words = error.str()
        self._report(error)
        self._is_polled_out = True
        if self.member.member_id and self._node_id is not None and self.limits.instance_id is None:
            self._out.append(Leave(next(self._request_ids), self._node_id, self.member.member_id, words))
        self._thrown_out(words)
        self.thrown_out = error

    def _next(self) -> bool:
        if self._is_lost:
            self._is_lost = False
            return not self.owned or self._call(Revoke(self.owned, is_lost=True))
        if self._asked is not None or self._retry_ms or self.fatal is not None or not self._topics:
            return False
        if self._is_leaving:
            return self._say_goodbye()
        if self._is_polled_out:
            return False
        if self._node_id is None:
            return self._ask(FindCoordinator(next(self._request_ids)))
        if self._joined is not None:
            return self._share_or_sync(self._joined)
        if self._shares is not None:
            return self._take_on(self._shares)
        return self._join(self._node_id) if self._join_reason is not None else False

    def _say_goodbye(self) -> bool:
        self._shares, self._join_reason = None, None
        if self.owned:
            return self._call(Revoke(self.owned, is_lost=False))
        member_id, self._topics, self.thrown_out = self.member.member_id, frozenset(), None
        self.heartbeats.stop()
        if member_id and self._node_id is not None and self.limits.instance_id is None:
            return self._ask(Leave(next(self._request_ids), self._node_id, member_id, "the consumer is closed"))
        self.member = Member(instance_id=self.limits.instance_id)
        return False

    def _join(self, node_id: int) -> bool:
        keeps = frozenset(each for each in self.owned if self._is_cooperative and each[0] in self._topics)
        if self.owned - keeps:
            return self._call(Revoke(self.owned - keeps, is_lost=False))
        reason, self._join_reason = self._join_reason or "", None
        protocols = tuple((name, self._subscription(assignor)) for name, assignor in self._assignors.items())
        return self._ask(Join(next(self._request_ids), node_id, self.member.member_id, protocols, reason))

    def _subscription(self, assignor: Assignor) -> bytes:
        generation, partitions = self._previous
        subscription = Subscription(self._topics, owned=self.owned, generation=generation, rack=self.limits.rack)
        return encode_subscription(replace(subscription, userdata=assignor.userdata(partitions, generation)))

    def _share_or_sync(self, joined: Joined) -> bool:
        is_leader = joined.leader_id == joined.member_id
        if not is_leader:
            self.counts = None
        if not is_leader:
            return self._sync(joined, {})
        if joined.protocol_name not in self._assignors:
            self._joined = None
            self._report(error_of(KafkaError.INCONSISTENT_GROUP_PROTOCOL, f"{joined.protocol_name!r} was chosen"))
            return False
        topics = frozenset[str]().union(*(each.subscription.topics for each in candidates(joined)))
        return self._ask(CountPartitions(next(self._request_ids), topics))

    def _sync(self, joined: Joined, assignments: Mapping[str, bytes]) -> bool:
        request_id = next(self._request_ids)
        return self._ask(Sync(request_id, joined.node_id, self.member, joined.protocol_name, assignments))

    def _take_on(self, shares: frozenset[AnyPlace]) -> bool:
        if self._has_doubt:
            return False
        if self.owned - shares:
            return self._call(Revoke(self.owned - shares, is_lost=False))
        self._shares = None
        added = shares - self.owned
        return self._call(Assign(added)) if added or not self._is_cooperative else True

    def _beat(self, now_ms: int) -> None:
        if self._node_id is not None and self._is_beating and not self._is_stopped and self.heartbeats.is_due(now_ms):
            request_id = next(self._request_ids)
            self.heartbeats.sent(request_id, self.member.generation, now_ms)
            self._out.append(Heartbeat(request_id, self._node_id, self.member))


def candidates(joined: Joined) -> list[Candidate]:
    """The members that the coordinator told the leader of. Who cannot be understood wants nothing."""
    found = []
    for member_id, instance_id, metadata in joined.members:
        try:
            subscription = decode_subscription(metadata)
        except MalformedMessage:
            subscription = Subscription(frozenset())
        found.append(Candidate(member_id, instance_id, subscription))
    return found
