"""What lanes and drivers ask of the cluster that rows go to, beside writing rows."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from oncelog.client.errors import KafkaError, error_of
from oncelog.client.net.brokers import Brokers
from oncelog.client.net.metadata import Metadata
from oncelog.client.properties import ProducerSettings
from oncelog.client.saving.asking import end_offsets
from oncelog.client.saving.fencing import kafka_pid
from oncelog.client.saving.saved import SavedPartition, SavedProducer, SavedTopic
from oncelog.clock import wall_s
from oncelog.slots import Identity, Place, Span
from oncelog.spark.sink.errors import SinkRefused

if TYPE_CHECKING:
    from oncelog.spark.sink.comparing import Kept


class Destination(Protocol):
    """The tests have a twin of it in memory."""

    async def new_lane(self, topic: str, count: int | None) -> SavedProducer:
        """A saved producer under a fresh identity, that has written nothing to this topic."""

    async def further_topic(self, lane: SavedProducer, topic: str, count: int | None) -> SavedProducer:
        """The same for one topic more, under the identity that the lane has."""

    async def added_partitions(self, lane: SavedProducer, topic: str) -> SavedProducer | None:
        """The same for partitions that the topic has got since, and for these alone; None where it has got none."""

    async def counts(self, topics: Mapping[str, str]) -> dict[str, int]:
        """How many partitions the topics have now, which are given by their names, with their ids where these are
        known; raises where one is not there any more."""

    async def ends(self, places: Iterable[Place]) -> dict[Place, int]:
        """Their high watermarks."""

    async def first_difference(
        self, before: SavedProducer, after: SavedProducer, kept: "Kept", topic: str | None
    ) -> str | None:
        """Between what a lane has written of a batch and its rows now."""


class KafkaDestination:
    def __init__(self, brokers: Brokers, settings: ProducerSettings) -> None:
        self._brokers = brokers
        self._settings = settings  # the user's

    async def new_lane(self, topic: str, count: int | None) -> SavedProducer:
        pid, epoch, _ = await kafka_pid(self._brokers)
        topics = {topic: await self._begin(Identity(pid, epoch), topic, count)}
        return SavedProducer(
            cluster_id=self._brokers.metadata.cluster_id or "",
            made_at_ms=int(wall_s() * 1000),
            partitioner=self._settings.partitioner,
            keyless_run=self._settings.oncelog_keyless_run,
            topics=topics,
        )

    async def further_topic(self, lane: SavedProducer, topic: str, count: int | None) -> SavedProducer:
        return replace(lane, topics={topic: await self._begin(identity_of(lane), topic, count)})

    async def added_partitions(self, lane: SavedProducer, topic: str) -> SavedProducer | None:
        known = lane.topics[topic]
        count = (await self.counts({topic: known.topic_id}))[topic]
        if count <= known.partition_count:
            return None
        ends = await self.ends(Place(topic, at) for at in range(known.partition_count, count))
        return only_added(lane, topic, count, ends)

    async def counts(self, topics: Mapping[str, str]) -> dict[str, int]:
        metadata = await self._brokers.refresh(topics)
        found: dict[str, int] = {}
        for topic, topic_id in sorted(topics.items()):
            if not _is_there(metadata, topic):
                raise SinkRefused(
                    f"topic {topic!r}, to which this sink writes, is not there any more; what was written to it is gone"
                )
            known = metadata.topics[topic]
            if topic_id and str(known.topic_id or "") != topic_id:
                raise SinkRefused(
                    f"topic {topic!r}, to which this sink writes, was deleted and made again: what was written before "
                    "is gone. Go on with a new `sink.name`, and `sink.first.batch` = the batch that is next"
                )
            found[topic] = len(known.partitions)
        return found

    async def ends(self, places: Iterable[Place]) -> dict[Place, int]:
        return await end_offsets(self._brokers, places)

    async def first_difference(
        self, before: SavedProducer, after: SavedProducer, kept: "Kept", topic: str | None
    ) -> str | None:
        from oncelog.spark.sink.comparing import first_difference  # the compiled loops, which drivers do without

        await self._brokers.refresh(after.topics)
        return await first_difference(self._brokers, before, after, kept, topic)

    async def _begin(self, identity: Identity, topic: str, count: int | None) -> SavedTopic:
        metadata = await self._brokers.refresh([topic])
        if not _is_there(metadata, topic):
            metadata = await self._made(topic)
        known = metadata.topics[topic]
        places = [Place(topic, at) for at in range(count or len(known.partitions))]
        return SavedTopic(
            topic_id=str(known.topic_id or ""),
            partition_count=len(places),
            keyless_counter=0,
            partitions=untouched(identity, await self.ends(places)),
        )

    async def _made(self, topic: str) -> Metadata:
        """Some brokers make topics that are asked for, where the user does not forbid it."""
        if self._settings.allow_auto_create_topics:
            making = Brokers(self._settings)
            try:
                await making.start()
                await making.refresh([topic])
            finally:
                await making.close()
        metadata = await self._brokers.refresh([topic])
        if not _is_there(metadata, topic):
            self._brokers.forget([topic])
            known = metadata.topics.get(topic)
            code = KafkaError.UNKNOWN_TOPIC_OR_PART if known is None else known.error_code
            raise SinkRefused(f"rows cannot be written to topic {topic!r}: {error_of(code).str()}")
        return metadata


def identity_of(lane: SavedProducer) -> Identity:
    """A lane has one, for all its topics."""
    (identity,) = lane.identities
    return identity


def untouched(identity: Identity, ends: Mapping[Place, int]) -> dict[int, SavedPartition]:
    """Partitions that this identity has not written to when they ended there."""
    return {place.partition: SavedPartition(next_offset=end, spans=(Span(identity, 0),)) for place, end in ends.items()}


def moved(lane: SavedProducer, ends: Mapping[Place, int]) -> SavedProducer:
    """With offsets that are known to have nothing below them that is still to be found."""
    topics = {}
    for name, topic in lane.topics.items():
        partitions = {
            at: replace(each, next_offset=max(each.next_offset, ends.get(Place(name, at), 0)))
            for at, each in topic.partitions.items()
        }
        topics[name] = replace(topic, partitions=partitions)
    return replace(lane, topics=topics)


def grown(lane: SavedProducer, counts: Mapping[str, int], ends: Mapping[Place, int]) -> SavedProducer:
    """With the partitions that were added to its topics since."""
    identity = identity_of(lane)
    topics = {}
    for name, topic in lane.topics.items():
        added = {Place(name, at): ends[Place(name, at)] for at in range(topic.partition_count, counts[name])}
        partitions = {**topic.partitions, **untouched(identity, added)}
        topics[name] = replace(topic, partition_count=max(topic.partition_count, counts[name]), partitions=partitions)
    return replace(lane, topics=topics)


def together(lane: Sequence[SavedProducer]) -> SavedProducer:
    """What a lane claimed piece by piece: topics, and partitions that were added to them."""
    topics: dict[str, SavedTopic] = {}
    for each in lane:
        for name, topic in each.topics.items():
            known = topics[name].partitions if name in topics else {}
            topics[name] = replace(topic, partitions={**known, **topic.partitions})
    return replace(lane[0], topics=topics)


def only_added(lane: SavedProducer, topic: str, count: int, ends: Mapping[Place, int]) -> SavedProducer:
    """Of a topic that has so many partitions now, those that the lane does not have yet."""
    partitions = untouched(identity_of(lane), ends)
    return replace(lane, topics={topic: replace(lane.topics[topic], partition_count=count, partitions=partitions)})


def _is_there(metadata: Metadata, topic: str) -> bool:
    known = metadata.topics.get(topic)
    return known is not None and bool(known.partitions)
