"""The state that follows a batch: where all lanes stand now, and what the next batch is to find."""

import secrets
from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from oncelog.client.net.brokers import Brokers
from oncelog.client.saving.asking import end_offsets
from oncelog.client.saving.resume import resume_partitions
from oncelog.client.saving.saved import Place, SavedPartition, SavedProducer, SavedTopic, Span
from oncelog.clock import wall_s
from oncelog.spark.sink.deciding import WAY_OUT
from oncelog.spark.sink.errors import SinkRefused
from oncelog.spark.sink.lane import Json, LaneMessage, LaneState, SinkState
from oncelog.spark.sink.standing import Standing
from oncelog.spark.sink.state import SinkLog

MOST_IDLE_BATCHES = 10


def idle_lanes(standing: Standing, lanes: Iterable[LaneMessage]) -> dict[int, Json]:
    """Lanes that the sink knows, and of which no task of this batch has said where they stand."""
    here = {message.lane for message in lanes if message.producer is not None}
    known: dict[int, Json] = (
        {} if standing.state is None else {n: each.producer for n, each in standing.state.lanes.items()}
    )
    known |= {lane: claim.producer for lane, claim in standing.lanes.items()}
    return {lane: producer for lane, producer in known.items() if lane not in here}


async def check_others(brokers: Brokers, log: SinkLog, standing: Standing, lanes: list[LaneMessage]) -> None:
    """Lanes that have no task in this batch must have written nothing of it in an earlier run."""
    for lane, producer in sorted(idle_lanes(standing, lanes).items()):
        values = [producer, *(claim.producer for (number, _), claim in standing.topics.items() if number == lane)]
        partitions = _partitions(values)
        resumed = await log.patiently(partial(resume_partitions, brokers, partitions, 0))
        for place, each in resumed.partitions.items():
            if each.records_to_drop:
                raise SinkRefused(_other_lanes(standing, lane, len(lanes), place, each.records_to_drop))


def _partitions(producers: Iterable[Json]) -> dict[Place, SavedPartition]:
    return {
        Place(name, at): partition
        for producer in producers
        for name, topic in SavedProducer.from_json(producer).topics.items()
        for at, partition in topic.partitions.items()
    }


def _other_lanes(standing: Standing, lane: int, now: int, place: Place, records: int) -> str:
    assert standing.owner is not None
    return (
        f"batch {standing.next_batch} of sink {standing.owner.sink!r} runs in {now} tasks, lanes 0 to {now - 1}, and "
        f"lane {lane} has written {records} records of it to {place.topic}-{place.partition} before: its rows are "
        "divided in another way than in the first run. How the source divides its rows must not depend on the number "
        f"of cores; run it as it was run before. {WAY_OUT}"
    )


async def following(
    brokers: Brokers, log: SinkLog, standing: Standing, messages: list[LaneMessage], batch: int
) -> SinkState:
    owner = standing.owner
    assert owner is not None
    lanes: dict[int, LaneState] = {}
    idle = idle_lanes(standing, messages)
    for lane, producer in idle.items():
        known = None if standing.state is None else standing.state.lanes.get(lane)
        count = 1 if known is None else known.idle_batches + 1
        if count <= MOST_IDLE_BATCHES:
            lanes[lane] = LaneState(producer, idle_batches=count)
    for message in messages:
        if message.producer is not None:
            lanes[message.lane] = LaneState(message.producer, message.rows, message.order_hash)
    lanes, counts = await _grown(brokers, log, lanes)
    return SinkState(
        claim=owner,
        batch=batch,
        lane_count=len(messages),
        lanes=lanes,
        topics=counts,
        previous_offset=max(standing.state_offset, 0),
        nonce=secrets.token_hex(8),
        made_at_ms=int(wall_s() * 1000),
    )


async def _grown(
    brokers: Brokers, log: SinkLog, lanes: dict[int, LaneState]
) -> tuple[dict[int, LaneState], dict[str, int]]:
    """With partitions that were added to topics meanwhile: the next batch writes to them as well."""
    values = {lane: SavedProducer.from_json(each.producer) for lane, each in lanes.items()}
    names = {name for value in values.values() for name in value.topics}
    if not names:
        return lanes, {}
    metadata = await log.patiently(lambda: brokers.refresh(names))
    counts: dict[str, int] = {}
    for name in sorted(names):
        known = metadata.topics.get(name)
        if known is None or not known.partitions:
            raise SinkRefused(f"topic {name!r}, which rows were just written to, is not there any more")
        counts[name] = len(known.partitions)
    new = {
        Place(name, at)
        for value in values.values()
        for name, topic in value.topics.items()
        for at in range(topic.partition_count, counts[name])
    }
    if not new:
        return lanes, counts
    ends = await log.patiently(lambda: end_offsets(brokers, new))
    grown = {
        lane: replace(each, producer=_with_partitions(values[lane], counts, ends).to_value())
        for lane, each in lanes.items()
    }
    return grown, counts


def _with_partitions(value: SavedProducer, counts: dict[str, int], ends: dict[Place, int]) -> SavedProducer:
    (identity,) = value.identities
    topics: dict[str, SavedTopic] = {}
    for name, topic in value.topics.items():
        added = {
            at: SavedPartition(next_offset=ends[Place(name, at)], spans=(Span(identity, 0),))
            for at in range(topic.partition_count, counts[name])
        }
        topics[name] = replace(topic, partition_count=counts[name], partitions={**topic.partitions, **added})
    return replace(value, topics=topics)
