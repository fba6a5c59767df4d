"""A lane whose beginning fails."""

from random import Random
from typing import Any

import pyarrow as pa

from oncelog.client.saving.saved import Place
from oncelog.spark.options import sink_options
from oncelog.spark.sink.errors import SinkRefused
from oncelog.spark.sink.lane import Json, LanePlace
from oncelog.spark.sink.lane_writer import Lane
from tests.spark.sink.twin import PARTITIONS, Actor, MemoryCluster, MemoryProducer, World

OPTIONS = sink_options({"kafka.bootstrap.servers": "memory:1", "topic": "out"})


class Refusing(MemoryProducer):
    is_closed = False

    def start(self, saved: Json, *, is_fresh: bool) -> None:
        raise SinkRefused("it cannot be told how far the lane got")

    def close(self) -> None:
        self.is_closed = True


def _write(cluster: MemoryCluster, rows: pa.RecordBatch) -> None:
    with Lane(OPTIONS, LanePlace("q", 0, 0), cluster) as lane:
        lane.write(rows)
        lane.finish()


def attempt(world: World, kept: dict[str, Any]) -> Actor:
    rows = pa.RecordBatch.from_arrays([pa.array([b"a", b"b"], pa.binary())], ["value"])
    actor = world.start("task", lambda: _write(MemoryCluster(world, kept), rows))
    world.run(lambda: actor.is_over)
    return actor


def test_a_lane_that_cannot_be_resumed_leaves_no_producer_behind() -> None:
    """A producer is a thread and connections, and its worker lives on."""
    world = World(Random(1))
    world.counts["out"] = PARTITIONS
    for at in range(PARTITIONS):
        world.partitions[Place("out", at)] = []
    assert attempt(world, {}).has_succeeded
    producer = Refusing(world)
    failed = attempt(world, {"producer": producer})
    assert failed.failure is not None and "how far the lane got" in str(failed.failure)
    assert producer.is_closed
