"""Partitions moved between members until they are as even as their subscriptions let them be."""

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush

from oncelog.client.groups.assignors.assignor import Candidate, Counts, Shares
from oncelog.slots import AnyPlace


class Balance:
    """The owners of partitions while they are being worked out. Members are numbers here, in Kafka's order."""

    def __init__(
        self, counts: Counts, subscribers: Mapping[str, Sequence[Candidate]], members: Sequence[Candidate]
    ) -> None:
        self._members = [member.member_id for member in members]
        number = {member_id: position for position, member_id in enumerate(self._members)}
        self._wanting = {
            topic: tuple(number[each.member_id] for each in wanting) for topic, wanting in subscribers.items()
        }
        self._counts = counts
        self._number = number
        self._owned: list[dict[str, set[int]]] = [{} for _ in self._members]
        self._loads = [0] * len(self._members)
        self._kept: set[AnyPlace] = set()

    def keep(self, owners: Mapping[AnyPlace, str]) -> None:
        """Leave every partition that still is one with its owner, if that still wants it."""
        for partition, member_id in sorted(owners.items()):
            topic, index = partition
            owner = self._number[member_id]
            if owner in self._wanting.get(topic, ()) and 0 <= index < self._counts[topic]:
                self._give(owner, topic, index)
                self._kept.add(partition)

    def give_out_rest(self) -> None:
        """Every other partition to the member that has least; first those that fewest want, the hardest to place."""
        heaps: dict[tuple[int, ...], list[tuple[int, int]]] = {}
        for topic, wanting in sorted(self._wanting.items(), key=lambda each: (len(each[1]), each[0])):
            heap = heaps.setdefault(wanting, [])
            if not heap:
                heap += [(self._loads[member], member) for member in wanting]
                heapify(heap)
            for index in range(self._counts[topic]):
                if (topic, index) not in self._kept:
                    self._give(self._least(heap), topic, index)

    def _least(self, heap: list[tuple[int, int]]) -> int:
        """Loads only grow here, so an entry that is out of date can be put back where it belongs."""
        while True:
            load, member = heappop(heap)
            if load == self._loads[member]:
                heappush(heap, (load + 1, member))
                return member
            heappush(heap, (self._loads[member], member))

    def even_out(self, former: Mapping[AnyPlace, set[str]]) -> None:
        """Move one partition at a time, from who has most to who has least of those that want it, while the difference
        is two or more. Each move brings the sum of the squares of the loads down, so there is an end; and with one
        subscription for all, nobody gives more than it must."""
        while self._move_one(former):
            continue

    def _move_one(self, former: Mapping[AnyPlace, set[str]]) -> bool:
        takers = {wanting: min(wanting, key=self._rank) for wanting in set(self._wanting.values())}
        least = min((self._loads[taker] for taker in takers.values()), default=0)
        for giver in sorted(range(len(self._members)), key=lambda member: (-self._loads[member], member)):
            if self._loads[giver] < least + 2:
                break
            topics = sorted(topic for topic, indexes in self._owned[giver].items() if indexes)
            topic = min(topics, key=lambda topic: self._rank(takers[self._wanting[topic]]))
            taker = takers[self._wanting[topic]]
            if self._loads[taker] + 2 <= self._loads[giver]:
                same = [each for each in topics if takers[self._wanting[each]] == taker]
                self._move(giver, taker, same, former)
                return True
        return False

    def _rank(self, member: int) -> tuple[int, int]:
        return self._loads[member], member

    def _move(self, giver: int, taker: int, topics: Sequence[str], former: Mapping[AnyPlace, set[str]]) -> None:
        """Move one of the giver's partitions: rather one that the taker had before, or that the giver had not."""
        taker_id = self._members[taker]

        def reluctance(partition: AnyPlace) -> tuple[bool, bool, str, int]:
            is_kept = partition in self._kept
            return taker_id not in former.get(partition, ()), is_kept, partition[0], -partition[1]

        places = ((topic, index) for topic in topics for index in self._owned[giver][topic])
        topic, index = min(places, key=reluctance)
        self._owned[giver][topic].remove(index)
        self._loads[giver] -= 1
        self._give(taker, topic, index)

    def _give(self, member: int, topic: str, index: int) -> None:
        self._owned[member].setdefault(topic, set()).add(index)
        self._loads[member] += 1

    def shares(self) -> Shares:
        return {
            member_id: sorted((topic, index) for topic, indexes in owned.items() for index in indexes)
            for member_id, owned in zip(self._members, self._owned, strict=True)
        }
