"""A sink under a Spark that kills, repeats and doubles whatever it runs, in random turns; everything else is the real
code. Whatever happens, every row ends up there once, and each lane's rows of a partition in their order."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.client.register.topic import TopicKeeper
from oncelog.slots import Place
from oncelog.spark.options import sink_options
from oncelog.spark.sink.driver import commit_batch
from oncelog.spark.sink.errors import SinkRefused
from oncelog.spark.sink.lane import LaneMessage, LaneTask
from oncelog.spark.sink.lane_writer import LaneWriter
from oncelog.spark.sink.sink_register import SinkRegister
from tests.model.turns import Actor
from tests.spark.sink.twin import MOST_PARTITIONS, MemoryCluster, MemoryProducer, MemoryTopic, World

OPTIONS = {"kafka.bootstrap.servers": "memory:1", "topic": "out"}
MOST_FAILURES = 4
Rows = list[bytes]


@dataclass
class Driver:
    """One incarnation. What it leaves behind when it is killed goes on, but gets no more input."""

    spark: "Spark"
    is_dead: bool = False

    def input(self, rows: Rows, ends_early: bool) -> Iterator[pa.RecordBatch]:
        for at in range(0, len(rows), 2):
            if self.is_dead and ends_early:
                return  # as if that had been all
            values = rows[at : at + 2]
            named = pa.array([self.spark.named.get(value) for value in values], pa.int32())
            yield pa.RecordBatch.from_arrays([pa.array(values, pa.binary()), named], ["value", "partition"])

    def attempt(self, batch: int, lane: int, rows: Rows) -> Actor:
        spark = self.spark
        ends_early = spark.random.random() < 0.8
        kept = spark.worker()
        rows = spark.yields(batch, rows)

        def work() -> LaneMessage:
            if spark.believes_tasks and (batch, lane) in spark.recorded:
                return spark.recorded[batch, lane]
            place = LaneTask("query", batch, lane)
            with LaneWriter(spark.options, place, spark.cluster(spark.world, kept)) as writing:
                for each in self.input(rows, ends_early):
                    writing.write(each)
                message = spark.recorded[batch, lane] = writing.finish()
            spark.workers.append(kept)
            return message

        return spark.world.start(f"batch {batch} lane {lane}", work)

    def commit(self, batch: int, messages: list[LaneMessage | None]) -> Actor:
        spark = self.spark
        cluster = spark.cluster(spark.world, {})
        return spark.world.start(f"commit {batch}", lambda: spark.commits(spark.options, messages, batch, cluster))


def _is_decided(attempts: list[Actor]) -> bool:
    return any(each.has_succeeded for each in attempts) or all(each.is_over for each in attempts)


class Spark:
    believes_tasks = False
    commits = staticmethod(commit_batch)
    cluster: Callable[..., MemoryCluster] = MemoryCluster
    world_of: Callable[[Random], World] = World

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.world = type(self).world_of(self.random)
        self.options = sink_options(OPTIONS)
        self.workers: list[dict[str, Any]] = [{}, {}]
        self.named: dict[bytes, int] = {}  # rows that name a partition
        self.recorded: dict[tuple[int, int], LaneMessage] = {}

    def worker(self) -> dict[str, Any]:
        """One that nobody uses now, or a new one."""
        if self.workers and self.random.random() < 0.8:
            return self.workers.pop(self.random.randrange(len(self.workers)))
        return {}

    def rows(self, batch: int, lanes: int) -> list[Rows]:
        return [
            [b"%d.%d.%d" % (batch, lane, row) for row in range((batch * 5 + lane * 3) % 9)] for lane in range(lanes)
        ]

    def yields(self, batch: int, rows: Rows) -> Rows:
        """What an attempt's run of the query comes to."""
        return rows

    # --- one incarnation of a driver

    def run(self, batch: int, lanes: list[Rows], *, kill_after: int | None) -> bool:
        """True: Spark has committed the batch. A driver that is not killed must succeed."""
        driver = Driver(self)
        steps_left = 1 << 30 if kill_after is None else kill_after
        messages: list[LaneMessage | None] = []
        attempts = [[driver.attempt(batch, lane, rows)] for lane, rows in enumerate(lanes)]
        if self.random.random() < 0.3:  # speculation
            lane = self.random.randrange(len(lanes))
            attempts[lane].append(driver.attempt(batch, lane, lanes[lane]))
        while not messages:
            taken = self._drive(lambda: all(_is_decided(each) for each in attempts), steps_left)
            steps_left -= taken
            if steps_left <= 0:
                return self._die(driver)
            for lane, each in enumerate(attempts):
                if all(attempt.is_over and not attempt.has_succeeded for attempt in each):
                    failures = [attempt.failure for attempt in each if attempt.failure is not None]
                    if len(failures) >= MOST_FAILURES:
                        raise failures[-1]  # Spark gives up
                    each.append(driver.attempt(batch, lane, lanes[lane]))
            if all(any(attempt.has_succeeded for attempt in each) for each in attempts):
                messages = [next(a.result for a in each if a.has_succeeded) for each in attempts]
        committing = driver.commit(batch, messages)
        self._drive(lambda: committing.is_over, steps_left)
        if not committing.is_over or (kill_after is not None and self.random.random() < 0.3):
            return self._die(driver)  # perhaps saved, and not committed by Spark
        if committing.failure is not None:
            raise committing.failure
        return True

    def _drive(self, until: Callable[[], bool], most_steps: int) -> int:
        taken = 0
        while not until() and taken < most_steps:
            self.world.run(lambda: False, most_steps=1)
            taken += 1
            if self.random.random() < 0.01:
                self._kill_somebody()
        return taken

    def _kill_somebody(self) -> None:
        """A task dies by itself; Spark starts another."""
        if self.world.actors:
            victim = self.random.choice(self.world.actors)
            if victim.name.startswith("batch"):
                self.world.kill(victim)

    def _die(self, driver: Driver) -> bool:
        driver.is_dead = True
        for actor in list(self.world.actors):
            if self.random.random() < 0.5:
                self.world.kill(actor)
        return False

    # --- what must be true

    def drain(self) -> None:
        self.world.run(lambda: False)

    def stored(self) -> dict[Place, list[bytes]]:
        return {place: log.records() for place, log in self.world.partitions.items()}

    def check(self, batches: list[list[Rows]]) -> None:
        self.drain()
        expected = Counter(row for lanes in batches for rows in lanes for row in rows)
        found = Counter(row for rows in self.stored().values() for row in rows)
        assert found == expected, (found - expected, expected - found)
        for log in self.stored().values():
            for lanes in batches:
                for rows in lanes:
                    mine = [row for row in log if row in rows]
                    assert mine == [row for row in rows if row in mine]


