"""A group with members goes from one protocol to the other, as `group.consumer.migration.policy` lets it.

It goes over to KIP-848 with its first member that speaks it, and back when the last of them is out. What its members
have, their ids and the generation stay, so a member that is told to join again may still commit. Both ways it is one
batch of records.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from oncelog.clock import Now
from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.groups.consumer.classic import names_of, places_of, said_of
from oncelog.server.groups.consumer.group import ConsumerGroup
from oncelog.server.groups.consumer.topics import KnownTopics, topics_hash
from oncelog.server.groups.consumer.values import (
    MOST_MOVED,
    MOST_MOVED_NAMES,
    MOST_PLACES,
    Change,
    Classic,
    ConsumerLimits,
    Current,
    GroupEpoch,
    LimitsOf,
    MemberCurrent,
    MemberSaid,
    Place,
    Places,
    Said,
    Target,
    TargetEpoch,
)
from oncelog.server.groups.embedded import Malformed, Subscription, read_share, read_subscription, share_bytes
from oncelog.server.groups.group import Group
from oncelog.server.groups.member import Member
from oncelog.server.groups.messages import GroupLimits
from oncelog.server.groups.subscription import CONSUMER_PROTOCOL

MALFORMED = "the embedded consumer protocol is malformed."
CUSTOM_ASSIGNOR = (
    "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default assignor "
    "before re-attempting the upgrade."
)
# librdkafka adds to each share what its member said as it joined: with these assignors, what it had, and no more than a
# hint. Kafka refuses the group even so, from its second generation on.
STICKY = frozenset({"sticky", "cooperative-sticky"})


class _Moved(NamedTuple):
    member_id: str
    said: Said
    has: Places


def upgraded(former: Group, limits_of: LimitsOf, topics: KnownTopics, now: Now) -> ConsumerGroup:
    """The upgraded group, with all that is to be stored of it (`members.done`). Raises KafkaError."""
    _check(former, limits_of(former.group_id))
    group = ConsumerGroup(former.group_id, limits_of, former.made_by)
    try:
        moved = list(_read(former, topics))
    except Malformed:
        raise _refused(former, MALFORMED) from None
    for change in _changes(moved, former.generation, topics):
        group.members.do(change)
    for each in moved:
        group.sharing.begin_session(each.member_id, each.said, now)
    return group


def downgraded(group: ConsumerGroup, limits: GroupLimits, topics: KnownTopics, now: Now) -> Group:
    """The classic group that it becomes, since all members speak that protocol. The generation is the members'
    epoch."""
    return Group.moved(group.group_id, group.members.epoch, _classic_members(group, topics), limits, now, group.made_by)


def _check(former: Group, limits: ConsumerLimits) -> None:
    if not limits.may_upgrade:
        raise _refused(former, "online upgrade is disabled.")
    if former.protocol_type != CONSUMER_PROTOCOL:
        raise _refused(former, "the group does not use the consumer embedded protocol.")
    if len(former.members) > min(limits.max_members, MOST_MOVED):
        raise _refused(former, "the group size exceeds the consumer group maximum size.")


def _refused(former: Group, why: str) -> KafkaError:
    text = f"Cannot upgrade classic group {former.group_id} to consumer group because {why}"
    return KafkaError(ErrorCode.group_id_not_found, text)


def _read(former: Group, topics: KnownTopics) -> Iterator[_Moved]:
    """A member has what it was told last, and what it had as it joined last if nobody was given that: it may not have
    heard yet that it is to give it up. (Kafka goes by the first alone.)"""
    known: dict[bytes, Subscription] = {}  # most members say the same
    names = claimed = 0  # by all members together: some may claim the same
    shares = dict(_shares(former, topics))
    taken = set[Place]().union(*shares.values())
    if sum(map(len, shares.values())) > len(taken):
        raise Malformed("partitions that two members have")
    for member in former.members:
        classic = Classic(session_timeout_ms=member.session_timeout_ms, protocols=tuple(member.protocols.items()))
        subscription = known.get(classic.metadata)
        if subscription is None:
            subscription = known[classic.metadata] = read_subscription(classic.metadata)
            names += len(subscription.topics) + len(subscription.has)
            _check_count(names, MOST_MOVED_NAMES)
        claimed += sum(map(len, subscription.has.values()))
        _check_count(claimed, MOST_PLACES)
        had = places_of(subscription.has, topics) - taken
        taken |= had
        _check_count(len(taken), MOST_PLACES)
        said = said_of(member, subscription, classic)
        yield _Moved(member.member_id, said, shares[member.member_id] | had)


def _shares(former: Group, topics: KnownTopics) -> Iterator[tuple[str, Places]]:
    count = 0
    is_custom = former.protocol_name not in STICKY
    for member in former.members:
        share = read_share(member.assignment)
        if share.has_user_data and is_custom:
            raise _refused(former, CUSTOM_ASSIGNOR)
        count += sum(map(len, share.partitions.values()))
        _check_count(count, MOST_PLACES)
        yield member.member_id, places_of(share.partitions, topics)


def _check_count(count: int, most: int) -> None:
    if count > most:
        raise Malformed(f"{count}, where {most} are the most")


def _changes(moved: list[_Moved], epoch: int, topics: KnownTopics) -> Iterator[Change]:
    names = frozenset().union(*(each.said.topics for each in moved))
    for member_id, said, _ in moved:
        yield MemberSaid(member_id, said)
    # Where something is nobody's, it is as if the topics had changed: who comes may read nothing else than before.
    yield GroupEpoch(epoch, topics_hash(names, topics) if _is_shared(moved, topics) else 0)
    for member_id, _, has in moved:
        yield Target(member_id, has)
    yield TargetEpoch(epoch)
    for member_id, _, has in moved:
        current = Current(epoch=epoch, previous_epoch=epoch, assigned=dict.fromkeys(has, epoch), revoking={})
        yield MemberCurrent(member_id, current)


def _is_shared(moved: Iterable[_Moved], topics: KnownTopics) -> bool:
    """Whether each partition that they read is one's that reads it: no rebalance was going on, and the leader had seen
    all of them."""
    counts: dict[bytes, int] = {}
    held = 0
    for _, said, has in moved:
        known = {each.topic_id: each.partitions for each in map(topics.get, said.topics) if each is not None}
        if any(place.topic_id not in known for place in has):
            return False
        counts.update(known)
        held += len(has)
    return held == sum(counts.values())


def _classic_members(group: ConsumerGroup, topics: KnownTopics) -> Iterator[Member]:
    """Each with what it has, also what it is to give up: it may not have heard that yet, and the group may go over
    again before it says so. (Kafka stores what it was to have.)"""
    for member_id, said in group.members.said.items():
        classic, current = said.classic, group.members.current_of(member_id)
        assert classic is not None
        has = frozenset(current.assigned).union(current.revoking)
        yield Member(
            member_id=member_id,
            instance_id=said.instance_id,
            client_id=said.client_id,
            client_host=said.client_host,
            session_timeout_ms=classic.session_timeout_ms,
            rebalance_timeout_ms=said.rebalance_timeout_ms,
            protocols=dict(classic.protocols),
            assignment=share_bytes(classic.metadata, names_of(has, topics)),
        )
