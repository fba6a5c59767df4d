"""Members that come, go, fall silent and hang up in any order: what holds for a group whatever happens.

Every joining client is a little machine that does what Kafka's clients do: joins, syncs (the leader shares out),
sends heartbeats, and joins again when told to. Hypothesis chooses who acts, when time passes and how the disk fares.
"""

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

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
from oncelog.server.groups.state import State

SESSION_MS = 10_000
REBALANCE_MS = 20_000
DELAY_MS = 3_000
# Joins wait for one join phase, syncs for one sync phase; one more session may have to end first.
LONGEST_WAIT_MS = 2 * (REBALANCE_MS + SESSION_MS + DELAY_MS)
LIMITS = GroupLimits(initial_rebalance_delay_ms=DELAY_MS, max_members=5, new_member_join_timeout_ms=30_000)
CLIENTS = st.sampled_from([f"c{n}" for n in range(5)])
STATIC = {"c3": "s3", "c4": "s4"}


class Client:
    def __init__(self, name: str) -> None:
        self.name = name
        self.instance_id = STATIC.get(name)
        self.member_id = ""
        self.generation = -1
        self.waiter: object | None = None
        self.waiting_since_ms = 0
        self.next = "join"
        self.members: tuple[str, ...] = ()
        self.share: bytes | None = None


