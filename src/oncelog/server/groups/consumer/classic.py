"""Members of the classic protocol in a group of KIP-848, while it goes over from one to the other.

Such a member is told at a heartbeat to join again whenever there is more to do for it, and each join is one heartbeat
of KIP-848: it says what the member reads and has. The answer comes at once, and nobody leads. Asking for its share
(SyncGroup) it hears what it has now. Who does not join, or ask after it, within its rebalance timeout is out.

    | the member | is told to join again |
    |---|---|
    | is in an older epoch than the target, or than the group when a target can be computed | yes |
    | UNREVOKED: what it is to give up it is told at SyncGroup, and the next join says that it did | yes |
    | UNRELEASED, and all that it waits for is free | yes |
    | any other | no |
"""

from oncelog.clock import Now
from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.groups.consumer.place_sharing import Sharing
from oncelog.server.groups.consumer.topics import KnownTopics
from oncelog.server.groups.consumer.values import NOWHERE, Classic, Current, MemberState, Place, Places, Said
from oncelog.server.groups.embedded import Malformed, Partitions, Subscription, read_subscription, share_bytes
from oncelog.server.groups.member import Member
from oncelog.server.groups.messages import JoinAnswer, JoinRequest, SyncAnswer, SyncRequest
from oncelog.server.groups.subscription import CONSUMER_PROTOCOL


