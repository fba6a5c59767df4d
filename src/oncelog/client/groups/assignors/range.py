"""Neighbouring partitions of a topic go to each member; the first ones get one more where it does not divide."""

from collections.abc import Sequence

from oncelog.client.groups.assignors.assignor import Candidate, Counts, Shares, subscribers_by_topic
from oncelog.slots import AnyPlace


class RangeAssignor:
    name = "range"
    is_cooperative = False

    def userdata(self, previous: frozenset[AnyPlace], generation: int) -> bytes:
        return b""

    def assign(self, counts: Counts, members: Sequence[Candidate]) -> Shares:
        shares: Shares = {member.member_id: [] for member in members}
        for topic, wanting in subscribers_by_topic(counts, members).items():
            each, more = divmod(counts[topic], len(wanting))
            start = 0
            for position, member in enumerate(wanting):
                end = start + each + (position < more)
                shares[member.member_id] += [(topic, partition) for partition in range(start, end)]
                start = end
        return shares
