"""The classic protocol over connections: what a `Membership` asks, and what it is told then.

A join may wait for minutes at the broker, which holds back what follows on the same connection; so joins and syncs have
a connection of their own, and heartbeats another, apart from the one that fetches.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from oncelog.client.groups.assignors import ASSIGNORS
from oncelog.client.groups.membership import Membership
from oncelog.client.groups.membership_steps import (
    CountPartitions,
    Heartbeat,
    Join,
    Joined,
    Leave,
    MemberLimits,
    Request,
    Sync,
)
from oncelog.wire.requests import RequestSchema

if TYPE_CHECKING:
    from oncelog.client.net.brokers import Brokers
    from oncelog.client.properties import ConsumerSettings

Build = Callable[[RequestSchema], Any]

JOIN_VERSIONS: Final = (2, 9)
SYNC_VERSIONS: Final = (1, 5)
HEARTBEAT_VERSIONS: Final = (1, 4)
LEAVE_VERSIONS: Final = (1, 5)
JOINING: Final = "join"
BEATING: Final = "group"
# How much longer than the group's own time for a rebalance a join is waited for, as Java's client does.
JOIN_SLACK_MS: Final = 5000
REASON_CHARACTERS: Final = 255  # Kafka refuses longer ones


class ClassicRequests:
    def __init__(
        self,
        settings: "ConsumerSettings",
        brokers: "Brokers",
        limits: MemberLimits,
        now_ms: Callable[[], int],
        random: Callable[[], float],
    ) -> None:
        assignors = [ASSIGNORS[name] for name in settings.partition_assignment_strategy]
        self.machine = Membership(limits, assignors, random)
        self._settings = settings
        self._brokers = brokers
        self._now_ms = now_ms
        self._watched: frozenset[str] = frozenset()

    async def ask(self, action: Request) -> None:
        await _ASK[type(action)](self, action)

    async def _join(self, action: Join) -> None:
        settings = self._settings

        def build(spoken: RequestSchema) -> Any:
            protocols = tuple(
                spoken.new("JoinGroupRequestProtocol", name=name, metadata=metadata)
                for name, metadata in action.protocols
            )
            return spoken.new(
                "JoinGroupRequest",
                group_id=settings.group_id,
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
        self.machine.joined(action.request_id, joined, self._now_ms())

    async def _count(self, action: CountPartitions) -> None:
        self._watched = action.topics
        await self._brokers.refresh(action.topics)
        self.machine.counted(action.request_id, self._counts())

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
                group_id=self._settings.group_id,
                generation_id=action.member.generation,
                member_id=action.member.member_id,
                group_instance_id=action.member.instance_id,
                protocol_type=self._settings.group_protocol_type,
                protocol_name=action.protocol_name,
                assignments=shares,
            )

        answer = await self._ask_and_wait(action.node_id, "sync_group", build, SYNC_VERSIONS)
        self.machine.synced(action.request_id, int(answer.error_code), answer.assignment, self._now_ms())

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
                group_id=self._settings.group_id,
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
        self.machine.beaten(action.request_id, int(answer.error_code), self._now_ms())
        if self.machine.counts is not None and self.machine.is_steady:
            self.machine.partitions_counted(self._counts())

    async def _leave(self, action: Leave) -> None:
        group_id = self._settings.group_id

        def build(spoken: RequestSchema) -> Any:
            reason = action.reason[:REASON_CHARACTERS]
            if spoken.version < 3:
                return spoken.new("LeaveGroupRequest", group_id=group_id, member_id=action.member_id)
            member = spoken.new("MemberIdentity", member_id=action.member_id, group_instance_id=None, reason=reason)
            return spoken.new("LeaveGroupRequest", group_id=group_id, members=(member,))

        await self._brokers.request(action.node_id, "leave_group", build, versions=LEAVE_VERSIONS, purpose=BEATING)
        self.machine.left(action.request_id)


_ASK: Final[dict[type, Callable[[ClassicRequests, Any], Awaitable[None]]]] = {
    Join: ClassicRequests._join,
    CountPartitions: ClassicRequests._count,
    Sync: ClassicRequests._sync,
    Heartbeat: ClassicRequests._beat,
    Leave: ClassicRequests._leave,
}
