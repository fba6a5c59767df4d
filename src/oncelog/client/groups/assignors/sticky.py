"""Partitions are spread as evenly as can be, and stay where they are as far as that allows.

A group is balanced when no partition could go to a member that has two or more fewer than the one that has it. Kafka's
assignors stop at the same point; which of the possible partitions moves is theirs to choose and ours.
"""

from collections.abc import Mapping, Sequence
from struct import Struct
from typing import Final

from oncelog.client.groups.assignors.assignor import Candidate, Counts, Shares, subscribers_by_topic
from oncelog.client.groups.assignors.balancing import Balance
from oncelog.client.groups.protocol import MalformedMessage, Reader, encode_partitions
from oncelog.slots import AnyPlace

_int32: Final = Struct(">i")

Claim = tuple[int, frozenset[AnyPlace]]  # a generation, and what a member had in it


class StickyAssignor:
    """Members give up everything before they join, so what they had travels in their userdata."""

    name = "sticky"
    is_cooperative = False

    def userdata(self, previous: frozenset[AnyPlace], generation: int) -> bytes:
        return encode_partitions(previous) + _int32.pack(generation)

    def assign(self, counts: Counts, members: Sequence[Candidate]) -> Shares:
        return _balanced(counts, members, {member.member_id: self._claim(member) for member in members})

    @staticmethod
    def _claim(member: Candidate) -> Claim:
        """The claim of a member. Unreadable bytes are those of another assignor of this name, and no claim."""
        reader = Reader(member.subscription.userdata)
        try:
            partitions = reader.partitions()
            return reader.int32(), partitions
        except MalformedMessage:
            return -1, frozenset()


class CooperativeStickyAssignor:
    """Members keep what they have while they join. What is to move is taken away first and given out a round later."""

    name = "cooperative-sticky"
    is_cooperative = True

    def userdata(self, previous: frozenset[AnyPlace], generation: int) -> bytes:
        """The generation, for leaders that are too old to read it where it stands now."""
        return _int32.pack(generation)

    def assign(self, counts: Counts, members: Sequence[Candidate]) -> Shares:
        claims = {member.member_id: self._claim(member) for member in members}
        shares = _balanced(counts, members, claims)
        held = {partition for member in members for partition in member.subscription.owned}
        return {
            member.member_id: [
                partition
                for partition in shares[member.member_id]
                if partition in member.subscription.owned or partition not in held
            ]
            for member in members
        }

    @staticmethod
    def _claim(member: Candidate) -> Claim:
        """librdkafka writes -1 for the generation and tells it in its userdata, behind the partitions."""
        subscription = member.subscription
        generation = subscription.generation
        if generation < 0 and len(subscription.userdata) >= _int32.size:
            (generation,) = _int32.unpack_from(subscription.userdata, len(subscription.userdata) - _int32.size)
        return generation, subscription.owned


def _balanced(counts: Counts, members: Sequence[Candidate], claims: Mapping[str, Claim]) -> Shares:
    balance = Balance(counts, subscribers_by_topic(counts, members), sorted(members, key=lambda member: member.order))
    owners, former = _owners(claims)
    balance.keep(owners)
    balance.give_out_rest()
    balance.even_out(former)
    return balance.shares()


def _owners(claims: Mapping[str, Claim]) -> tuple[dict[AnyPlace, str], dict[AnyPlace, set[str]]]:
    """The owner of each partition by the newest claim, and all earlier ones. Two claims of one generation cancel each
    other."""
    newest: dict[AnyPlace, tuple[int, str | None]] = {}
    former: dict[AnyPlace, set[str]] = {}
    for member_id, (generation, partitions) in sorted(claims.items()):
        for partition in partitions:
            former.setdefault(partition, set()).add(member_id)
            known = newest.get(partition)
            if known is None or generation > known[0]:
                newest[partition] = generation, member_id
            elif generation == known[0]:
                newest[partition] = generation, None
    return {partition: owner for partition, (_, owner) in newest.items() if owner is not None}, former
