"""KIP-848 over connections: what a `ConsumerMembership` asks, and what it is told then.

A broker answers heartbeats at once. They have a connection of their own, apart from the one that fetches.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from oncelog.client.groups.consumer_membership import ConsumerMembership
from oncelog.client.groups.membership_steps import Beat, Beaten, FindNames, Leave, MemberLimits, Place, Request
from oncelog.wire.requests import RequestSchema

if TYPE_CHECKING:
    from oncelog.client.net.brokers import Brokers
    from oncelog.client.properties import ConsumerSettings

BEAT_VERSIONS: Final = (1, 1)  # before, members did not choose their ids, and there were no patterns
BEATING: Final = "group"
LEAVES: Final = -1
LEAVES_FOR_A_WHILE: Final = -2  # a static member, whose partitions wait for it
AS_BEFORE: Final = timedelta(milliseconds=-1)
MS: Final = timedelta(milliseconds=1)
# How long an answer is waited for. A session is several heartbeats long, which is all that is known of it here.
PATIENCE_BEATS: Final = 3
PATIENCE_MS: Final = 10_000


class ConsumerRequests:
    def __init__(
        self,
        settings: "ConsumerSettings",
        brokers: "Brokers",
        limits: MemberLimits,
        now_ms: Callable[[], int],
        random: Callable[[], float],
    ) -> None:
        self.machine = ConsumerMembership(limits, str(uuid4()), random)
        self._settings = settings
        self._brokers = brokers
        self._now_ms = now_ms

    async def ask(self, action: Request) -> None:
        if isinstance(action, Beat):
            await self._beat(action)
        elif isinstance(action, FindNames):
            await self._find_names(action)
        elif isinstance(action, Leave):
            await self._leave(action)

    async def _beat(self, action: Beat) -> None:
        settings, wanted = self._settings, action.wanted

        def build(spoken: RequestSchema) -> Any:
            return spoken.new(
                "ConsumerGroupHeartbeatRequest",
                group_id=settings.group_id,
                member_id=action.member_id,
                member_epoch=action.epoch,
                instance_id=settings.group_instance_id,
                rack_id=settings.client_rack or None if action.is_whole else None,
                rebalance_timeout=settings.max_poll_interval_ms * MS if action.is_whole else AS_BEFORE,
                subscribed_topic_names=None if wanted is None else tuple(sorted(wanted.topics)),
                subscribed_topic_regex=None if wanted is None else wanted.pattern,
                server_assignor=settings.group_remote_assignor if action.is_whole else None,
                topic_partitions=None if action.owned is None else _topic_partitions(action.owned, spoken),
            )

        timeout_ms = min(settings.socket_timeout_ms, max(PATIENCE_BEATS * self.machine.interval_ms, PATIENCE_MS))
        answer = await self._heartbeat(action.node_id, build, timeout_ms)
        assignment = None if answer.assignment is None else answer.assignment.topic_partitions
        beaten = Beaten(
            int(answer.error_code),
            answer.error_message,
            int(answer.member_epoch),
            answer.heartbeat_interval // MS,
            None if assignment is None else _places(assignment),
        )
        self.machine.beaten(action.request_id, beaten, self._now_ms())

    async def _leave(self, action: Leave) -> None:
        settings = self._settings
        epoch = LEAVES if settings.group_instance_id is None else LEAVES_FOR_A_WHILE

        def build(spoken: RequestSchema) -> Any:
            return spoken.new(
                "ConsumerGroupHeartbeatRequest",
                group_id=settings.group_id,
                member_id=action.member_id,
                member_epoch=epoch,
                instance_id=settings.group_instance_id,
                topic_partitions=None,
            )

        answer = await self._heartbeat(action.node_id, build, settings.socket_timeout_ms)
        self.machine.left(action.request_id, int(answer.error_code))

    async def _heartbeat(self, node_id: int, build: Callable[[RequestSchema], Any], timeout_ms: int) -> Any:
        return await self._brokers.request(
            node_id,
            "consumer_group_heartbeat",
            build,
            versions=BEAT_VERSIONS,
            timeout_ms=timeout_ms,
            purpose=BEATING,
        )

    async def _find_names(self, action: FindNames) -> None:
        """Most often they are known already."""
        if not action.topic_ids <= self._brokers.metadata.names.keys():
            await self._brokers.refresh(action.topic_ids)
        names = self._brokers.metadata.names
        found = {topic_id: names[topic_id] for topic_id in action.topic_ids if topic_id in names}
        self.machine.named(action.request_id, found, self._now_ms())


def _topic_partitions(places: frozenset[Place], spoken: RequestSchema) -> tuple[Any, ...]:
    by_topic: dict[Any, list[int]] = {}
    for topic_id, index in sorted(places):
        by_topic.setdefault(topic_id, []).append(index)
    return tuple(
        spoken.new("TopicPartitions", topic_id=topic_id, partitions=tuple(indexes))
        for topic_id, indexes in by_topic.items()
    )


def _places(topics: Any) -> frozenset[Place]:
    return frozenset((each.topic_id, int(index)) for each in topics if each.topic_id for index in each.partitions)
