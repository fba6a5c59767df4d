"""The owners of partitions, by Kafka's assignors `uniform` and `range`. Racks change nothing, as in Kafka since 4.0.

`uniform` gives all members as many partitions as can be, give or take one, and leaves them what they have where it can.
`range` gives each member a run of neighbours of each topic, so that the same partitions of several topics meet; static
members keep their turn by their names.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace, merge
from typing import Final, NamedTuple, TypeVar

from oncelog.server.groups.consumer.values import NOWHERE, Place, Places

MOST_ROUNDS = 10  # of balancing where members are subscribed to different topics

Kind = TypeVar("Kind")  # of members that read the same


class Subscriber(NamedTuple):
    """A member, with the ids of the topics that it reads, and what it is to have so far."""

    member_id: str
    instance_id: str | None
    topics: frozenset[bytes]
    had: Places = NOWHERE


Counts = Mapping[bytes, int]  # partitions of each topic
Shares = dict[str, Places]
Assignor = Callable[[Sequence[Subscriber], Counts], Shares]


def uniform(members: Sequence[Subscriber], counts: Counts) -> Shares:
    if len({each.topics for each in members}) <= 1:
        return _uniform_alike(members, counts)
    return _uniform_unlike(members, counts)


def range_(members: Sequence[Subscriber], counts: Counts) -> Shares:
    order = sorted(members, key=lambda each: (each.instance_id is None, each.instance_id or each.member_id))
    shares: list[list[Place]] = [[] for _ in order]
    for topic_id, kinds in _readers(_kinds(order)).items():
        least, more = divmod(counts[topic_id], sum(map(len, kinds)))
        start = 0
        for nth, at in enumerate(merge(*kinds)):
            end = start + least + (nth < more)
            if end == start:
                break  # nor is there any for those behind
            shares[at] += [Place(topic_id, index) for index in range(start, end)]
            start = end
    return {each.member_id: frozenset(places) for each, places in zip(order, shares, strict=True)}


ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": uniform, "range": range_}


def _all_places(topics: Iterable[bytes], counts: Counts) -> list[Place]:
    return [Place(topic_id, index) for topic_id in sorted(topics) for index in range(counts[topic_id])]


def _uniform_alike(members: Sequence[Subscriber], counts: Counts) -> Shares:
    if not members:
        return {}
    places = _all_places(members[0].topics, counts)
    known = frozenset(places)
    least, more = divmod(len(places), len(members))
    kept: dict[str, Places] = {}
    taken: set[Place] = set()
    for member in members:
        kept[member.member_id] = had = (member.had & known) - taken
        taken |= had
    quotas: dict[str, int] = {}
    # The member with most places keeps one more: nothing moves only because another one was looked at first.
    for member_id in sorted(kept, key=lambda each: -len(kept[each])):
        quotas[member_id] = least + (more > 0)
        more -= more > 0
    for member_id, had in kept.items():
        if len(had) > quotas[member_id]:
            kept[member_id] = frozenset(sorted(had)[: quotas[member_id]])
    given = frozenset().union(*kept.values())
    left = [place for place in places if place not in given]
    at = 0
    for member_id, had in kept.items():
        missing = quotas[member_id] - len(had)
        if missing:
            kept[member_id] = had | frozenset(left[at : at + missing])
            at += missing
    return kept


def _kinds(members: Iterable[Subscriber]) -> dict[frozenset[bytes], list[int]]:
    """The places of members that read the same topics. Thousands of members are of a few kinds, and each topic looks at
    these kinds only."""
    found: dict[frozenset[bytes], list[int]] = {}
    for at, member in enumerate(members):
        found.setdefault(member.topics, []).append(at)
    return found


def _readers(kinds: Mapping[frozenset[bytes], Kind]) -> dict[bytes, list[Kind]]:
    found: dict[bytes, list[Kind]] = {}
    for topics, kind in kinds.items():
        for topic_id in topics:
            found.setdefault(topic_id, []).append(kind)
    return found


def _uniform_unlike(members: Sequence[Subscriber], counts: Counts) -> Shares:
    """Partitions of the topics with the fewest readers first, each to the reader with the fewest; then from those with
    more to those with fewer, until nobody has two more than another who could have them."""
    owner: dict[Place, str] = {}
    for member in members:
        for place in sorted(member.had):
            if place.topic_id in member.topics and place.partition < counts[place.topic_id]:
                owner.setdefault(place, member.member_id)
    loads = _Loads(members, owner.values())
    topics = loads.topics()
    for topic_id in topics:
        loads.give(topic_id, counts[topic_id], owner)
    for _ in range(MOST_ROUNDS):
        if not sum([loads.even_out(each, counts[each], owner) for each in topics]):
            break
    shares: dict[str, list[Place]] = {member.member_id: [] for member in members}
    for place, member_id in owner.items():
        shares[member_id].append(place)
    return {member_id: frozenset(places) for member_id, places in shares.items()}


class _Loads:
    """The number of places of each member, and the member with fewest among the readers of a topic.

    The members of a kind are a heap. One that has another load by now stands there with that, too."""

    def __init__(self, members: Sequence[Subscriber], owners: Iterable[str]) -> None:
        self._load = {member.member_id: 0 for member in members}
        for member_id in owners:
            self._load[member_id] += 1
        self._kind_of: dict[str, int] = {}
        self._heaps: list[list[tuple[int, str]]] = []
        kinds = _kinds(members)
        for number, places in enumerate(kinds.values()):
            names = [members[at].member_id for at in places]
            self._kind_of.update(dict.fromkeys(names, number))
            self._heaps.append([(self._load[each], each) for each in names])
            heapify(self._heaps[-1])
        self._size = [len(each) for each in self._heaps]
        self._readers = _readers({topics: number for number, topics in enumerate(kinds)})

    def topics(self) -> list[bytes]:
        """The topics, those with the fewest readers first."""
        counts = {topic: sum([self._size[kind] for kind in kinds]) for topic, kinds in self._readers.items()}
        return sorted(counts, key=lambda each: (counts[each], each))

    def give(self, topic_id: bytes, count: int, owner: dict[Place, str]) -> None:
        """Give out the places that are free."""
        heap = self._of(topic_id)
        for index in range(count):
            place = Place(topic_id, index)
            if place not in owner:
                owner[place] = self._add(heap)

    def even_out(self, topic_id: bytes, count: int, owner: dict[Place, str]) -> int:
        """Even out the places of a topic; the number of places that have moved."""
        heap, load = self._of(topic_id), self._load
        moved = 0
        for index in range(count):
            place = Place(topic_id, index)
            former = owner[place]
            if load[former] - self._least(heap)[0] >= 2:
                owner[place] = self._add(heap)
                load[former] -= 1
                kind = self._kind_of[former]
                heappush(self._heaps[kind], (load[former], former))
                heappush(heap, (load[former], former, kind))
                moved += 1
        return moved

    def _of(self, topic_id: bytes) -> list[tuple[int, str, int]]:
        """The members with the fewest partitions, one of each kind that reads the topic, as a heap."""
        heap = [(*self._first(kind), kind) for kind in self._readers[topic_id]]
        heapify(heap)
        return heap

    def _first(self, kind: int) -> tuple[int, str]:
        heap = self._heaps[kind]
        while heap[0][0] != self._load[heap[0][1]]:
            heappop(heap)
        return heap[0]

    def _least(self, heap: list[tuple[int, str, int]]) -> tuple[int, str, int]:
        while True:
            kind = heap[0][2]
            first = (*self._first(kind), kind)
            if first == heap[0]:
                return first
            heapreplace(heap, first)

    def _add(self, heap: list[tuple[int, str, int]]) -> str:
        """Give one more place to the member that has fewest."""
        load, member_id, kind = self._least(heap)
        self._load[member_id] = load + 1
        heapreplace(self._heaps[kind], (load + 1, member_id))
        return member_id
