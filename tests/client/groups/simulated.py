"""A group in a world of its own: our members' state machines, our server's coordinator, a network that loses things,
and a clock that jumps from one event to the next. A history is a seed.

Two things are checked all the time: no partition is with two members at once, and a member is never given what it has.
The coordinator here is that of the classic protocol; `simulated_consumer.py` has KIP-848's.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from random import Random
from typing import Any

from oncelog.client.errors import KafkaError
from oncelog.client.groups.assignors import ASSIGNORS
from oncelog.client.groups.consumer_membership import ConsumerMembership
from oncelog.client.groups.membership import Membership
from oncelog.client.groups.membership_steps import (
    Assign,
    CountPartitions,
    FindCoordinator,
    Heartbeat,
    Join,
    Joined,
    Leave,
    MemberLimits,
    Report,
    Revoke,
    Sync,
)
from oncelog.server.errors import ErrorCode
from oncelog.server.groups.group import Group
from oncelog.server.groups.messages import (
    Answer,
    Assigned,
    GroupLimits,
    JoinAnswer,
    JoinRequest,
    Leaving,
    Replaced,
    SyncRequest,
)
from oncelog.slots import AnyPlace
from tests.model.events import Events

SESSION_MS = 2000
POLL_MS = 20_000
HANG_MS = 1500  # how long an answer that never comes is waited for
CUT = KafkaError(KafkaError._TRANSPORT, "cut", retriable=True)


@dataclass(eq=False)
class Sim:
    """One process with one member."""

    world: "World"
    name: str
    machine: Membership | ConsumerMembership
    topics: set[str] = field(default_factory=set)
    owned: set[AnyPlace] = field(default_factory=set)
    errors: list[KafkaError] = field(default_factory=list)
    is_dead: bool = False

    def run(self) -> None:
        """Do what the machine wants, and come back when it wants to be woken."""
        if self.is_dead:
            return
        world = self.world
        for action in self.machine.actions(world.now_ms):
            if isinstance(action, Report):
                self.errors.append(action.error)
            elif isinstance(action, Revoke | Assign):
                self._call(action)
            else:
                world.send(self, action)
        due_ms = self.machine.next_due_ms()
        if due_ms is not None:
            assert due_ms > world.now_ms, "it would be woken again at once, for nothing"
            world.at(due_ms, 0, self.run)

    def _call(self, action: Revoke | Assign) -> None:
        if isinstance(action, Assign):
            for partition in action.partitions:
                owner = self.world.owners.get(partition)
                is_free = owner is None or self.world.has_thrown_out(owner)
                assert is_free, f"{partition} is with {owner and owner.name}, given to {self.name}: {self.world.told()}"
                self.world.owners[partition] = self
            assert not action.partitions & self.owned
            self.owned |= action.partitions
        elif action.is_lost:
            self.give_up(action.partitions)
        self.world.at(self.world.now_ms + self.world.call_takes_ms(), 1, lambda: self._done(action))

    def _done(self, action: Revoke | Assign) -> None:
        if self.is_dead:
            return
        if isinstance(action, Revoke) and not action.is_lost:
            self.give_up(action.partitions)
        self.machine.application_done()
        self.run()

    def give_up(self, partitions: Any) -> None:
        for partition in list(partitions):
            if self.world.owners.get(partition) is self:
                del self.world.owners[partition]
            else:
                assert self.world.has_thrown_out(self)
            self.owned.discard(partition)

    def subscribe(self, topics: set[str], pattern: str = "") -> None:
        self.topics = topics
        self.machine.subscribe(topics, self.world.now_ms, pattern)

    def poll(self) -> None:
        if not self.is_dead:
            self.machine.polled(self.world.now_ms)
            self.run()
            self.world.at(self.world.now_ms + 1000, 1, self.poll)


@dataclass(eq=False)
class Waiter:
    member: Sim
    request_id: int


class World(Events, ABC):
    """Of what happens in the same millisecond, members' own timers come first, the coordinator's last."""

    def __init__(self, seed: int) -> None:
        super().__init__(1)
        self.chance = Random(seed)
        self.owners: dict[AnyPlace, Sim] = {}
        self.members: list[Sim] = []
        self.loses = 0.0  # how likely a request, or its answer, is lost
        self.lines: list[str] = []

    def told(self) -> str:
        return "\n".join(self.lines[-60:])

    @abstractmethod
    def machine(self, name: str, limits: MemberLimits) -> Membership | ConsumerMembership:
        """Of a new member."""

    @abstractmethod
    def arrives(self, member: Sim, action: Any) -> None:
        """At the coordinator."""

    def has_thrown_out(self, member: Sim) -> bool:
        """Whether what the member still has may be another's by now."""
        return False

    def call_takes_ms(self) -> int:
        return self.chance.choice((0, 1, 30))

    def comes(self, topics: set[str], instance_id: str | None = None, pattern: str = "") -> Sim:
        limits = MemberLimits(
            instance_id=instance_id,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=POLL_MS,
            heartbeat_interval_ms=300,
            retry_backoff_ms=20,
            retry_backoff_max_ms=200,
        )
        name = f"m{len(self.members)}"
        member = Sim(self, name, self.machine(name, limits))
        self.members.append(member)
        member.subscribe(topics, pattern)
        member.poll()
        return member

    def dies(self, member: Sim) -> None:
        """Killed: its partitions are free at once, and nobody is told."""
        member.is_dead = True
        member.give_up(member.owned)
        self.lines.append(f"{self.now_ms} {member.name} dies")

    # --- the network

    def send(self, member: Sim, action: Any) -> None:
        self.lines.append(f"{self.now_ms} {member.name} {type(action).__name__} {getattr(action, 'reason', '')}")
        if self.chance.random() < self.loses:
            self._fail(member, action.request_id)
        else:
            self.at(self.now_ms + self.chance.randint(0, 5), 1, lambda: self.arrives(member, action))

    def answer(self, member: Sim, request_id: int, tell: Any) -> None:
        if self.chance.random() < self.loses:
            self._fail(member, request_id)
            return

        def told() -> None:
            if not member.is_dead:
                tell()
                member.run()

        self.at(self.now_ms + self.chance.randint(0, 5), 1, told)

    def _fail(self, member: Sim, request_id: int) -> None:
        pause_ms = self.chance.choice((0, 10, HANG_MS))

        def told() -> None:
            if not member.is_dead:
                member.machine.failed(request_id, CUT, self.now_ms)
                member.run()

        self.at(self.now_ms + pause_ms, 1, told)


