"""All partitions of all topics in a row, dealt out to the members in turn."""

from collections.abc import Sequence

from oncelog.client.groups.assignors.assignor import Candidate, Counts, Shares, subscribers_by_topic
from oncelog.slots import AnyPlace


class RoundRobinAssignor:
    name = "roundrobin"
    is_cooperative = False

    def userdata(self, previous: frozenset[AnyPlace], generation: int) -> bytes:
        return b""

    def assign(self, counts: Counts, members: Sequence[Candidate]) -> Shares:
        shares: Shares = {member.member_id: [] for member in members}
        in_order = sorted(members, key=lambda member: member.order)
        turn = 0
        for topic in subscribers_by_topic(counts, members):
            for partition in range(counts[topic]):
                while topic not in in_order[turn % len(in_order)].subscription.topics:
                    turn += 1
                shares[in_order[turn % len(in_order)].member_id].append((topic, partition))
                turn += 1
        return shares