class GroupUnderAnyEvents(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.group = Group("g", LIMITS, self.clock.now())
        self.clients = {f"c{n}": Client(f"c{n}") for n in range(5)}
        self.waiters: dict[object, Client] = {}
        self.births = 0
        self.generation = 0
        self.leaders: dict[int, set[str]] = {}
        self.decided: dict[int, dict[str, bytes]] = {}
        self.unstored: list[Assigned | Replaced] = []
        self.stored: StoredGroup | None = None
        self.disk_is_slow = False

    # What clients do

    @rule(name=CLIENTS)
    def act(self, name: str) -> None:
        client = self.clients[name]
        if client.waiter is None:
            {"join": self._join, "sync": self._sync, "beat": self._beat}[client.next](client)

    @rule(names=st.permutations([f"c{n}" for n in range(5)]), rounds=st.integers(1, 4), absent=st.integers(0, 4))
    def some_act_in_turn(self, names: list[str], rounds: int, absent: int) -> None:
        """What mostly happens: those who are there do what they are told to, and time goes on a little."""
        for _ in range(rounds):
            for name in names[absent:]:
                self.act(name)
            self.time_passes(1_500)

    @rule(name=CLIENTS)
    def restart(self, name: str) -> None:
        """The process dies: its connection ends, its memory is gone."""
        client = self.clients[name]
        self._hang_up(client)
        self.clients[name] = Client(name)

    @rule(name=CLIENTS)
    def hang_up(self, name: str) -> None:
        """The connection breaks, and the client asks again by a new one."""
        self._hang_up(self.clients[name])

    @rule(name=CLIENTS)
    def leave(self, name: str) -> None:
        """By itself, or sent away by an administrator while it waits."""
        client = self.clients[name]
        if client.member_id:
            leaving = Leaving(member_id=client.member_id, instance_id=client.instance_id)
            _, effects = self.group.leave([leaving], self.clock.now())
            self.clients[name] = Client(name)
            self._carry_out(effects)

    @rule(ms=st.sampled_from([1, 500, 2_999, 3_000, 5_000, 10_000, 25_000]))
    def time_passes(self, ms: int) -> None:
        end_ms = self.clock.now().monotonic_ms + ms
        while self.group.wake_ms is not None and self.group.wake_ms <= end_ms:
            before = self.clock.now().monotonic_ms
            self.clock.advance(max(self.group.wake_ms - before, 0))
            self._carry_out(self.group.tick(self.clock.now()))
        self.clock.advance(end_ms - self.clock.now().monotonic_ms)

    @rule(is_slow=st.booleans())
    def the_disk_changes(self, is_slow: bool) -> None:
        self.disk_is_slow = is_slow

    @precondition(lambda self: self.unstored)
    @rule(error=st.sampled_from([ErrorCode.none, ErrorCode.none, ErrorCode.not_coordinator]))
    def the_disk_answers(self, error: ErrorCode) -> None:
        pending = self.unstored.pop(0)
        self._carry_out(self.group.stored(pending, error, self.clock.now()))

    @precondition(lambda self: self.stored is not None)
    @rule()
    def the_server_restarts(self) -> None:
        """Everybody's connection is gone; the group is what was stored last."""
        assert self.stored is not None
        for client in self.clients.values():
            client.waiter = None
        self.waiters.clear()
        self.unstored.clear()
        self.group = Group.restore("g", self.stored, LIMITS, self.clock.now())
        self.generation = self.stored.generation
        for generation in [each for each in self.leaders if each > self.generation]:
            del self.leaders[generation]  # it had begun but was not stored, so it may begin again
            self.decided.pop(generation, None)

    # What must hold

    @invariant()
    def generations_only_grow(self) -> None:
        assert self.group.generation >= self.generation
        self.generation = self.group.generation

    @invariant()
    def a_generation_has_one_leader(self) -> None:
        assert all(len(names) == 1 for names in self.leaders.values())
        if self.group.state in (State.COMPLETING_REBALANCE, State.STABLE):
            assert self.group.leader in self.group.members

    @invariant()
    def nobody_waits_for_ever(self) -> None:
        now_ms = self.clock.now().monotonic_ms
        for client in self.waiters.values():
            is_on_disk = any(isinstance(each, Replaced) for each in self.unstored) or (
                self.unstored and client.next == "sync"
            )
            assert is_on_disk or now_ms - client.waiting_since_ms <= LONGEST_WAIT_MS

    @invariant()
    def the_group_knows_who_waits(self) -> None:
        waiting = [m.join_waiter for m in self.group.members] + [m.sync_waiter for m in self.group.members]
        assert Counter(each for each in waiting if each is not None) == Counter(self.waiters.keys())
        assert self.group.members.joining == sum(m.join_waiter is not None for m in self.group.members)

    @invariant()
    def somebody_will_be_woken(self) -> None:
        """By a deadline, or by the disk."""
        if (len(self.group.members) or self.group.has_pending_ids) and not self.unstored:
            assert self.group.wake_ms is not None

    @invariant()
    def the_states_fit_the_members(self) -> None:
        if self.group.state is State.EMPTY:
            assert not self.group.members
        if self.group.state in (State.COMPLETING_REBALANCE, State.STABLE):
            assert self.group.members
            assert all(self.group.protocol_name in member.protocols for member in self.group.members)
        assert len(self.group.members) <= LIMITS.max_members or self.group.state is State.PREPARING_REBALANCE

    # Below

    def _join(self, client: Client) -> None:
        if not client.member_id:
            self.births += 1
        request = JoinRequest(
            member_id=client.member_id,
            fresh_id=f"{client.name}-{self.births}",
            protocol_type="consumer",
            protocols=(("range", b"\0\0\0\0\0\0"),),
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            instance_id=client.instance_id,
            needs_known_id=client.name != "c0",
            may_skip_assignment=client.name == "c3",
        )
        waiter = self._wait(client)
        self._carry_out(self.group.join(request, waiter, self.clock.now()))

    def _sync(self, client: Client) -> None:
        shares = {member_id: f"{client.generation}:{member_id}".encode() for member_id in client.members}
        if client.members and client.generation == self.group.generation and client.member_id == self.group.leader:
            self.decided.setdefault(client.generation, shares)
        request = SyncRequest(
            member_id=client.member_id,
            generation=client.generation,
            instance_id=client.instance_id,
            assignments=shares,
        )
        waiter = self._wait(client)
        self._carry_out(self.group.sync(request, waiter, self.clock.now()))

    def _beat(self, client: Client) -> None:
        error = self.group.heartbeat(client.member_id, client.instance_id, client.generation, self.clock.now())
        self._heed(client, error)

    def _wait(self, client: Client) -> object:
        client.waiter = waiter = object()
        client.waiting_since_ms = self.clock.now().monotonic_ms
        self.waiters[waiter] = client
        return waiter

    def _hang_up(self, client: Client) -> None:
        if client.waiter is not None:
            del self.waiters[client.waiter]
            waiter, client.waiter = client.waiter, None
            self._carry_out(self.group.abandon(waiter, self.clock.now()))

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Answer):
                client = self.waiters.pop(effect.waiter)  # a second answer, or one to nobody, fails here
                client.waiter = None
                self._answered(client, effect.answer)
                continue
            if effect.pending is None:
                self.stored = effect.group
            elif self.disk_is_slow:
                self.unstored.append(effect.pending)
            else:
                self.stored = effect.group
                self._carry_out(self.group.stored(effect.pending, ErrorCode.none, self.clock.now()))

    def _answered(self, client: Client, answer: JoinAnswer | SyncAnswer) -> None:
        if answer.error is not ErrorCode.none:
            if isinstance(answer, JoinAnswer) and answer.error is ErrorCode.member_id_required:
                client.member_id = answer.member_id
                client.next = "join"
            else:
                self._heed(client, answer.error)
        elif isinstance(answer, JoinAnswer):
            client.member_id, client.generation = answer.member_id, answer.generation
            client.next = "sync"
            leads = answer.leader == answer.member_id and not answer.skip_assignment
            client.members = tuple(member.member_id for member in answer.members) if leads else ()
            if answer.members and leads:
                self.leaders.setdefault(answer.generation, set()).add(answer.member_id)
                assert answer.member_id in client.members
        else:
            client.next = "beat"
            client.share = answer.assignment
            self._check_share(client, answer.assignment)

    def _check_share(self, client: Client, share: bytes) -> None:
        """Exactly what the leader of this generation decided for it; a static member inherits its predecessor's."""
        decided = self.decided.get(client.generation, {})
        if client.instance_id is None:
            assert share == decided[client.member_id]
        else:
            owned = {value for owner, value in decided.items() if owner.startswith(client.name)}
            assert share in owned

    def _heed(self, client: Client, error: ErrorCode) -> None:
        if error in (ErrorCode.unknown_member_id, ErrorCode.fenced_instance_id):
            client.member_id, client.generation = "", -1
            client.next = "join"
        elif error is not ErrorCode.none:
            client.next = "join"
            if error is ErrorCode.group_max_size_reached:
                client.member_id, client.generation = "", -1


TestGroupUnderAnyEvents = GroupUnderAnyEvents.TestCase
TestGroupUnderAnyEvents.settings = settings(stateful_step_count=50)