class ClassicWorld(World):
    def __init__(self, seed: int, assignors: tuple[str, ...], topics: dict[str, int]) -> None:
        super().__init__(seed)
        self.topics = topics
        self.assignors = assignors
        limits = GroupLimits(min_session_timeout_ms=1, initial_rebalance_delay_ms=0)
        self.group = Group("g", limits, self.now)

    def machine(self, name: str, limits: MemberLimits) -> Membership:
        return Membership(limits, [ASSIGNORS[name] for name in self.assignors], self.chance.random)

    def arrives(self, member: Sim, action: Any) -> None:
        machine, request_id, now = member.machine, action.request_id, self.now
        assert isinstance(machine, Membership)
        if isinstance(action, FindCoordinator):
            self.answer(member, request_id, lambda: machine.coordinator_found(request_id, 1))
        elif isinstance(action, CountPartitions):
            counts = {topic: self.topics[topic] for topic in action.topics if topic in self.topics}
            self.answer(member, request_id, lambda: machine.counted(request_id, counts))
        elif isinstance(action, Heartbeat):
            who = action.member
            error = self.group.heartbeat(who.member_id, who.instance_id, who.generation, now)
            self.answer(member, request_id, lambda: machine.beaten(request_id, int(error), self.now_ms))
        elif isinstance(action, Leave):
            _, effects = self.group.leave([Leaving(member_id=action.member_id)], now)
            self._carry_out(effects)
            self.answer(member, request_id, lambda: machine.left(request_id))
        elif isinstance(action, Join):
            self._carry_out(self.group.join(self._join_request(member, action), Waiter(member, request_id), now))
        elif isinstance(action, Sync):
            self._carry_out(self.group.sync(self._sync_request(action), Waiter(member, request_id), now))
        self._set_alarm()

    def _join_request(self, member: Sim, action: Join) -> JoinRequest:
        return JoinRequest(
            member_id=action.member_id,
            fresh_id=f"{member.name}-{action.request_id}",
            protocol_type="consumer",
            protocols=action.protocols,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=POLL_MS,
            instance_id=member.machine.limits.instance_id,
            needs_known_id=True,
            may_skip_assignment=True,
        )

    def _sync_request(self, action: Sync) -> SyncRequest:
        who = action.member
        return SyncRequest(
            member_id=who.member_id,
            generation=who.generation,
            instance_id=who.instance_id,
            assignments=action.assignments,
        )

    def _carry_out(self, effects: Any) -> None:
        for effect in effects:
            if isinstance(effect, Answer):
                self._answered(effect.waiter, effect.answer)
            elif isinstance(effect.pending, Assigned | Replaced):
                self._carry_out(self.group.stored(effect.pending, ErrorCode.none, self.now))

    def _answered(self, waiter: Any, answer: Any) -> None:
        member, request_id = waiter.member, waiter.request_id
        if isinstance(answer, JoinAnswer):
            joined = Joined(
                int(answer.error),
                answer.generation,
                answer.protocol_name or "",
                answer.leader,
                answer.member_id,
                answer.skip_assignment,
                tuple((each.member_id, each.instance_id, each.metadata) for each in answer.members),
            )
            self.answer(member, request_id, lambda: member.machine.joined(request_id, joined, self.now_ms))
        else:
            error, assignment = int(answer.error), answer.assignment
            self.answer(member, request_id, lambda: member.machine.synced(request_id, error, assignment, self.now_ms))

    def _set_alarm(self) -> None:
        wake_ms = self.group.wake_ms
        if wake_ms is not None:
            self.at(max(wake_ms, self.now_ms), 2, self._tick)

    def _tick(self) -> None:
        if self.group.wake_ms is not None and self.group.wake_ms <= self.now_ms:
            self._carry_out(self.group.tick(self.now))
            self._set_alarm()
