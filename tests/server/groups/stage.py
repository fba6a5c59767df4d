"""A group on a stage: actors with names speak to the pure state machine, and what it does is told in plain lines.

Actors remember what a real client remembers: their member id and their generation. Time stands still until `wait`,
and then the group is woken exactly when it asked to be.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from oncelog.clock import ManualClock
from oncelog.server.errors import ErrorCode
from oncelog.server.groups.group import Group
from oncelog.server.groups.messages import (
    Answer,
    Assigned,
    Effect,
    GroupLimits,
    JoinAnswer,
    JoinRequest,
    Leaving,
    Replaced,
    StoredGroup,
    SyncAnswer,
    SyncRequest,
)


@dataclass(slots=True)
class Actor:
    name: str
    member_id: str = ""
    generation: int = -1
    instance_id: str | None = None
    births: int = 0
    waiting: str | None = None
    joins_sent: int = 0


@dataclass(slots=True)
class Ask:
    """What a waiter is: who asked, and what."""

    actor: Actor
    what: str
    number: int = 0

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other


@dataclass(slots=True)
class Stage:
    limits: GroupLimits = field(default_factory=GroupLimits)
    clock: ManualClock = field(default_factory=ManualClock)
    disk: str = "ok"  # ok, slow, or the name of an error
    lines: list[str] = field(default_factory=list)
    stored: list[StoredGroup] = field(default_factory=list)
    unstored: list[Assigned | Replaced] = field(default_factory=list)
    actors: dict[str, Actor] = field(default_factory=dict)
    asks: dict[str, Ask] = field(default_factory=dict)
    group: Group = field(init=False)

    def __post_init__(self) -> None:
        self.group = Group("g", self.limits, self.clock.now())

    def actor(self, name: str) -> Actor:
        return self.actors.setdefault(name, Actor(name))

    # What actors do

    def join(
        self,
        name: str,
        *,
        protocols: Iterable[tuple[str, bytes]] = (("range", b""),),
        protocol_type: str = "consumer",
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
        instance_id: str | None = None,
        version: int = 4,
    ) -> None:
        actor = self.actor(name)
        actor.instance_id = instance_id or actor.instance_id
        if not actor.member_id:
            actor.births += 1
        request = JoinRequest(
            member_id=actor.member_id,
            fresh_id=f"{name}{actor.births}",
            protocol_type=protocol_type,
            protocols=tuple(protocols),
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            instance_id=actor.instance_id,
            client_id=name,
            needs_known_id=version >= 4,
            may_skip_assignment=version >= 9,
        )
        ask = self._ask(actor, "join")
        self._carry_out(self.group.join(request, ask, self.clock.now()))
        if actor.waiting is None and self.lines[-1].endswith(f"member_id_required, is {actor.member_id}"):
            ask = self._ask(actor, "join")
            again = replace(request, member_id=actor.member_id)
            self._carry_out(self.group.join(again, ask, self.clock.now()))
        if actor.waiting == "join":
            self._say(f"{name} waits to join")

    def sync(self, name: str, assignments: dict[str, str] | None = None) -> None:
        actor = self.actor(name)
        shares = {self.actor(other).member_id: share.encode() for other, share in (assignments or {}).items()}
        request = SyncRequest(
            member_id=actor.member_id,
            generation=actor.generation,
            instance_id=actor.instance_id,
            assignments=shares,
        )
        self._carry_out(self.group.sync(request, self._ask(actor, "sync"), self.clock.now()))
        if actor.waiting == "sync":
            self._say(f"{name} waits for its share")

    def heartbeat(self, *names: str) -> None:
        for name in names:
            actor = self.actor(name)
            error = self.group.heartbeat(actor.member_id, actor.instance_id, actor.generation, self.clock.now())
            self._say(f"{name} heartbeat: {'ok' if error is ErrorCode.none else error.name}")

    def commit(self, name: str) -> None:
        actor = self.actor(name)
        error = self.group.check_commit(actor.member_id, actor.instance_id, actor.generation, self.clock.now())
        self._say(f"{name} commit: {'ok' if error is ErrorCode.none else error.name}")

    def leave(self, *names: str) -> None:
        leavings = [Leaving(member_id=self.actor(name).member_id) for name in names]
        self._leave(leavings, names)

    def remove_instances(self, *instance_ids: str) -> None:
        self._leave([Leaving(member_id="", instance_id=each) for each in instance_ids], instance_ids)

    def _leave(self, leavings: list[Leaving], names: Iterable[str]) -> None:
        left, effects = self.group.leave(leavings, self.clock.now())
        for name, each in zip(names, left, strict=True):
            self._say(f"{name} left" if each.error is ErrorCode.none else f"{name} cannot leave: {each.error.name}")
        self._carry_out(effects)

    def hang_up(self, name: str) -> None:
        actor = self.actor(name)
        ask = self.asks.pop(name)
        actor.waiting = None
        self._say(f"{name} hung up")
        self._carry_out(self.group.abandon(ask, self.clock.now()))

    def restart_client(self, name: str) -> None:
        """A process that lost its memory: the member id is gone, an instance id is configuration and stays."""
        actor = self.actor(name)
        actor.member_id, actor.generation, actor.waiting = "", -1, None

    # Time and disk

    def wait(self, ms: int) -> None:
        """Woken at each moment that the group asked for, never in between."""
        end_ms = self.clock.now().monotonic_ms + ms
        while True:
            wake_ms = self.group.wake_ms
            now_ms = self.clock.now().monotonic_ms
            if wake_ms is None or wake_ms > end_ms:
                break
            self.clock.advance(max(wake_ms - now_ms, 0))
            self._carry_out(self.group.tick(self.clock.now()))
        self.clock.advance(end_ms - self.clock.now().monotonic_ms)

    def settle_disk(self) -> None:
        """What waited for a slow disk is stored now."""
        waiting, self.unstored = self.unstored, []
        for pending in waiting:
            self._carry_out(self.group.stored(pending, ErrorCode.none, self.clock.now()))

    # What comes back

    def _ask(self, actor: Actor, what: str) -> Ask:
        actor.joins_sent += 1
        ask = Ask(actor, what, actor.joins_sent)
        actor.waiting = what
        self.asks[actor.name] = ask
        return ask

    def _carry_out(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Answer):
                assert isinstance(effect.waiter, Ask)
                self._answered(effect.waiter, effect.answer)
            elif self.disk == "ok":
                self.stored.append(effect.group)
                if effect.pending is not None:
                    self._carry_out(self.group.stored(effect.pending, ErrorCode.none, self.clock.now()))
            elif effect.pending is not None and self.disk == "slow":
                self.unstored.append(effect.pending)
            elif effect.pending is not None:
                self._carry_out(self.group.stored(effect.pending, ErrorCode[self.disk], self.clock.now()))

    def _answered(self, ask: Ask, answer: JoinAnswer | SyncAnswer) -> None:
        actor = ask.actor
        if self.asks.get(actor.name) is ask:
            actor.waiting = None
            del self.asks[actor.name]
        if isinstance(answer, JoinAnswer):
            self._joined(actor, answer)
        elif answer.error is ErrorCode.none:
            self._say(f"{actor.name} gets {answer.assignment.decode() or 'nothing'}")
        else:
            self._say(f"{actor.name} sync: {answer.error.name}")

    def _joined(self, actor: Actor, answer: JoinAnswer) -> None:
        if answer.error is ErrorCode.member_id_required:
            actor.member_id = answer.member_id
            self._say(f"{actor.name} join: member_id_required, is {answer.member_id}")
            return
        if answer.error is not ErrorCode.none:
            if answer.error in (ErrorCode.unknown_member_id, ErrorCode.fenced_instance_id):
                actor.generation = -1
                if answer.error is ErrorCode.unknown_member_id:
                    actor.member_id = ""
            self._say(f"{actor.name} join: {answer.error.name}")
            return
        actor.member_id, actor.generation = answer.member_id, answer.generation
        led = ", ".join(member.member_id for member in answer.members)
        role = f"leads {led}" if answer.members else f"follows {answer.leader}"
        skip = ", skips the assignment" if answer.skip_assignment else ""
        place = f"{actor.name} is {answer.member_id} in generation {answer.generation}"
        self._say(f"{place}, {role}, {answer.protocol_name}{skip}")

    def _say(self, line: str) -> None:
        self.lines.append(line)

    def show(self) -> None:
        ids = ", ".join(member.member_id for member in self.group.members) or "nobody"
        self._say(f"{self.group.state.value}, generation {self.group.generation}: {ids}")

    def told(self) -> list[str]:
        """What happened since this was last asked."""
        lines, self.lines = self.lines, []
        return lines
