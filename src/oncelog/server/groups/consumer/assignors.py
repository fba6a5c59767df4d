"""Who is to have which partition: Kafka's assignors `uniform` and `range`. Racks change nothing, as in Kafka since 4.0.

`uniform` gives all members as many partitions as can be, give or take one, and leaves them what they have where it can.
`range` gives each member a run of neighbours of each topic, so that the same partitions of several topics meet; static
members keep their turn by their names.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final, NamedTuple

from oncelog.server.groups.consumer.values import NOWHERE, Place, Places

MOST_ROUNDS = 10  # of balancing where members are subscribed to different topics


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
    readers: dict[bytes, list[str]] = {}
    for member in order:
        for topic_id in member.topics:
            readers.setdefault(topic_id, []).append(member.member_id)
    shares: dict[str, list[Place]] = {each.member_id: [] for each in members}
    for topic_id, member_ids in readers.items():
        least, more = divmod(counts[topic_id], len(member_ids))
        start = 0
        for at, member_id in enumerate(member_ids):
            end = start + least + (at < more)
            shares[member_id] += [Place(topic_id, index) for index in range(start, end)]
            start = end
    return {member_id: frozenset(places) for member_id, places in shares.items()}


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
    # Who has most keeps one more: nothing moves only because somebody else was looked at first.
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


def _uniform_unlike(members: Sequence[Subscriber], counts: Counts) -> Shares:
    """Partitions of the topics with the fewest readers first, each to the reader with the fewest; then from those with
    more to those with fewer, until nobody has two more than another who could have them."""
    readers: dict[bytes, list[str]] = {}
    for member in members:
        for topic_id in member.topics:
            readers.setdefault(topic_id, []).append(member.member_id)
    owner: dict[Place, str] = {}
    for member in members:
        for place in sorted(member.had):
            if place.topic_id in member.topics and place.partition < counts[place.topic_id]:
                owner.setdefault(place, member.member_id)
    load = {member.member_id: 0 for member in members}
    for member_id in owner.values():
        load[member_id] += 1
    topics = sorted(readers, key=lambda each: (len(readers[each]), each))
    for topic_id in topics:
        _give(topic_id, counts[topic_id], readers[topic_id], owner, load)
    for _ in range(MOST_ROUNDS):
        if not sum([_even_out(each, counts[each], readers[each], owner, load) for each in topics]):
            break
    shares: dict[str, list[Place]] = {member.member_id: [] for member in members}
    for place, member_id in owner.items():
        shares[member_id].append(place)
    return {member_id: frozenset(places) for member_id, places in shares.items()}


def _give(topic_id: bytes, count: int, readers: list[str], owner: dict[Place, str], load: dict[str, int]) -> None:
    heap = [(load[each], each) for each in readers]
    heapify(heap)
    for index in range(count):
        place = Place(topic_id, index)
        if place not in owner:
            member_id = owner[place] = heap[0][1]
            load[member_id] += 1
            heapreplace(heap, (load[member_id], member_id))


def _even_out(topic_id: bytes, count: int, readers: list[str], owner: dict[Place, str], load: dict[str, int]) -> int:
    """How many have moved."""
    heap = [(load[each], each) for each in readers]
    heapify(heap)
    moved = 0
    for index in range(count):
        place = Place(topic_id, index)
        former = owner[place]
        while heap[0][0] != load[heap[0][1]]:  # it has another load by now, and stands there with that, too
            heappop(heap)
        least_load, least = heap[0]
        if load[former] - least_load >= 2:
            owner[place] = least
            load[former] -= 1
            load[least] += 1
            heapreplace(heap, (load[least], least))
            heappush(heap, (load[former], former))
            moved += 1
    return moved
