"""The state that follows a batch: where all lanes stand now, and what the next batch is to find."""

import secrets
from dataclasses import replace
from typing import Final

from oncelog.client import SavedProducer
from oncelog.clock import wall_s
from oncelog.slots import Place
from oncelog.spark.sink.destination import Destination
from oncelog.spark.sink.lane import LaneMessage, LaneState, SinkState
from oncelog.spark.sink.saved_lanes import grown, together
from oncelog.spark.sink.sink_register import SinkRegister
from oncelog.spark.sink.state_topic import StateTopic

# A lane that has no rows for this many batches is forgotten, and takes a new identity when it comes back.
MOST_IDLE_BATCHES: Final = 100


async def following(
    topic: StateTopic, destination: Destination, register: SinkRegister, messages: list[LaneMessage], batch: int
) -> SinkState:
    assert register.owner is not None
    lanes, counts = await _grown(topic, destination, _lanes(register, messages))
    return SinkState(
        claim=register.owner,
        batch=batch,
        lane_count=len(messages),
        lanes=lanes,
        topics=counts,
        previous_offset=max(register.state_offset, 0),
        nonce=secrets.token_hex(8),
        made_at_ms=int(wall_s() * 1000),
    )


def _lanes(register: SinkRegister, messages: list[LaneMessage]) -> dict[int, LaneState]:
    lanes: dict[int, LaneState] = {}
    for number, known in register.state.lanes.items() if register.state is not None else ():
        if known.idle_batches < MOST_IDLE_BATCHES:
            lanes[number] = LaneState(known.producer, idle_batches=known.idle_batches + 1)
    for message in messages:
        if message.producer is not None:
            lanes[message.lane] = LaneState(message.producer, message.rows, message.order_hash)
    return lanes


async def _grown(
    topic: StateTopic, destination: Destination, lanes: dict[int, LaneState]
) -> tuple[dict[int, LaneState], dict[str, int]]:
    """The lanes with partitions that were added to topics meanwhile: the next batch writes to them as well."""
    values = {number: SavedProducer.from_json(lane.producer) for number, lane in lanes.items()}
    counts = await topic.patiently(lambda: destination.counts(together(list(values.values())))) if values else {}
    new = {
        Place(name, at)
        for value in values.values()
        for name, each in value.topics.items()
        for at in range(each.partition_count, counts[name])
    }
    if not new:
        return lanes, counts
    ends = await topic.patiently(lambda: destination.ends(new))
    return {
        number: replace(lane, producer=grown(values[number], counts, ends).to_value()) for number, lane in lanes.items()
    }, counts
