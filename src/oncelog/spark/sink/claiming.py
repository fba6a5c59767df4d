"""Claims and marks: whose the sink is, under which identity a lane writes, and that it is about to send something.

Each is appended before what it announces, and then everything up to it is read: the first in the log stands, no matter
who appended it. A task that finds its own first knows that nothing was sent before.
"""

import secrets

from oncelog.client import SavedProducer
from oncelog.clock import wall_s
from oncelog.spark.sink.destination import Destination
from oncelog.spark.sink.lane import (
    LANE,
    MARK,
    SINK,
    TOPIC,
    Json,
    LaneClaim,
    LanePlace,
    Mark,
    SinkClaim,
    encode,
    key_of,
    lane_claim_fields,
    mark_fields,
    sink_claim_fields,
)
from oncelog.spark.sink.standing import Standing
from oncelog.spark.sink.state_topic import StateTopic


async def claim_sink(topic: StateTopic, standing: Standing, sink: str, place: LanePlace) -> None:
    """Afterwards the sink is somebody's; whether ours, `standing` says."""
    claim = SinkClaim(sink, place.query, place.batch, secrets.token_hex(8))
    key = key_of(SINK, place.batch, claim.nonce)
    await topic.append(standing, [(key, encode(SINK, sink_claim_fields(claim)))])


async def claim_lane(
    topic: StateTopic, standing: Standing, destination: Destination, place: LanePlace, output: str
) -> bool:
    """An identity for the lane, to write to this topic with. True: nobody has sent anything under it."""
    count = standing.partition_count(output)
    value = await topic.patiently(lambda: destination.new_lane(output, count))
    nonce = await _claim(topic, standing, LANE, place, value)
    return standing.is_first(place, nonce)


async def claim_topic(
    topic: StateTopic, standing: Standing, destination: Destination, place: LanePlace, output: str
) -> bool:
    """The lane goes on to one topic more. True: nobody has sent anything to it for the lane."""
    lane = standing.lane(place.lane)
    assert lane is not None, "a lane claims itself first"
    known = SavedProducer.from_json(lane.producer)
    count = standing.partition_count(output)
    value = await topic.patiently(lambda: destination.further_topic(known, output, count))
    nonce = await _claim(topic, standing, TOPIC, place, value, output)
    claim = standing.topic_claim(place.lane, output, 0)
    return claim is not None and claim.nonce == nonce


async def claim_partitions(
    topic: StateTopic, standing: Standing, destination: Destination, place: LanePlace, output: str
) -> tuple[LaneClaim | None, bool]:
    """The lane writes to partitions that the topic has got since, too; None where it has got none. True: nobody has
    sent anything to them for the lane."""
    first = standing.partitions_of(place.lane, output)
    known = SavedProducer.from_json(_newest(standing, place.lane, output))
    value = await topic.patiently(lambda: destination.added_partitions(known, output))
    if value is None:
        return None, False
    nonce = await _claim(topic, standing, TOPIC, place, value, output, str(first))
    claim = standing.topic_claim(place.lane, output, first)
    return claim, claim is not None and claim.nonce == nonce


def _newest(standing: Standing, lane: int, output: str) -> Json:
    known = standing.lane(lane)
    assert known is not None, "a lane claims itself first"
    claimed = [claim.producer for claim in standing.further_topics(lane)]
    return next(each for each in (*claimed[::-1], known.producer) if output in each["topics"])


async def mark(topic: StateTopic, standing: Standing, destination: Destination, place: LanePlace) -> bool:
    """True: nobody has sent anything of this batch for the lane."""
    known = standing.beginning(place.lane)
    assert known is not None, "a lane claims itself first"
    ends = await topic.patiently(
        lambda: destination.ends_of(known)
    )  # what another topic of this name got would be lost
    made = Mark(place.batch, place.lane, secrets.token_hex(8), ends)
    key = key_of(MARK, place.batch, place.lane, made.nonce)
    await topic.append(standing, [(key, encode(MARK, mark_fields(made)))])
    return standing.is_first(place, made.nonce)


async def _claim(
    topic: StateTopic, standing: Standing, kind: str, place: LanePlace, value: SavedProducer, *rest: str
) -> str:
    nonce = secrets.token_hex(8)
    claim = LaneClaim(place.batch, place.lane, value.to_value(), nonce, int(wall_s() * 1000))
    key = key_of(kind, place.batch, place.lane, *rest, nonce)
    await topic.append(standing, [(key, encode(kind, lane_claim_fields(claim)))])
    return nonce
