"""A member of a group over real connections: what `Membership` wants done is done, and it is told what came of it.

A join may wait for minutes at the broker, which holds back what follows on the same connection; so joins and syncs have
a connection of their own, and heartbeats another, apart from the one that fetches.
"""

import asyncio
import contextlib
import logging
import random as chance
from collections.abc import Awaitable, Callable, Collection
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Protocol

from oncelog.client.errors import KafkaError, KafkaException, error_of
from oncelog.client.groups.assignors import ASSIGNORS
from oncelog.client.groups.membership import ID_GIVEN, Membership
from oncelog.client.groups.membership_steps import (
    Action,
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
from oncelog.client.groups.protocol import Partition
from oncelog.client.net.tasks import Tasks
from oncelog.clock import monotonic_s
from oncelog.wire.requests import RequestSchema

if TYPE_CHECKING:
    from oncelog.client.net.brokers import Brokers
    from oncelog.client.properties import ConsumerSettings

_log: Final = logging.getLogger("oncelog.client")

Build = Callable[[RequestSchema], Any]
Request = FindCoordinator | Join | CountPartitions | Sync | Heartbeat | Leave

JOIN_VERSIONS: Final = (2, 9)
SYNC_VERSIONS: Final = (1, 5)
HEARTBEAT_VERSIONS: Final = (1, 4)
LEAVE_VERSIONS: Final = (1, 5)
JOINING: Final = "join"
BEATING: Final = "group"
# How much longer than the group's own time for a rebalance a join is waited for, as Java's client does.
JOIN_SLACK_MS: Final = 5000
LEAVE_PATIENCE_MS: Final = 5000
REASON_CHARACTERS: Final = 255  # Kafka refuses longer ones


class Listener(Protocol):
    """The application's side. Each is awaited before anything else happens, but for heartbeats."""

    async def revoked(self, partitions: frozenset[Partition], *, is_lost: bool) -> None: ...

    async def assigned(self, added: frozenset[Partition]) -> None: ...

    def failed(self, error: KafkaError) -> None: ...


def _now_ms() -> int:
    return int(monotonic_s() * 1000)


class Group:
    def __init__(
        self,
        settings: "ConsumerSettings",
        brokers: "Brokers",
        listener: Listener,
        *,
        now_ms: Callable[[], int] = _now_ms,
        random: Callable[[], float] = chance.random,
    ) -> None:
        if settings.group_id is None:
            raise KafkaException(KafkaError(KafkaError._UNKNOWN_GROUP, "Local: Unknown group: `group.id` is not set"))
        self.group_id = settings.group_id
        self._settings = settings
        self._brokers = brokers
        self._listener = listener
        self._now_ms = now_ms
        limits = MemberLimits(
            instance_id=settings.group_instance_id,
            session_timeout_ms=settings.session_timeout_ms,
            rebalance_timeout_ms=settings.max_poll_interval_ms,
            heartbeat_interval_ms=settings.heartbeat_interval_ms,
            retry_backoff_ms=settings.retry_backoff_ms,
            retry_backoff_max_ms=settings.retry_backoff_max_ms,
            rack=settings.client_rack,
        )
        assignors = [ASSIGNORS[name] for name in settings.partition_assignment_strategy]
        self._machine = Membership(limits, assignors, random)
        self._tasks = Tasks()
        self._asking: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._watched: frozenset[str] = frozenset()
        self._changed = asyncio.Event()
        self._is_advancing = False
        self.rebalances = 0  # how often partitions came or went, for statistics
        self.rebalanced_s = monotonic_s()
        self.rebalance_reason = ""

    # --- what the facade says

    @property
    def member(self) -> Member:
        return self._machine.member

    @property
    def assigned(self) -> frozenset[Partition]:
        return self._machine.owned

    @property
    def is_settled(self) -> bool:
        return self._machine.is_settled

    @property
    def coordinator(self) -> int | None:
        return self._machine.coordinator

    @property
    def fatal(self) -> KafkaError | None:
        return self._machine.fatal

    @property
    def thrown_out(self) -> KafkaError | None:
        """Why nothing may be committed now: the group has given away what was read."""
        return self._machine.thrown_out

    def subscribe(self, topics: Collection[str]) -> None:
        """Be a member that wants these; called again, one that wants others. None at all gives everything back."""
        self._machine.subscribe(topics, self._now_ms())
        self._advance()

    def polled(self) -> None:
        self._machine.polled(self._now_ms())
        self._advance()

    def refused(self, code: int, generation: int) -> None:
        self._machine.refused(code, generation, self._now_ms())
        self._advance()

    async def leave(self) -> None:
        """Gives everything back, says goodbye, and ends every task. A callback that does not return is not waited for
        longer than the group waits for it."""
        self._machine.leave()
        self._advance()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.max_poll_interval_ms / 1000):
                while not self._machine.is_out:
                    await self._changed.wait()
        await self._tasks.close()
        if self._timer is not None:
            self._timer.cancel()

    # --- what the machine wants

    def _advance(self) -> None:
        """Do what is to be done, until nothing is. A listener that is called here may call back meanwhile."""
        if self._is_advancing:
            return
        self._is_advancing = True
        try:
            while actions := self._machine.actions(self._now_ms()):
                for action in actions:
                    self._do(action)
        finally:
            self._is_advancing = False
        self._set_timer()
        self._changed.set()
        self._changed = asyncio.Event()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due_ms = self._machine.next_due_ms()
        if due_ms is not None:
            delay_s = max(due_ms - self._now_ms(), 0) / 1000
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._advance)

    def _do(self, action: Action) -> None:
        if isinstance(action, Report):
            self._listener.failed(action.error)
        elif isinstance(action, Revoke | Assign):
            self.rebalances += 1
            self.rebalanced_s = monotonic_s()
            self._tasks.begin(self._call(action))
        else:
            self._ask_soon(action)

    def _ask_soon(self, action: Request) -> None:
        if isinstance(action, Join) and action.reason != ID_GIVEN:
            self.rebalance_reason = action.reason
        is_in_course = not isinstance(action, Heartbeat)
        if is_in_course and self._asking is not None:
            self._asking.cancel()  # there is one at a time, so what is still waited for was given up
        task = self._tasks.begin(self._ask(action))
        if is_in_course:
            self._asking = task

    async def _call(self, action: Revoke | Assign) -> None:
        try:
            if isinstance(action, Revoke):
                await self._listener.revoked(action.partitions, is_lost=action.is_lost)
            else:
                await self._listener.assigned(action.partitions)
        except Exception as error:
            self._listener.failed(KafkaError(KafkaError._APPLICATION, f"a rebalance callback failed: {error!r}"))
        self._machine.application_done()
        self._advance()

    async def _ask(self, action: Request) -> None:
        try:
            await _ASK[type(action)](self, action)
        except KafkaException as failure:
            self._machine.failed(action.request_id, failure.error, self._now_ms())
        except Exception as unexpected:
            _log.exception("a group's %s failed unexpectedly", type(action).__name__)
            error = KafkaError(KafkaError._FAIL, f"{type(action).__name__}: {unexpected!r}")
            self._machine.failed(action.request_id, error, self._now_ms())
        if self._asking is asyncio.current_task():
            self._asking = None
        self._advance()

    async def _find(self, action: FindCoordinator) -> None:
        node_id = await self._brokers.coordinator(self.group_id)
        self._machine.coordinator_found(action.request_id, node_id)

    async def _join(self, action: Join) -> None:
        settings = self._settings

        def build(spoken: RequestSchema) -> Any:
            protocols = tuple(
                spoken.new("JoinGroupRequestProtocol", name=name, metadata=metadata)
                for name, metadata in action.protocols
            )
            return spoken.new(
                "JoinGroupRequest",
                group_id=self.group_id,
                session_timeout=timedelta(milliseconds=settings.session_timeout_ms),
                rebalance_timeout=timedelta(milliseconds=settings.max_poll_interval_ms),
                member_id=action.member_id,
                group_instance_id=settings.group_instance_id,
                protocol_type=settings.group_protocol_type,
                protocols=protocols,
                reason=action.reason[:REASON_CHARACTERS],
            )

        answer = await self._ask_and_wait(action.node_id, "join_group", build, JOIN_VERSIONS)
        joined = Joined(
            int(answer.error_code),
            int(answer.generation_id),
            answer.protocol_name or "",
            answer.leader,
            answer.member_id,
            bool(getattr(answer, "skip_assignment", False)),
            tuple((each.member_id, getattr(each, "group_instance_id", None), each.metadata) for each in answer.members),
        )
        self._machine.joined(action.request_id, joined, self._now_ms())

    async def _count(self, action: CountPartitions) -> None:
        self._watched = action.topics
        await self._brokers.refresh(action.topics)
        self._machine.counted(action.request_id, self._counts())

    def _counts(self) -> dict[str, int]:
        topics = self._brokers.metadata.topics
        return {
            name: len(topics[name].partitions) for name in self._watched if name in topics and topics[name].partitions
        }

    async def _sync(self, action: Sync) -> None:
        def build(spoken: RequestSchema) -> Any:
            shares = tuple(
                spoken.new("SyncGroupRequestAssignment", member_id=member_id, assignment=assignment)
                for member_id, assignment in action.assignments.items()
            )
            return spoken.new(
                "SyncGroupRequest",
                group_id=self.group_id,
                generation_id=action.member.generation,
                member_id=action.member.member_id,
                group_instance_id=action.member.instance_id,
                protocol_type=self._settings.group_protocol_type,
                protocol_name=action.protocol_name,
                assignments=shares,
            )

        answer = await self._ask_and_wait(action.node_id, "sync_group", build, SYNC_VERSIONS)
        self._machine.synced(action.request_id, int(answer.error_code), answer.assignment, self._now_ms())

    async def _ask_and_wait(self, node_id: int, name: str, build: Build, versions: tuple[int, int]) -> Any:
        """Given up, it takes its connection along: the broker would hold the next join back until this is answered."""
        connection = await self._brokers.connection(node_id, JOINING)
        timeout_ms = self._settings.max_poll_interval_ms + JOIN_SLACK_MS
        try:
            return await connection.request(name, build, versions=versions, timeout_ms=timeout_ms)
        except asyncio.CancelledError:
            connection.close()
            raise

    async def _beat(self, action: Heartbeat) -> None:
        def build(spoken: RequestSchema) -> Any:
            return spoken.new(
                "HeartbeatRequest",
                group_id=self.group_id,
                generation_id=action.member.generation,
                member_id=action.member.member_id,
                group_instance_id=action.member.instance_id,
            )

        answer = await self._brokers.request(
            action.node_id,
            "heartbeat",
            build,
            versions=HEARTBEAT_VERSIONS,
            timeout_ms=self._settings.session_timeout_ms,
            purpose=BEATING,
        )
        self._machine.beaten(action.request_id, int(answer.error_code), self._now_ms())
        if self._machine.counts is not None and self._machine.is_settled:
            self._machine.partitions_counted(self._counts())

    async def _leave(self, action: Leave) -> None:
        """Whatever is answered: who has left does not mind."""

        def build(spoken: RequestSchema) -> Any:
            reason = action.reason[:REASON_CHARACTERS]
            if spoken.version < 3:
                return spoken.new("LeaveGroupRequest", group_id=self.group_id, member_id=action.member_id)
            member = spoken.new("MemberIdentity", member_id=action.member_id, group_instance_id=None, reason=reason)
            return spoken.new("LeaveGroupRequest", group_id=self.group_id, members=(member,))

        try:
            async with asyncio.timeout(LEAVE_PATIENCE_MS / 1000):  # connecting included
                await self._brokers.request(
                    action.node_id, "leave_group", build, versions=LEAVE_VERSIONS, purpose=BEATING
                )
        except TimeoutError:
            raise KafkaException(error_of(KafkaError._TIMED_OUT)) from None
        self._machine.left(action.request_id)


_ASK: Final[dict[type, Callable[[Group, Any], Awaitable[None]]]] = {
    FindCoordinator: Group._find,
    Join: Group._join,
    CountPartitions: Group._count,
    Sync: Group._sync,
    Heartbeat: Group._beat,
    Leave: Group._leave,
}
