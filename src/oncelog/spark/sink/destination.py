"""Questions of lanes and drivers to the cluster that rows go to."""

import asyncio
from collections.abc import Awaitable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from oncelog.client import KafkaError, KafkaException, SavedProducer
from oncelog.client.door import (
    UNKNOWN,
    Brokers,
    CannotResume,
    ConfigResource,
    Metadata,
    Patience,
    ProducerSettings,
    ResourceType,
    SavedTopic,
    Timeouts,
    ask,
    check_metadata,
    describe_configs,
    end_offsets,
    error_of,
    kafka_pid,
    take_ids,
)
from oncelog.clock import wall_s
from oncelog.slots import Identity, Place
from oncelog.spark.retention import kept_ms
from oncelog.spark.sink.saved_lanes import check_ends, identity_of, only_added, places_of, untouched

if TYPE_CHECKING:
    from oncelog.spark.sink.replay_comparing import Kept

CONFIG_MS: Final = 10_000
LAG_S: Final = 3.0  # so long a broker may lag behind that does not know a topic
LAGGING: Final = Patience(lag_s=LAG_S)


class Destination:
    def __init__(self, brokers: Brokers, settings: ProducerSettings) -> None:
        self._brokers = brokers
        self._settings = settings  # the user's
        self._kept_ms: dict[str, int | None] = {}

    async def new_lane(self, topic: str, count: int | None) -> SavedProducer:
        """A saved producer under a fresh identity, that has written nothing to this topic."""
        return await self.lane_of(await kafka_pid(self._brokers), topic, count)

    async def lane_of(self, identity: Identity, topic: str, count: int | None = None) -> SavedProducer:
        topics = {topic: await self._begin(Identity(identity.pid, identity.generation), topic, count)}
        return SavedProducer(
            cluster_id=self._brokers.metadata.cluster_id or "",
            made_at_ms=int(wall_s() * 1000),
            partitioner=self._settings.partitioner,
            keyless_run=self._settings.oncelog_keyless_run,
            topics=topics,
        )

    async def further_topic(self, lane: SavedProducer, topic: str, count: int | None) -> SavedProducer:
        """The same for one topic more, under the identity that the lane has."""
        return replace(lane, topics={topic: await self._begin(identity_of(lane), topic, count)})

    async def added_partitions(self, lane: SavedProducer, topic: str) -> SavedProducer | None:
        """The same for partitions that the topic has got since, and for these alone; None where it has got none."""
        known = lane.topics[topic]
        count = (await self.counts(lane))[topic]
        if count <= known.partition_count:
            return None
        ends = await self.ends(Place(topic, at) for at in range(known.partition_count, count))
        return only_added(lane, topic, count, ends)

    async def counts(self, lane: SavedProducer) -> dict[str, int]:
        """The partition counts of the topics that the lane writes to. Raises TopicGone where one of them is not
        the one that it was."""
        metadata = await self._refreshed(lane.topics)
        check_metadata(metadata, lane)
        return {name: len(metadata.topics[name].partitions) for name in lane.topics}

    async def _refreshed(self, topics: Iterable[str]) -> Metadata:
        async def look() -> Metadata:
            metadata = await self._brokers.refresh(topics)
            if not all(_is_there(metadata, topic) for topic in topics):
                raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, retriable=True))
            return metadata

        try:
            return await ask(look, LAGGING)
        except KafkaException as failure:
            if failure.error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
            return self._brokers.metadata

    async def ends(self, places: Iterable[Place]) -> dict[Place, int]:
        """Their high watermarks."""
        return await end_offsets(self._brokers, places)

    async def ends_of(self, lane: SavedProducer) -> dict[Place, int]:
        """The ends of all partitions that the lane writes to. Raises TopicGone where a topic is not the one that it
        was, unless its brokers refuse by themselves what is sent to another one of its name, and CannotResume where
        acknowledged rows of the lane are missing."""
        places = places_of(lane)
        asked: list[Awaitable[Any]] = [end_offsets(self._brokers, places, patience=LAGGING)]
        if not await take_ids(self._brokers, places):
            asked.append(self.counts(lane))
        try:
            ends: dict[Place, int] = (await asyncio.gather(*asked))[0]
        except KafkaException as failure:
            if failure.error.code() in UNKNOWN:
                check_metadata(self._brokers.metadata, lane)  # which says what is gone
            raise
        try:
            check_ends(lane, ends)
        except CannotResume:
            await self.counts(lane)  # another topic of its name is told as that
            raise
        return ends

    async def kept_ms(self, topic: str) -> int | None:
        """The time for which the topic keeps records, by their timestamps; None: for ever, or not known."""
        if topic not in self._kept_ms:
            resource = ConfigResource(ResourceType.TOPIC, topic)
            try:
                found = (await describe_configs(self._brokers, [resource], Timeouts(CONFIG_MS)))[resource]
            except KafkaException as failure:
                found = failure
            self._kept_ms[topic] = None
            if not isinstance(found, KafkaException):
                self._kept_ms[topic] = kept_ms({name: entry.value for name, entry in found.items()}.get)
        return self._kept_ms[topic]

    async def first_difference(
        self, before: SavedProducer, after: SavedProducer, kept: "Kept", topic: str | None
    ) -> str | None:
        """The first difference between what a lane has written of a batch and its rows now."""
        from oncelog.spark.sink.replay_comparing import first_difference  # the compiled loops, which drivers do without

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
        if _code(metadata, topic) in UNKNOWN:  # the broker that is asked may hear of it later than others
            metadata = await self._refreshed([topic])
        if not _is_there(metadata, topic):
            self._brokers.forget([topic])
            code = _code(metadata, topic)
            raise ValueError(f"rows cannot be written to topic {topic!r}: {error_of(code).str()}")
        return metadata


def _code(metadata: Metadata, topic: str) -> int:
    known = metadata.topics.get(topic)
    return int(KafkaError.UNKNOWN_TOPIC_OR_PART if known is None else known.error_code)


def _is_there(metadata: Metadata, topic: str) -> bool:
    known = metadata.topics.get(topic)
    return known is not None and bool(known.partitions)
