"""The question to an assignor, and its answer."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from oncelog.client.groups.protocol import Subscription
from oncelog.slots import AnyPlace

Counts = Mapping[str, int]  # partitions of each topic that there is
Shares = dict[str, list[AnyPlace]]  # by member id; every member has an entry


@dataclass(frozen=True, slots=True)
class Candidate:
    """A member, as its leader sees it."""

    member_id: str
    instance_id: str | None
    subscription: Subscription

    @property
    def order(self) -> tuple[bool, str]:
        """Kafka's order: members with a name of their own first, by that name, so that restarts change nothing."""
        return (self.instance_id is None, self.member_id if self.instance_id is None else self.instance_id)


class Assignor(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def is_cooperative(self) -> bool:
        """Whether members keep their partitions while they join, and give up one by one what goes elsewhere."""

    def userdata(self, previous: frozenset[AnyPlace], generation: int) -> bytes:
        """The bytes that a member adds to its subscription: the partitions it had, and in which generation."""

    def assign(self, counts: Counts, members: Sequence[Candidate]) -> Shares: ...


def subscribers_by_topic(counts: Counts, members: Iterable[Candidate]) -> dict[str, list[Candidate]]:
    """The members that want each existing topic, in Kafka's order; topics by name."""
    in_order = sorted(members, key=lambda member: member.order)
    found = {topic: [each for each in in_order if topic in each.subscription.topics] for topic in sorted(counts)}
    return {topic: wanting for topic, wanting in found.items() if wanting and counts[topic] > 0}
