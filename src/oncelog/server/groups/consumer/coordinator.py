"""Brings heartbeats, timers and the disk to the groups of KIP-848: what one does is stored before anyone hears it."""

from collections.abc import Callable, Iterable

from oncelog.clock import Now
from oncelog.server.coordinator_topic import KeyValue
from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.groups.consumer.finding import Finding, MayKnow, SeenTopics
from oncelog.server.groups.consumer.group import ConsumerGroup
from oncelog.server.groups.consumer.records import encode
from oncelog.server.groups.consumer.topics import Found
from oncelog.server.groups.consumer.values import JOINS, Beat, BeatAnswer
from oncelog.server.groups.group import Group
from oncelog.server.groups.limits import consumer_limits_of
from oncelog.server.groups.messages import MEMBER_BYTES, Leaving, Left
from oncelog.server.groups.store import AnyGroup, GroupStore, Settled
from oncelog.server.settings import Settings
from oncelog.server.topics import Topics

HasRoom = Callable[[str, str, Now], bool]  # for another group, of a host


def _anything(name: str) -> bool:
    return True


class ConsumerGroups:
    def __init__(
        self,
        settings: Settings,
        topics: Topics,
        store: GroupStore,
        has_room: HasRoom,
        has_memory: Callable[[int], bool],
        noted: Callable[[AnyGroup], None],
    ) -> None:
        """`noted` is told of a group that may want to be woken at another time, or hold more or less."""
        self._topics = topics
        self.finding = Finding(topics)
        self._store = store
        self._limits = consumer_limits_of(settings)
        self._has_room = has_room
        self._has_memory = has_memory
        self._noted = noted
        self.is_enabled = "consumer" in settings.group_coordinator_rebalance_protocols

    def get(self, group_id: str) -> ConsumerGroup | None:
        group = self._store.groups.get(group_id)
        return group if isinstance(group, ConsumerGroup) else None

    def pattern_of(self, group_id: str, beat: Beat, now: Now) -> str | None:
        """By which topics are to be found before a heartbeat is answered: its own, or the one that its member said
        before. None where its group knows what that finds."""
        group = self.get(group_id)
        said = None if group is None else group.members.said.get(beat.member_id)
        known = None if said is None else said.pattern
        pattern = known if beat.pattern is None else beat.pattern
        is_known = group is not None and group.has_resolved(pattern or "", self._topics.revision, now)
        return None if is_known else pattern or None

    def heartbeat(
        self, group_id: str, beat: Beat, may_know: MayKnow, now: Now, found: Found | None = None
    ) -> tuple[BeatAnswer, Settled]:
        """Once the name was checked. Raises KafkaError. Nobody hears of it before it is settled."""
        if beat.assignor is not None and beat.assignor not in self._limits.assignors:
            raise KafkaError(
                ErrorCode.unsupported_assignor,
                f"ServerAssignor {beat.assignor} is not supported. Supported assignors: "
                f"{', '.join(self._limits.assignors)}.",
            )
        self._check_memory(self._more_bytes(group_id, beat))
        former = self._store.groups.get(group_id)
        group, first = self._group(group_id, former, beat, now)
        try:
            topics = SeenTopics(self._topics, self.finding, may_know, found)
            answer, settled = self._beat(group, first, beat, topics, now)
        except BaseException:
            if former is None:
                self._store.forget(group_id)
            elif former is not group:
                self._store.replace(former)
            raise
        finally:
            if self._store.groups.get(group_id) is group:
                self._noted(group)
        if settled is ErrorCode.none and (answer.assigned is not None or answer.epoch != beat.epoch):
            settled = self._store.settled(group_id)  # of what it was told before it may have heard nothing
        return answer, settled

    def leave(self, group: ConsumerGroup, leavings: Iterable[Leaving], now: Now) -> tuple[Settled, list[Left]]:
        """By LeaveGroup: an administrator sends members away."""
        topics = SeenTopics(self._topics, self.finding, _anything)
        try:
            left = group.leave(leavings, topics, now)
            return self._put(group, (), now), left
        except BaseException as refusal:
            group.take_back(now)
            if not isinstance(refusal, KafkaError):
                raise
            return refusal.code, []
        finally:
            self._noted(group)

    def in_older_words(self, group_id: str, error: ErrorCode) -> ErrorCode:
        """For clients of OffsetCommit below version 9, who know nothing of KIP-848."""
        group = self.get(group_id)
        is_members = group is not None and not group.is_empty
        if is_members and error in (ErrorCode.none, ErrorCode.stale_member_epoch):
            return ErrorCode.unsupported_version
        return ErrorCode.illegal_generation if error is ErrorCode.group_id_not_found else error

    def check_fetch(self, group_id: str, member_id: str | None, epoch: int) -> ErrorCode:
        """Of offsets: only members of such groups say who they are."""
        group = self.get(group_id)
        is_anybody = group is None or (member_id is None and epoch < 0)
        return ErrorCode.none if group is None or is_anybody else group.check_fetch(member_id, epoch)

    def tick(self, group: ConsumerGroup, now: Now) -> None:
        try:
            group.fence_late(SeenTopics(self._topics, self.finding, _anything), now)
            self._put(group, (), now)
        except BaseException as refusal:
            group.take_back(now)  # they have another session to be heard of
            if not isinstance(refusal, KafkaError):
                raise
        self._noted(group)

    def make_classic(self, group: ConsumerGroup, fresh: Group, now: Now) -> None:
        """One without members gives its place, and its offsets, to one of the classic protocol. Raises KafkaError."""
        records = [encode(group.group_id, each) for each in group.tombstones()]
        self._store.put_records(group.group_id, records, now)
        self._store.replace(fresh)

    # Below

    def _beat(
        self, group: ConsumerGroup, first: Iterable[KeyValue], beat: Beat, topics: SeenTopics, now: Now
    ) -> tuple[BeatAnswer, Settled]:
        held_bytes = group.held_bytes
        try:
            answer = group.heartbeat(beat, topics, now)
            if beat.epoch == JOINS:
                self._check_memory(group.held_bytes - held_bytes)  # with what all are to have now
            return answer, self._put(group, first, now)
        except BaseException as refusal:
            group.take_back(now)
            is_too_large = isinstance(refusal, KafkaError) and refusal.code is ErrorCode.group_max_size_reached
            if beat.epoch == JOINS or not is_too_large or group.is_too_large(now):
                raise
        group.note_too_large(now)
        return self._beat(group, first, beat, topics, now)  # its members go on with what they have

    def _more_bytes(self, group_id: str, beat: Beat) -> int:
        """To be remembered of what a member says, where it says more than before."""
        group = self.get(group_id)
        said = None if group is None else group.members.said.get(beat.member_id)
        return beat.said_bytes - (0 if said is None else MEMBER_BYTES + said.held_bytes)

    def _check_memory(self, more_bytes: int) -> None:
        """Who is a member stays one: only more is refused."""
        if more_bytes > 0 and not self._has_memory(more_bytes):
            raise KafkaError(ErrorCode.coordinator_not_available)

    def _group(
        self, group_id: str, former: AnyGroup | None, beat: Beat, now: Now
    ) -> tuple[ConsumerGroup, Iterable[KeyValue]]:
        """And what is to be stored before what it does."""
        if isinstance(former, ConsumerGroup):
            return former, ()
        if former is not None and (not former.is_empty or former.has_pending_ids):
            raise KafkaError(ErrorCode.group_id_not_found, f"Group {group_id} is not a consumer group.")
        if beat.epoch != JOINS:
            what = "Consumer group" if beat.epoch > JOINS else "Group"
            raise KafkaError(ErrorCode.group_id_not_found, f"{what} {group_id} not found.")
        if former is None:
            host = beat.client_host.lstrip("/")
            if not self._has_room(group_id, host, now):
                raise KafkaError(ErrorCode.group_max_size_reached, "There are as many groups as there may be.")
            made = ConsumerGroup(group_id, self._limits, host)
            self._store.add(made)
            return made, ()
        group = ConsumerGroup(group_id, self._limits, former.made_by)
        self._store.replace(group)
        return group, () if former.is_simple else self._store.tombstones(former)

    def _put(self, group: ConsumerGroup, first: Iterable[KeyValue], now: Now) -> Settled:
        done = group.members.take()
        if not done:
            return ErrorCode.none
        try:
            settled = self._store.put_records(
                group.group_id, [*first, *[encode(group.group_id, each) for each in done]], now
            )
        except KafkaError as refusal:
            if refusal.code is ErrorCode.invalid_commit_offset_size:  # a word for commits only
                raise KafkaError(ErrorCode.group_max_size_reached, refusal.message) from None
            raise
        group.members.stored()
        return settled
