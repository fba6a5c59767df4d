"""The changes of a lane's saved producer: it gains topics and partitions, and its offsets move on. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from oncelog.client import SavedProducer
from oncelog.client.door import CannotResume, SavedTopic
from oncelog.slots import Identity, Place, Span
from oncelog.slots.chain import SavedPartition
from oncelog.slots.errors import CannotTell
from oncelog.slots.resuming import check_end


def identity_of(lane: SavedProducer) -> Identity:
    """A lane has one, for all its topics."""
    (identity,) = lane.identities
    return identity


def places_of(lane: SavedProducer) -> list[Place]:
    return [Place(name, at) for name, topic in lane.topics.items() for at in topic.partitions]


def untouched(identity: Identity, ends: Mapping[Place, int]) -> dict[int, SavedPartition]:
    """Partitions that this identity has not written to when they ended there."""
    return {place.partition: SavedPartition(next_offset=end, spans=(Span(identity, 0),)) for place, end in ends.items()}


def check_ends(lane: SavedProducer, ends: Mapping[Place, int]) -> None:
    """Raises CannotResume where a partition ends below what the lane has had acknowledged there."""
    for place, each in lane.partitions.items():
        try:
            check_end(place, each, ends[place])
        except CannotTell as cut:
            raise CannotResume(cut.what) from None


def moved(lane: SavedProducer, ends: Mapping[Place, int]) -> SavedProducer:
    """The lane with offsets that are known to have nothing below them that is still to be found."""
    topics = {}
    for name, topic in lane.topics.items():
        partitions = {
            at: replace(each, next_offset=max(each.next_offset, ends.get(Place(name, at), 0)))
            for at, each in topic.partitions.items()
        }
        topics[name] = replace(topic, partitions=partitions)
    return replace(lane, topics=topics)


def grown(lane: SavedProducer, counts: Mapping[str, int], ends: Mapping[Place, int]) -> SavedProducer:
    """The lane with the partitions that were added to its topics since."""
    identity = identity_of(lane)
    topics = {}
    for name, topic in lane.topics.items():
        added = {Place(name, at): ends[Place(name, at)] for at in range(topic.partition_count, counts[name])}
        partitions = {**topic.partitions, **untouched(identity, added)}
        topics[name] = replace(topic, partition_count=max(topic.partition_count, counts[name]), partitions=partitions)
    return replace(lane, topics=topics)


def together(lane: Sequence[SavedProducer]) -> SavedProducer:
    """The claims of a lane, put together: topics, and partitions that were added to them."""
    topics: dict[str, SavedTopic] = {}
    for each in lane:
        for name, topic in each.topics.items():
            known = topics[name].partitions if name in topics else {}
            topics[name] = replace(topic, partitions={**known, **topic.partitions})
    return replace(lane[0], topics=topics)


def only_added(lane: SavedProducer, topic: str, count: int, ends: Mapping[Place, int]) -> SavedProducer:
    """The lane with only those partitions of a topic, which has `count` now, that it does not have yet."""
    partitions = untouched(identity_of(lane), ends)
    return replace(lane, topics={topic: replace(lane.topics[topic], partition_count=count, partitions=partitions)})