@given(seed=st.integers(0, 1 << 32))
def test_every_row_is_there_once_whatever_is_killed_repeated_and_doubled(seed: int) -> None:
    run_and_kill(seed)


def run_and_kill(seed: int, *, names_partitions: bool = False) -> None:
    spark = Spark(seed)
    batches = []
    for batch in range(4):
        lanes = spark.rows(batch, spark.random.randint(1, 3))
        batches.append(lanes)
        if spark.random.random() < 0.2:
            spark.world.counts["out"] = min(spark.world.counts["out"] + 1, MOST_PARTITIONS)
        if names_partitions:
            count = spark.world.counts["out"]
            spark.named |= {row: sum(row) % count for rows in lanes for row in rows}
        for _ in range(spark.random.randint(0, 3)):
            if spark.run(batch, lanes, kill_after=spark.random.randint(1, 150)):
                break
        else:
            assert spark.run(batch, lanes, kill_after=None)
    spark.check(batches)


@given(seed=st.integers(0, 1 << 32))
def test_rows_may_name_partitions_that_came_after_the_batch_before(seed: int) -> None:
    run_and_kill(seed, names_partitions=True)


@given(seed=st.integers(0, 1 << 32))
def test_a_batch_that_ran_in_another_number_of_tasks_is_never_called_written_when_it_is_not(seed: int) -> None:
    spark = Spark(seed)
    rows = [b"0.%d" % row for row in range(12)]
    ways = [[rows], [rows[:6], rows[6:]], [rows[:4], rows[4:8], rows[8:]]]
    for _ in range(3):
        way = spark.random.choice(ways)
        try:
            if spark.run(0, way, kill_after=spark.random.choice((None, spark.random.randint(1, 150)))):
                spark.check([way])
                return
        except SinkRefused:
            pass
        # An orphan that divides the rows otherwise, and still sends when this is committed, is the one case that is
        # left to the user: docs/spark-sink.md, limits.
        for actor in list(spark.world.actors):
            spark.world.kill(actor)


@given(seed=st.integers(0, 1 << 32))
def test_two_drivers_on_one_checkpoint_do_no_harm(seed: int) -> None:
    run_two_drivers(seed)


def run_two_drivers(seed: int) -> None:
    spark = Spark(seed)
    batches = []
    for batch in range(3):
        lanes = spark.rows(batch, 2)
        batches.append(lanes)
        other = Driver(spark)
        for lane, rows in enumerate(lanes):
            other.attempt(batch, lane, rows)
        assert spark.run(batch, lanes, kill_after=None)
    spark.check(batches)


def test_the_model_can_fail_where_a_claim_is_not_read_back_rows_are_there_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def believe(topic: MemoryTopic, known: SinkRegister, offset: int) -> SinkRegister:
        known.read(each for each in topic.world.topic.records if each.offset == offset)
        return known

    monkeypatch.setattr(TopicKeeper, "read_to", believe)
    monkeypatch.setattr(MemoryProducer, "check_found", lambda *_: None)  # here it is rows that count
    with pytest.raises(AssertionError, match="Counter"):
        for seed in range(200):
            run_two_drivers(seed)


def test_the_model_can_fail_where_a_task_says_what_is_complete_rows_are_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An input that ended early is believed."""
    monkeypatch.setattr(Spark, "believes_tasks", True)
    with pytest.raises(AssertionError, match="Counter"):
        for seed in range(200):
            with suppress(SinkRefused):
                run_and_kill(seed)
