"""The group coordinator: brings requests, timers and the disk to the groups, and their answers back.

A group is a pure state machine (`group.py`); here its waiters are futures, its wake-up times are alarms, and what it
wants to have stored is appended to `__consumer_offsets` before anyone hears of it. A request that must wait is
answered by a future; when the client hangs up the future is cancelled, and the group is told.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Generator, Iterable, Mapping
from itertools import chain
from typing import TypeVar

from oncelog.clock import MINUTE_MS, Clock, Now
from oncelog.log.work_steps import Pauses, Steps, at_once
from oncelog.server.alarms import Alarms, CallLater, InTurns, TimerHandle
from oncelog.server.coordinator_topic import KeyValue
from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.groups.consumer.coordinator import ConsumerGroups
from oncelog.server.groups.consumer.group import ConsumerGroup
from oncelog.server.groups.effect_telling import are_many, once_settled, telling
from oncelog.server.groups.forgetting import REMOVED_AT_A_TIME, Forgetting
from oncelog.server.groups.group import Group
from oncelog.server.groups.in_transactions import CommitsInTransactions
from oncelog.server.groups.limits import limits_of
from oncelog.server.groups.messages import (
    MEMBER_BYTES,
    Answer,
    Effect,
    JoinAnswer,
    JoinRequest,
    Leaving,
    Left,
    SyncAnswer,
    SyncRequest,
)
from oncelog.server.groups.moves import GroupMemory
from oncelog.server.groups.offsets import TopicPartition
from oncelog.server.groups.records import CommittedOffset
from oncelog.server.groups.store import AnyGroup, GroupStore, Settled
from oncelog.server.groups.storing import Storing
from oncelog.server.moves import Moves
from oncelog.server.names import MOST_ID_CHARACTERS
from oncelog.server.settings import Settings
from oncelog.server.topics import Partition, Topic, Topics

logger = logging.getLogger(__name__)

MEMBERS_BYTES = 256 * 2**20  # what members of all groups say of themselves and are assigned
HOUSEKEEPING = None  # the name of the coordinator's own alarm

T = TypeVar("T", JoinAnswer, SyncAnswer)
Run = Callable[[Steps[Topic]], Awaitable[Topic]]  # where it need not be done at once


class GroupCoordinator:
    def __init__(
        self,
        settings: Settings,
        topics: Topics,
        clock: Clock,
        call_later: CallLater | None = None,
        request_flush: Callable[[Partition], None] = lambda partition: None,
        in_turns: InTurns = at_once,
        run: Run | None = None,
        broker_count: Callable[[], int] = lambda: 1,
    ) -> None:
        self.settings = settings
        self._topics = topics
        self._clock = clock
        self._limits = limits_of(settings)
        self._store = GroupStore(settings, topics, request_flush, broker_count, self._take_what_is_led)
        self.consumer = ConsumerGroups(
            settings, topics, self._store, self._has_room, self._has_memory, self._came, self._tell
        )
        memory = GroupMemory(self._store, self._limits, self.consumer.limits.of, clock, self._came, self._went)
        self._moves = Moves(memory)
        self.in_transactions = CommitsInTransactions(
            self._store, self._new_group, self.check_name, self.consumer.places
        )
        self._forgetting = Forgetting(settings, topics, self._store, lambda: self._is_running)
        self._alarms = Alarms(call_later or _call_later, lambda: clock.now().monotonic_ms, self._ring, in_turns)
        self._counted_bytes: dict[str, int] = {}  # of each group, as it is in the sum of all
        self._members_bytes = 0
        self._in_turns = in_turns
        self._storing = Storing(
            self._store, clock, in_turns, self._is_served, self._has_memory, self._count, self._carry_out
        )
        self._run = run
        self._making: asyncio.Future[Topic] | None = None
        self._said_full_ms = -MINUTE_MS
        self._is_running = False

    # Life

    def start(self) -> None:
        """Read the groups back from the log. Their members have one session timeout to be heard of."""
        self._is_running = True
        self._take_what_is_led()
        now = self._clock.now()
        at_once(self._forgetting.of_missing_topics(now))
        self._alarms.set(HOUSEKEEPING, now.monotonic_ms + self.settings.offsets_retention_check_interval_ms)

    def elected(self, partition: Partition, epoch: int) -> None:
        """Serve a partition of `__consumer_offsets` that this broker leads now: its log is open and in that epoch."""
        if self._is_running:  # else the start will find it
            self._moves.elected(partition, epoch, self._in_turns)

    def resigned(self, partition: Partition, epoch: int) -> None:
        """Stop serving a partition, as of that epoch: another broker leads it, or the own time is over."""
        if self._is_running:
            self._moves.resigned(partition, epoch, self._in_turns)

    def _take_what_is_led(self) -> None:
        """Take over the partitions that are led. Of a server that stands alone that is all, and nobody is served
        before."""
        if self._is_running:
            for partition in self._store.topic.led():
                self._moves.elected(partition, partition.log.leader_epoch, at_once)

    def _came(self, group: AnyGroup) -> None:
        self._count(group)
        self._alarms.set(group.group_id, group.wake_ms)

    def _went(self, group: AnyGroup) -> None:
        """Let go of a group that is another broker's now."""
        self._members_bytes -= self._counted_bytes.pop(group.group_id, 0)
        self._alarms.set(group.group_id, None)
        self._tell(group.kill(ErrorCode.not_coordinator))

    def stop(self) -> None:
        """Nobody waits any longer; nothing is written."""
        self._is_running = False
        self._alarms.stop()
        self._moves.stop()
        if self._making is not None:
            self._making.cancel()
        for group in self.groups.values():
            at_once(telling([each for each in group.kill(ErrorCode.not_coordinator) if isinstance(each, Answer)]))

    def make_place(self, now: Now) -> None:
        """Make the topic that groups are stored in, if it is not there; the client that asks for it may ask again."""
        if self._making is None and self._run is not None and self._is_running and not self._store.topic.is_made:
            self._making = asyncio.ensure_future(self._run(self._store.topic.making(now)))
            self._making.add_done_callback(self._made_place)

    def making_place(self, now: Now) -> asyncio.Future[Topic] | None:
        """The making of the topic that groups are stored in, while it goes on: what is to be stored waits for that, but
        not everybody. Where there are other brokers it may be for them to store it."""
        if self._topics.is_replicated:
            return None
        self.make_place(now)
        return self._making

    def _made_place(self, future: asyncio.Future[Topic]) -> None:
        self._making = None
        if not future.cancelled():
            future.exception()  # logged; those who store something hear of it

    @property
    def groups(self) -> dict[str, AnyGroup]:
        return self._store.groups

    def partition_of(self, group_id: str) -> Partition | None:
        """The partition whose leader coordinates the group. None as long as there is no topic for it."""
        return self._store.topic.partition_of(group_id)

    @property
    def is_loading(self) -> bool:
        """Whether there are groups here, or may be, that are not among `groups`."""
        return bool(self._store.topic.loading)

    def listed(self) -> tuple[AnyGroup, ...]:
        return self._store.listed()

    # Membership

    def join(self, group_id: str, request: JoinRequest, now: Now) -> JoinAnswer | asyncio.Future[JoinAnswer]:
        error = self.check_group_id(group_id)
        if error is ErrorCode.none and not self._is_session_timeout_allowed(request.session_timeout_ms):
            error = ErrorCode.invalid_session_timeout
        if error is ErrorCode.none and request.is_too_much:
            error = ErrorCode.invalid_request
        if error is ErrorCode.none and request.protocols_bytes > self.settings.message_max_bytes:
            # Its group could never be stored. Kafka finds that out only when it tries to, and knows no better word.
            error = ErrorCode.invalid_request
        if error is ErrorCode.none and not self._has_memory(MEMBER_BYTES + request.protocols_bytes):
            error = ErrorCode.coordinator_not_available
        if error is not ErrorCode.none:
            return JoinAnswer(error=error, member_id=request.member_id)
        try:
            group = self._to_join(group_id, now)
        except KafkaError as refusal:
            return JoinAnswer(error=refusal.code, member_id=request.member_id)
        if isinstance(group, ConsumerGroup):
            answer, settled = self.consumer.join(group, request, now)
            return once_settled(answer, settled, JoinAnswer)
        if group is None:
            if request.member_id:
                return JoinAnswer(error=ErrorCode.unknown_member_id, member_id=request.member_id)
            group = self._new_group(group_id, request.client_host.lstrip("/"), now)
            if group is None:
                return JoinAnswer(error=ErrorCode.group_max_size_reached)
        waiter: asyncio.Future[JoinAnswer] = asyncio.get_running_loop().create_future()
        self._carry_out(group, group.join(request, waiter, now), now)
        return self._now_or_later(group, waiter)

    def sync(self, group_id: str, request: SyncRequest, now: Now) -> SyncAnswer | asyncio.Future[SyncAnswer]:
        error = self.check_group_id(group_id)
        group = self.groups.get(group_id)
        if error is ErrorCode.coordinator_load_in_progress:
            error = ErrorCode.rebalance_in_progress  # clients do not expect the other, and join again
        if error is ErrorCode.none and group is None:
            error = ErrorCode.unknown_member_id
        if group is None or error is not ErrorCode.none:
            return SyncAnswer(error=error)
        if isinstance(group, ConsumerGroup):
            answer, settled = self.consumer.sync(group, request, now)
            return once_settled(answer, settled, SyncAnswer)
        waiter: asyncio.Future[SyncAnswer] = asyncio.get_running_loop().create_future()
        self._carry_out(group, group.sync(request, waiter, now), now)
        return self._now_or_later(group, waiter)

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int, now: Now) -> ErrorCode:
        error = self.check_group_id(group_id)
        if error is ErrorCode.coordinator_load_in_progress:
            return ErrorCode.none  # clients take the other for fatal; its session begins when the group is here
        if error is not ErrorCode.none:
            return error
        group = self.groups.get(group_id)
        if group is None:
            return ErrorCode.unknown_member_id
        if isinstance(group, ConsumerGroup):
            return self.consumer.heartbeat_of_classic(group, member_id, instance_id, generation, now)
        return group.heartbeat(member_id, instance_id, generation, now)

    def leave(self, group_id: str, leavings: Iterable[Leaving], now: Now) -> tuple[Settled, list[Left]]:
        error = self.check_group_id(group_id)
        if error is not ErrorCode.none:
            return error, []
        group = self.groups.get(group_id)
        if group is None:
            return ErrorCode.none, [Left(leaving, ErrorCode.unknown_member_id) for leaving in leavings]
        if isinstance(group, ConsumerGroup):
            return self.consumer.leave(group, leavings, now)
        left, effects = group.leave(leavings, now)
        self._carry_out(group, effects, now)
        return ErrorCode.none, left

    # Offsets

    def check_commit(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        now: Now,
        committed: Collection[TopicPartition] = (),
    ) -> ErrorCode:
        error = self.check_name(group_id)
        if error is not ErrorCode.none:
            return error
        group = self.groups.get(group_id)
        if group is None:
            return ErrorCode.none if generation < 0 else ErrorCode.group_id_not_found
        return group.check_commit(member_id, instance_id, generation, now, lambda: self.consumer.places(committed))

    def commit(
        self,
        group_id: str,
        committed: Mapping[TopicPartition, CommittedOffset],
        now: Now,
        client_host: str = "",
        records: Collection[KeyValue] = (),
    ) -> Settled:
        """Commit, after `check_commit`. All of them are stored, or none. A caller that has turns made the records of
        them before."""
        if not committed:
            return ErrorCode.none
        if not self._store.has_room_for_offsets(self._store.offsets.growth_bytes(group_id, committed)):
            return ErrorCode.coordinator_not_available
        group = self.groups.get(group_id)
        if group is None:
            group = self._new_group(group_id, client_host, now)
            if group is None:
                return ErrorCode.group_max_size_reached
        try:
            return self._store.put_offsets(group_id, committed, now, records)
        except KafkaError as refusal:
            self._store.forget_if_void(group)
            return refusal.code

    def committed(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        return self._store.offsets.get(group_id, topic, partition)

    def committed_topics(self, group_id: str) -> dict[str, list[int]]:
        return self._store.offsets.topics_of(group_id)

    def epoch_of(self, group_id: str) -> int | None:
        """The epoch in which the group was read back; another one if it went and came back meanwhile."""
        return self._store.epoch_of(group_id)

    def settled(self, group_id: str) -> Settled:
        """Whether offsets would survive a crash; asked before they are told."""
        error = self.check_name(group_id)
        return self._store.settled(group_id) if error is ErrorCode.none else error

    def check_delete_offsets(self, group_id: str) -> ErrorCode:
        error = self.check_group_id(group_id)
        if error is not ErrorCode.none:
            return error
        group = self.groups.get(group_id)
        if group is None:
            return ErrorCode.group_id_not_found
        return group.check_delete_offsets()

    def delete_offsets(self, group_id: str, partitions: Iterable[TopicPartition], now: Now) -> Settled:
        try:
            may_be_pending = self._store.pending.has_any(group_id)
            known = self._store.offsets.get
            found = [each for each in partitions if may_be_pending or known(group_id, *each) is not None]
            return self._store.remove_offsets(group_id, found, now)
        except KafkaError as refusal:
            return refusal.code

    def forgetting(self, topic: str, now: Now) -> Pauses:
        """Forget the offsets of a topic that is gone: they would be wrong for the next one of its name. Until this ends
        there is none, so nobody commits for it. Of groups that another broker coordinates it does so."""
        yield from self._forgetting.of_topic(topic, now)

    # Groups as a whole

    def deleting_group(self, group_id: str, now: Now) -> Generator[None, None, Settled]:
        """Delete a group, its offsets a piece a step. A request for the group meanwhile is told to try again."""
        error = self.check_name(group_id)
        if error is not ErrorCode.none:
            return error
        group = self.groups.get(group_id)
        if group is None:
            return ErrorCode.group_id_not_found
        if not group.is_empty:
            return ErrorCode.non_empty_group
        try:
            with self._store.taking_away(group_id):
                offsets, pending = self._store.offsets, self._store.pending
                for places in chain(
                    offsets.pieces(group_id, REMOVED_AT_A_TIME), pending.taking_away(group_id, REMOVED_AT_A_TIME)
                ):
                    self._store.remove_offsets(group_id, places, now)
                    yield
                settled = self._store.remove_group(group_id, now)
        except KafkaError as refusal:
            return refusal.code
        self._members_bytes -= self._counted_bytes.pop(group_id, 0)
        self._tell(group.kill(ErrorCode.coordinator_not_available))
        return settled

    def check_name(self, group_id: str) -> ErrorCode:
        """Simple consumers may use the empty one, and so it can be looked at and deleted, as in Kafka."""
        if not self._is_running:
            return ErrorCode.coordinator_not_available
        return ErrorCode.invalid_group_id if len(group_id) > MOST_ID_CHARACTERS else self._store.refusal(group_id)

    def check_group_id(self, group_id: str) -> ErrorCode:
        """Check the id of a group for members, which have a name."""
        return self.check_name(group_id) if group_id or not self._is_running else ErrorCode.invalid_group_id

    # Below

    def _is_session_timeout_allowed(self, timeout_ms: int) -> bool:
        return self._limits.min_session_timeout_ms <= timeout_ms <= self._limits.max_session_timeout_ms

    def _is_here(self, group: AnyGroup) -> bool:
        return self.groups.get(group.group_id) is group and self._store.topic.is_here(group.group_id)

    def _count(self, group: AnyGroup) -> None:
        size_bytes = group.held_bytes
        if size_bytes:
            self._members_bytes += size_bytes - self._counted_bytes.get(group.group_id, 0)
            self._counted_bytes[group.group_id] = size_bytes
        else:
            self._members_bytes -= self._counted_bytes.pop(group.group_id, 0)

    def _to_join(self, group_id: str, now: Now) -> AnyGroup | None:
        """The group for a member of the classic protocol. Raises KafkaError."""
        group = self.groups.get(group_id)
        if not isinstance(group, ConsumerGroup) or not group.is_empty:
            return group
        fresh = Group(group_id, self._limits, now, group.made_by)
        self.consumer.make_classic(group, fresh, now)
        return fresh

    def _new_group(self, group_id: str, client_host: str, now: Now) -> Group | None:
        if not self._has_room(group_id, client_host, now):
            return None
        group = Group(group_id, self._limits, now, client_host)
        self._store.add(group)
        return group

    def _has_memory(self, more_bytes: int) -> bool:
        held_bytes = self._members_bytes + self._storing.waiting_bytes
        return more_bytes <= 0 or held_bytes + more_bytes <= MEMBERS_BYTES

    def _has_room(self, group_id: str, client_host: str, now: Now) -> bool:
        """The client is told each time, the log at most once a minute."""
        if self._store.has_room(client_host):
            return True
        if now.monotonic_ms - self._said_full_ms >= MINUTE_MS:
            self._said_full_ms = now.monotonic_ms
            logger.warning(
                "the group %r of %s is refused: there are %d groups, and oncelog.max.groups=%d keeps room for other "
                "hosts. Raise it, or delete unused groups",
                group_id,
                client_host,
                len(self.groups),
                self.settings.oncelog_max_groups,
            )
        return False

    def _now_or_later(self, group: Group, waiter: asyncio.Future[T]) -> T | asyncio.Future[T]:
        if waiter.done():
            self._store.forget_if_void(group)
            return waiter.result()

        def hung_up(future: asyncio.Future[T]) -> None:
            if future.cancelled() and self._is_here(group):
                now = self._clock.now()
                self._carry_out(group, group.abandon(future, now), now)

        waiter.add_done_callback(hung_up)
        return waiter

    def _carry_out(self, group: Group, effects: Iterable[Effect], now: Now) -> None:
        effects = list(effects)
        for effect in effects:
            if not isinstance(effect, Answer):
                self._storing.store(group, effect, now, self.making_place(now))
        self._tell(effects)
        if self.groups.get(group.group_id) is not group:
            return
        self._count(group)
        if self._is_running:
            self._alarms.set(group.group_id, group.wake_ms)

    def _tell(self, effects: Iterable[Effect]) -> None:
        answers = [each for each in effects if isinstance(each, Answer)]
        if are_many(answers):
            self._in_turns(telling(answers))
        else:
            at_once(telling(answers))

    def _is_served(self, group: Group) -> bool:
        return self._is_running and self.groups.get(group.group_id) is group

    def _ring(self, name: str | None) -> None:
        now = self._clock.now()
        if name is HOUSEKEEPING:
            self._alarms.set(HOUSEKEEPING, now.monotonic_ms + self.settings.offsets_retention_check_interval_ms)
            self._in_turns(self._forgetting.keep_house(now))
            return
        group = None if name is None else self.groups.get(name)
        if group is None or not self._is_here(group):
            return
        if isinstance(group, ConsumerGroup):
            self.consumer.tick(group, now)
        else:
            self._carry_out(group, group.tick(now), now)
            self._store.forget_if_void(group)


def _call_later(delay_s: float, callback: Callable[[], None]) -> TimerHandle:
    return asyncio.get_running_loop().call_later(delay_s, callback)