class ClassicMembers:
    def __init__(self, sharing: Sharing) -> None:
        self._sharing = sharing

    def join(self, request: JoinRequest, topics: KnownTopics, now: Now) -> JoinAnswer:
        """Raises KafkaError; nothing is changed then."""
        sharing, members = self._sharing, self._sharing.members
        member_id = request.member_id or request.fresh_id
        if member_id not in members.said and request.instance_id not in members.instances:
            sharing.check_room(now, joins=True)
        subscription = self._subscription(request)
        if request.needs_known_id and not request.member_id and request.instance_id is None:
            return JoinAnswer(error=ErrorCode.member_id_required, member_id=member_id)
        replaced, has = self._replaced(request), places_of(subscription.has, topics)
        if replaced is None and request.member_id and has:
            # It was sent away and does not know it. (Kafka takes it, and what it has is another's by now.) Who was
            # handed out an id has nothing.
            raise KafkaError(ErrorCode.unknown_member_id)
        spoke_classic = replaced is None or members.said[replaced].classic is not None
        assignor = None if replaced is None else members.said[replaced].assignor
        former = members.current_of(member_id)
        if replaced not in (None, member_id):
            former = sharing.take_over(replaced, member_id)
        classic = Classic(session_timeout_ms=request.session_timeout_ms, protocols=request.protocols)
        said = said_of(request, subscription, classic, assignor)
        current = sharing.come_on(member_id, said, has, topics, now)
        is_stuck = current.state is MemberState.UNREVOKED and current == former
        if not (is_stuck and sharing.sessions.is_to_act(member_id)):
            sharing.begin_acting(member_id, said, now)
        sharing.becomes_classic = not spoke_classic and sharing.may_become_classic
        return JoinAnswer(
            member_id=member_id,
            generation=current.epoch,
            protocol_type=CONSUMER_PROTOCOL,
            protocol_name=request.protocols[0][0],
        )

    def sync(self, request: SyncRequest, topics: KnownTopics, now: Now) -> SyncAnswer:
        """Raises KafkaError."""
        sharing, member_id = self._sharing, request.member_id
        said, classic, current = self._member(member_id, request.instance_id, request.generation)
        if current.state is not MemberState.UNREVOKED and self._is_behind(current, topics, now):
            self._await_join(member_id, said, now)
            # Whatever it was told as it joined: a group that went over, and back, has other words for it.
            raise KafkaError(ErrorCode.rebalance_in_progress)
        is_type = request.protocol_type in (None, CONSUMER_PROTOCOL)
        # Where the group went over since its join, it was told what that generation had taken.
        is_known = request.protocol_name is None or request.protocol_name in dict(classic.protocols)
        if not is_type or not is_known:
            raise KafkaError(ErrorCode.inconsistent_group_protocol)
        sharing.begin_session(member_id, said, now)
        if not self._must_join(member_id, current, topics, now):
            sharing.sessions.acted(member_id)
        return SyncAnswer(
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=share_bytes(classic.metadata, names_of(frozenset(current.assigned), topics)),
        )

    def heartbeat(
        self, member_id: str, instance_id: str | None, generation: int, topics: KnownTopics, now: Now
    ) -> ErrorCode:
        try:
            said, _, current = self._member(member_id, instance_id, generation)
        except KafkaError as refusal:
            return refusal.code
        self._sharing.begin_session(member_id, said, now)
        if not self._must_join(member_id, current, topics, now):
            return ErrorCode.none
        self._await_join(member_id, said, now)
        return ErrorCode.rebalance_in_progress

    @property
    def are_a_generation(self) -> bool:
        """Whether they could go on as a generation of the classic protocol: each has its part of what is read now, and
        they name the same assignor first, which is what each was told, and is what that generation takes."""
        members = self._sharing.members
        if members.epoch > members.target_epoch or not members.is_reconciled:
            return False
        return len({each.classic.protocol_name for each in members.said.values() if each.classic is not None}) <= 1

    # Below

    def _subscription(self, request: JoinRequest) -> Subscription:
        members = self._sharing.members
        names = [name for name, _ in request.protocols]
        if request.protocol_type != CONSUMER_PROTOCOL or not members.support_classic(names):
            raise KafkaError(ErrorCode.inconsistent_group_protocol)
        try:
            said = read_subscription(request.protocols[0][1])
        except Malformed as error:
            raise KafkaError(ErrorCode.inconsistent_group_protocol, str(error)) from None
        known = {name for name in {*said.topics, *said.has} if request.may_know(name)}  # others are not there for it
        return said._replace(
            topics=tuple(filter(known.__contains__, said.topics)),
            has={name: indexes for name, indexes in said.has.items() if name in known},
        )

    def _replaced(self, request: JoinRequest) -> str | None:
        """The member that this one goes on as: itself, or another of its instance. None where it is new."""
        members = self._sharing.members
        if request.instance_id is None:
            return request.member_id if request.member_id in members.said else None
        if request.member_id:
            members.check_instance(request.instance_id, request.member_id)
        return members.instances.get(request.instance_id)

    def _member(self, member_id: str, instance_id: str | None, generation: int) -> tuple[Said, Classic, Current]:
        members = self._sharing.members
        if instance_id is not None:
            members.check_instance(instance_id, member_id)
        said = members.said.get(member_id)
        if said is None or said.classic is None:
            raise KafkaError(ErrorCode.unknown_member_id)
        current = members.current_of(member_id)
        if generation != current.epoch:
            raise KafkaError(ErrorCode.illegal_generation)
        return said, said.classic, current

    def _must_join(self, member_id: str, current: Current, topics: KnownTopics, now: Now) -> bool:
        if current.state is MemberState.UNREVOKED or self._is_behind(current, topics, now):
            return True
        members = self._sharing.members
        missing = members.target_of(member_id).difference(current.assigned)
        is_waiting = current.state is MemberState.UNRELEASED
        return is_waiting and all(members.owner(place) is None for place in missing)

    def _is_behind(self, current: Current, topics: KnownTopics, now: Now) -> bool:
        sharing, members = self._sharing, self._sharing.members
        if current.epoch < members.target_epoch:
            return True
        is_older = current.epoch < members.epoch or sharing.has_other_topics(topics)
        return is_older and sharing.may_assign(now)

    def _await_join(self, member_id: str, said: Said, now: Now) -> None:
        if not self._sharing.sessions.is_to_act(member_id):
            self._sharing.begin_acting(member_id, said, now)


def places_of(partitions: Partitions, topics: KnownTopics) -> Places:
    """The places of the topics that are there."""
    found: list[Place] = []
    for name, indexes in partitions.items():
        topic = topics.get(name)
        if topic is not None:
            found += [Place(topic.topic_id, index) for index in indexes if 0 <= index < topic.partitions]
    return frozenset(found) if found else NOWHERE


def names_of(places: Places, topics: KnownTopics) -> Partitions:
    by_id: dict[bytes, list[int]] = {}
    for topic_id, index in sorted(places):
        by_id.setdefault(topic_id, []).append(index)
    known = [(topics.by_id(topic_id), indexes) for topic_id, indexes in by_id.items()]
    return {topic.name: tuple(indexes) for topic, indexes in known if topic is not None}


def said_of(
    member: JoinRequest | Member, subscription: Subscription, classic: Classic, assignor: str | None = None
) -> Said:
    return Said(
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=tuple(sorted(set(subscription.topics))),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        assignor=assignor,
        classic=classic,
    )
