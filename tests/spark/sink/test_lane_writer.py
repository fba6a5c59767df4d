"""A lane whose beginning fails, and one that did not see who it is."""

from dataclasses import replace
from random import Random
from typing import Any

import pyarrow as pa

from oncelog.client.net.transaction import TransactionName
from oncelog.client.saving.saved import SavedProducer
from oncelog.spark.options import sink_options
from oncelog.spark.sink.driver import commit_batch
from oncelog.spark.sink.errors import SinkRefused
from oncelog.spark.sink.lane import LaneMessage, LaneTask
from oncelog.spark.sink.lane_writer import LaneWriter
from tests.model.turns import Actor
from tests.spark.sink.twin import MemoryCluster, MemoryProducer, World

OPTIONS = sink_options({"kafka.bootstrap.servers": "memory:1", "topic": "out"})


class Refusing(MemoryProducer):
    is_closed = False

    def start(self, saved: SavedProducer, *, is_fresh: bool, transaction: TransactionName | None = None) -> None:
        raise SinkRefused("it cannot be told how far the lane got")

    def close(self) -> None:
        self.is_closed = True


def _write(cluster: MemoryCluster, rows: pa.RecordBatch) -> LaneMessage:
    with LaneWriter(OPTIONS, LaneTask("q", 0, 0), cluster) as lane:
        lane.write(rows)
        return lane.finish()


def attempt(world: World, kept: dict[str, Any]) -> Actor:
    rows = pa.RecordBatch.from_arrays([pa.array([b"a", b"b"], pa.binary())], ["value"])
    actor = world.start("task", lambda: _write(MemoryCluster(world, kept), rows))
    world.run(lambda: actor.is_over)
    return actor


def test_a_lane_that_cannot_be_resumed_leaves_no_producer_behind() -> None:
    """A producer is a thread and connections, and its worker lives on."""
    world = World(Random(1))
    assert attempt(world, {}).has_succeeded
    producer = Refusing(world)
    failed = attempt(world, {"producer": producer})
    assert failed.failure is not None and "how far the lane got" in str(failed.failure)
    assert producer.is_closed


def test_a_batch_that_was_written_by_another_than_the_lane_is_never_saved() -> None:
    world = World(Random(1))
    message: LaneMessage = attempt(world, {}).result
    assert message.producer is not None
    stranger = {**message.producer, "identities": [[99, 0, 0]]}

    def commit(message: LaneMessage) -> Actor:
        cluster = MemoryCluster(world, {})
        actor = world.start("commit", lambda: commit_batch(OPTIONS, [message], 0, cluster))
        world.run(lambda: actor.is_over)
        return actor

    refused = commit(replace(message, producer=stranger)).failure
    assert refused is not None
    assert f"lane 0 was written as producer 99, and the lane is producer {world.last_pid}:" in str(refused)
    assert commit(message).has_succeeded
