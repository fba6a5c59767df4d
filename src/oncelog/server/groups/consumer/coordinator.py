"""Brings heartbeats, timers and the disk to the groups of KIP-848: what one does is stored before anyone hears it."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TypeVar

from oncelog.clock import Now
from oncelog.server.coordinator_topic import KeyValue
from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.groups.consumer.group import ConsumerGroup
from oncelog.server.groups.consumer.pattern_finding import Finding, MayKnow, SeenTopics
from oncelog.server.groups.consumer.protocol_moving import downgraded, upgraded
from oncelog.server.groups.consumer.records import encode
from oncelog.server.groups.consumer.topics import Found
from oncelog.server.groups.consumer.values import JOINS, Beat, BeatAnswer, Place, Said
from oncelog.server.groups.group import Group
from oncelog.server.groups.limits import OwnLimits, limits_of
from oncelog.server.groups.messages import (
    MEMBER_BYTES,
    Effect,
    JoinAnswer,
    JoinRequest,
    Leaving,
    Left,
    SyncAnswer,
    SyncRequest,
    knows_all,
)
from oncelog.server.groups.offsets import TopicPartition
from oncelog.server.groups.records import encode_stored
from oncelog.server.groups.store import AnyGroup, GroupStore, Settled
from oncelog.server.settings import Settings
from oncelog.server.topics import Topics

C = TypeVar("C")
HasRoom = Callable[[str, str, Now], bool]  # for another group, of a host


class ConsumerGroups:
    def __init__(
        self,
        settings: Settings,
        topics: Topics,
        store: GroupStore,
        has_room: HasRoom,
        has_memory: Callable[[int], bool],
        noted: Callable[[AnyGroup], None],
        tell: Callable[[Iterable[Effect]], None],
    ) -> None:
        """`noted` is told of a group that may want to be woken at another time, or hold more or less."""
        self._topics = topics
        self.finding = Finding(topics)
        self._store = store
        self.limits = OwnLimits(settings, topics)
        self._classic_limits = limits_of(settings)
        self._has_room = has_room
        self._has_memory = has_memory
        self._noted = noted
        self._tell = tell
        self.is_enabled = "consumer" in settings.group_coordinator_rebalance_protocols

    def get(self, group_id: str) -> ConsumerGroup | None:
        group = self._store.groups.get(group_id)
        return group if isinstance(group, ConsumerGroup) else None

    def pattern_of(self, group_id: str, beat: Beat, now: Now) -> str | None:
        """The pattern by which topics are to be found before a heartbeat is answered: its own, or the one that its
        member said before. None where its group knows what that finds."""
        group = self.get(group_id)
        said = None if group is None else group.members.said.get(beat.member_id)
        known = None if said is None else said.pattern
        pattern = known if beat.pattern is None else beat.pattern
        is_known = group is not None and group.sharing.has_resolved(pattern or "", self._topics.revision, now)
        return None if is_known else pattern or None

    def heartbeat(
        self, group_id: str, beat: Beat, may_know: MayKnow, now: Now, found: Found | None = None
    ) -> tuple[BeatAnswer, Settled]:
        """Answer a heartbeat whose name was checked. Raises KafkaError. Nobody hears of it before it is settled."""
        if beat.assignor is not None and beat.assignor not in self.limits.common.assignors:
            raise KafkaError(
                ErrorCode.unsupported_assignor,
                f"ServerAssignor {beat.assignor} is not supported. Supported assignors: "
                f"{', '.join(self.limits.common.assignors)}.",
            )
        self._check_memory(self._more_bytes(group_id, beat))
        former = self._store.groups.get(group_id)
        topics = SeenTopics(self._topics, self.finding, may_know, found)
        group, first = self._group(group_id, former, beat, topics, now)
        try:
            answer, settled = self._change(
                group, now, lambda: self._beat(group, first, beat, topics, now), goes_on=beat.epoch != JOINS
            )
        except BaseException:
            if former is None:
                self._store.forget(group_id)
            elif former is not group:
                self._store.replace(former)
            raise
        finally:
            self._note(group_id)
        if isinstance(former, Group):
            self._tell(former.kill(ErrorCode.rebalance_in_progress))  # those who wait join again, as its members
        if settled is ErrorCode.none and (answer.assigned is not None or answer.epoch != beat.epoch):
            settled = self._store.settled(group_id)  # of what it was told before it may have heard nothing
        return answer, settled

    def leave(self, group: ConsumerGroup, leavings: Iterable[Leaving], now: Now) -> tuple[Settled, list[Left]]:
        """Answer a LeaveGroup: a member of the classic protocol goes, or an administrator sends any away."""
        try:
            return self._change(group, now, lambda: self._leave(group, leavings, now))
        except KafkaError as refusal:
            return refusal.code, []
        finally:
            self._note(group.group_id)

    # Members of the classic protocol

    def join(self, group: ConsumerGroup, request: JoinRequest, now: Now) -> tuple[JoinAnswer, Settled]:
        is_new = request.member_id not in group.members.said
        try:
            return self._change(group, now, lambda: self._join(group, request, now), goes_on=not is_new)
        except KafkaError as refusal:
            return JoinAnswer(error=refusal.code), ErrorCode.none
        finally:
            self._note(group.group_id)

    def sync(self, group: ConsumerGroup, request: SyncRequest, now: Now) -> tuple[SyncAnswer, Settled]:
        try:
            return group.classic.sync(request, self._seen, now), self._store.settled(group.group_id)
        except KafkaError as refusal:
            return SyncAnswer(error=refusal.code), ErrorCode.none
        finally:
            self._note(group.group_id)

    def heartbeat_of_classic(
        self, group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int, now: Now
    ) -> ErrorCode:
        error = group.classic.heartbeat(member_id, instance_id, generation, self._seen, now)
        self._note(group.group_id)
        return error

    # Offsets

    def places(self, committed: Iterable[TopicPartition]) -> Iterator[Place]:
        """The places of the topics that are there."""
        for name, index in committed:
            topic = self._topics.get(name)
            if topic is not None:
                yield Place(topic.id.bytes, index)

    def in_older_words(self, group_id: str, member_id: str, error: ErrorCode) -> ErrorCode:
        """The error for clients of OffsetCommit below version 9, which know nothing of KIP-848."""
        group = self.get(group_id)
        is_members = group is not None and not group.is_empty and not group.is_classic(member_id)
        if is_members and error in (ErrorCode.none, ErrorCode.stale_member_epoch):
            return ErrorCode.unsupported_version
        return ErrorCode.illegal_generation if error is ErrorCode.group_id_not_found else error

    def check_fetch(self, group_id: str, member_id: str | None, epoch: int) -> ErrorCode:
        """Check a fetch of offsets: only members of such groups say who they are."""
        group = self.get(group_id)
        is_anybody = group is None or (member_id is None and epoch < 0)
        return ErrorCode.none if group is None or is_anybody else group.check_fetch(member_id, epoch)

    def tick(self, group: ConsumerGroup, now: Now) -> None:
        try:
            self._change(group, now, lambda: self._fence(group, now))
        except KafkaError:
            pass  # they have another session to be heard of
        self._note(group.group_id)

    def make_classic(self, group: ConsumerGroup, fresh: Group, now: Now) -> None:
        """Let an empty group give its name and its offsets to one of the classic protocol. Raises KafkaError."""
        self._store.put_records(group.group_id, self._store.tombstones(group), now)
        self._store.replace(fresh)

    # Below

    @property
    def _seen(self) -> SeenTopics:
        """The topics, for what asks for no rights of a member's."""
        return SeenTopics(self._topics, self.finding, knows_all)

    def _note(self, group_id: str) -> None:
        group = self._store.groups.get(group_id)
        if group is not None:
            self._noted(group)

    def _change(self, group: ConsumerGroup, now: Now, work: Callable[[], C], *, goes_on: bool = False) -> C:
        """Do the work; a change that cannot be stored is taken back. Where it is too large, one that `goes_on` is tried
        again."""
        try:
            return work()
        except BaseException as refusal:
            group.sharing.take_back(now)
            is_too_large = isinstance(refusal, KafkaError) and refusal.code is ErrorCode.group_max_size_reached
            if not goes_on or not is_too_large or group.sharing.is_too_large(now):
                raise
        group.sharing.note_too_large(now)
        return self._change(group, now, work)

    def _beat(
        self, group: ConsumerGroup, first: Iterable[KeyValue], beat: Beat, topics: SeenTopics, now: Now
    ) -> tuple[BeatAnswer, Settled]:
        before, held_bytes = group.members.said.get(beat.member_id), group.held_bytes
        answer = group.heartbeat(beat, topics, now)
        self._check_growth(group, beat.member_id, before, held_bytes, topics)
        return answer, self._put(group, first, topics, now)

    def _join(self, group: ConsumerGroup, request: JoinRequest, now: Now) -> tuple[JoinAnswer, Settled]:
        topics, before, held_bytes = self._seen, group.members.said.get(request.member_id), group.held_bytes
        answer = group.classic.join(request, topics, now)
        self._check_growth(group, answer.member_id, before, held_bytes, topics)
        is_shared = group.sharing.becomes_classic and group.classic.are_a_generation
        return answer, self._put(group, (), topics, now, is_shared=is_shared)

    def _leave(self, group: ConsumerGroup, leavings: Iterable[Leaving], now: Now) -> tuple[Settled, list[Left]]:
        topics = self._seen
        left = group.leave(leavings, topics, now)
        return self._put(group, (), topics, now), left

    def _fence(self, group: ConsumerGroup, now: Now) -> Settled:
        topics = self._seen
        group.fence_late(topics, now)
        return self._put(group, (), topics, now)

    def _more_bytes(self, group_id: str, beat: Beat) -> int:
        """The bytes to be remembered beyond those of before, where a member says more."""
        group = self.get(group_id)
        said = None if group is None else group.members.said.get(beat.member_id)
        return beat.said_bytes - (0 if said is None else MEMBER_BYTES + said.held_bytes)

    def _check_memory(self, more_bytes: int) -> None:
        """Check the room. A member stays one: only more is refused."""
        if more_bytes > 0 and not self._has_memory(more_bytes):
            raise KafkaError(ErrorCode.coordinator_not_available)

    def _check_growth(
        self, group: ConsumerGroup, member_id: str, before: Said | None, held_bytes: int, topics: SeenTopics
    ) -> None:
        """Check the room for what a member says anew, and where it reads something else than before for all that comes
        of it: also for its partitions, which are shared out later, at a heartbeat that is never refused."""
        said = group.members.said.get(member_id)
        if said is None or said is before:
            return
        if before is not None and said.reads_like(before):
            self._check_memory(said.held_bytes - before.held_bytes)
        else:
            self._check_memory(group.held_bytes - held_bytes + group.sharing.lacking_bytes(topics))

    def _group(
        self, group_id: str, former: AnyGroup | None, beat: Beat, topics: SeenTopics, now: Now
    ) -> tuple[ConsumerGroup, Iterable[KeyValue]]:
        """The group, and what is to be stored before what it does."""
        if isinstance(former, ConsumerGroup):
            return former, ()
        if former is not None and not former.is_empty and beat.epoch != JOINS:
            raise KafkaError(ErrorCode.group_id_not_found, f"Group {group_id} is not a consumer group.")
        if beat.epoch != JOINS:
            what = "Consumer group" if beat.epoch > JOINS else "Group"
            raise KafkaError(ErrorCode.group_id_not_found, f"{what} {group_id} not found.")
        if former is None:
            host = beat.client_host.lstrip("/")
            if not self._has_room(group_id, host, now):
                raise KafkaError(ErrorCode.group_max_size_reached, "There are as many groups as there may be.")
            made = ConsumerGroup(group_id, self.limits.of, host)
            self._store.add(made)
            return made, ()
        if former.is_empty:
            group = ConsumerGroup(group_id, self.limits.of, former.made_by)
        else:
            group = upgraded(former, self.limits.of, topics, now)
        self._store.replace(group)
        return group, () if former.is_simple else self._store.tombstones(former)

    def _put(
        self,
        group: ConsumerGroup,
        first: Iterable[KeyValue],
        topics: SeenTopics,
        now: Now,
        *,
        is_shared: bool = False,
    ) -> Settled:
        """`is_shared`: where it becomes a group of the classic protocol, nobody has to join again."""
        group_id = group.group_id
        if group.sharing.becomes_classic:
            try:
                return self._downgrade(group, topics, now, is_shared=is_shared)
            except KafkaError as refusal:
                if refusal.code is not ErrorCode.invalid_commit_offset_size:
                    raise
            group.sharing.stay(topics)
        done = group.members.done
        if not done:
            return ErrorCode.none
        try:
            settled = self._store.put_records(group_id, [*first, *[encode(group_id, each) for each in done]], now)
        except KafkaError as refusal:
            if refusal.code is ErrorCode.invalid_commit_offset_size:  # a word for commits only
                raise KafkaError(ErrorCode.group_max_size_reached, refusal.message) from None
            raise
        group.members.stored()
        return settled

    def _downgrade(self, group: ConsumerGroup, topics: SeenTopics, now: Now, *, is_shared: bool) -> Settled:
        group_id, fresh = group.group_id, downgraded(group, self._classic_limits, topics, now)
        stored = fresh.to_store()
        if not is_shared:
            stored = replace(stored, leader=None)  # a broker that reads it back has it shared anew, too
        records = [encode(group_id, each) for each in group.members.done] + self._store.tombstones(group)
        settled = self._store.put_records(group_id, [*records, encode_stored(group_id, stored)], now)
        fresh.note_assigned(stored)
        self._store.replace(fresh)
        if not is_shared:
            self._tell(fresh.share_anew(now))
        return settled
