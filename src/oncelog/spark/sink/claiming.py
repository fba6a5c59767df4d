"""Claims: whose the sink is, and under which identity a lane writes. Appended before anything is sent, then read back;
the first in the log stands, whoever appended it."""

import secrets
from collections.abc import Mapping

from oncelog.client.errors import KafkaError, error_of
from oncelog.client.net.brokers import Brokers
from oncelog.client.net.metadata import Metadata
from oncelog.client.properties import producer_settings
from oncelog.client.saving.asking import end_offsets
from oncelog.client.saving.fencing import kafka_pid
from oncelog.client.saving.saved import Identity, Place, SavedPartition, SavedProducer, SavedTopic, Span
from oncelog.clock import wall_s
from oncelog.spark.sink.errors import SinkRefused
from oncelog.spark.sink.lane import (
    LANE,
    SINK,
    TOPIC,
    LaneClaim,
    LanePlace,
    SinkClaim,
    encode,
    key_of,
    lane_claim_fields,
    sink_claim_fields,
)
from oncelog.spark.sink.standing import Standing
from oncelog.spark.sink.state import SinkLog


async def claim_sink(brokers: Brokers, log: SinkLog, standing: Standing, sink: str, place: LanePlace) -> None:
    """Afterwards the sink is somebody's; whether ours, `standing` says."""
    pid, epoch, _ = await log.patiently(lambda: kafka_pid(brokers))
    claim = SinkClaim(sink, place.query, place.batch, pid, epoch)
    key = key_of(SINK, place.batch, secrets.token_hex(8))
    await _append(log, standing, key, encode(SINK, sink_claim_fields(claim)))


async def claim_lane(
    brokers: Brokers, log: SinkLog, standing: Standing, place: LanePlace, properties: Mapping[str, str], topic: str
) -> None:
    """A fresh identity for the lane, to write to this topic with."""
    pid, epoch, _ = await log.patiently(lambda: kafka_pid(brokers))
    settings = producer_settings(properties)
    producer = await _begin(brokers, log, standing, Identity(pid, epoch), topic, properties)
    value = SavedProducer(
        cluster_id=brokers.metadata.cluster_id or "",
        made_at_ms=int(wall_s() * 1000),
        partitioner=settings.partitioner,
        keyless_run=settings.oncelog_keyless_run,
        topics={topic: producer},
    )
    await _claim(log, standing, LANE, place, value)


async def claim_topic(
    brokers: Brokers, log: SinkLog, standing: Standing, place: LanePlace, properties: Mapping[str, str], topic: str
) -> None:
    """The lane goes on to one topic more, under the identity that it has."""
    known = standing.producer(place.lane)
    assert known is not None, "a lane claims itself first"
    lane = SavedProducer.from_json(known)
    (identity,) = lane.identities
    added = await _begin(brokers, log, standing, identity, topic, properties)
    value = SavedProducer(
        cluster_id=lane.cluster_id,
        made_at_ms=int(wall_s() * 1000),
        partitioner=lane.partitioner,
        keyless_run=lane.keyless_run,
        topics={topic: added},
    )
    await _claim(log, standing, TOPIC, place, value, topic)


async def _claim(
    log: SinkLog, standing: Standing, kind: str, place: LanePlace, value: SavedProducer, *rest: str
) -> None:
    nonce = secrets.token_hex(8)
    claim = LaneClaim(place.batch, place.lane, value.to_value(), nonce)
    key = key_of(kind, place.batch, place.lane, *rest, nonce)
    await _append(log, standing, key, encode(kind, lane_claim_fields(claim)))


async def _append(log: SinkLog, standing: Standing, key: bytes, value: bytes) -> None:
    await log.read_to(standing, await log.append([(key, value)]))


async def _begin(
    brokers: Brokers,
    log: SinkLog,
    standing: Standing,
    identity: Identity,
    topic: str,
    properties: Mapping[str, str],
) -> SavedTopic:
    """The topic as it is before this identity has written to it."""
    known = brokers.metadata.topics.get(topic)
    if known is None or not known.partitions:
        known = (await log.patiently(lambda: _found(brokers, topic, properties))).topics[topic]
    count = standing.partition_count(topic) or len(known.partitions)
    places = [Place(topic, at) for at in range(count)]
    ends = await log.patiently(lambda: end_offsets(brokers, places))
    return SavedTopic(
        topic_id=str(known.topic_id or ""),
        partition_count=count,
        keyless_counter=0,
        partitions={
            place.partition: SavedPartition(next_offset=ends[place], spans=(Span(identity, 0),)) for place in places
        },
    )


async def _found(brokers: Brokers, topic: str, properties: Mapping[str, str]) -> Metadata:
    """The cluster, with this topic in it; made, where brokers make topics that are asked for and nobody forbids it."""
    metadata = await brokers.refresh([topic])
    if not _is_usable(metadata, topic) and producer_settings(properties).allow_auto_create_topics:
        making = Brokers(producer_settings(properties))
        await making.start()
        try:
            await making.refresh([topic])
        finally:
            await making.close()
        metadata = await brokers.refresh([topic])
    if not _is_usable(metadata, topic):
        brokers.forget([topic])
        known = metadata.topics.get(topic)
        code = KafkaError.UNKNOWN_TOPIC_OR_PART if known is None else known.error_code
        raise SinkRefused(f"rows cannot be written to topic {topic!r}: {error_of(code).str()}")
    return metadata


def _is_usable(metadata: Metadata, topic: str) -> bool:
    known = metadata.topics.get(topic)
    return known is not None and bool(known.partitions)
