"""The pipeline's side of an experiment: how far it is, what of it is killed when, and whether it is through.

A kill comes after a number of rows of the output, and then when it certainly hits a batch: rows of it are seen to
arrive, and Spark has not written down that it is over.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from oncelog.chaos.audit import Numbers
from oncelog.chaos.checkpoint import NONE, batches, is_committed, messages_before, query_of
from oncelog.chaos.cluster import SparkCluster
from oncelog.chaos.guard import Guard
from oncelog.chaos.kafka_login import Kafka
from oncelog.chaos.outcome import Options, Pipeline
from oncelog.chaos.pipeline import MOST_FALSE_STARTS, MOST_RESTARTS, PipelineLives, PipelineOrder, due_of, settings_of
from oncelog.chaos.plan import Event, Target
from oncelog.chaos.sinks import DIRECT
from oncelog.chaos.topics import create_topic, end_offsets, stored_numbers
from oncelog.clock import monotonic_s
from oncelog.spark.sink.lane import topic_of

LOOK_S: Final = 0.1
LOOK_WHEN_DUE_S: Final = 0.01  # a small batch is over in a tenth of a second
MOST_MISSES: Final = 3
PATIENCE_S: Final = 20.0  # in which a batch's rows must be seen to arrive; then any moment of a batch will do


class PipelineWatch:
    def __init__(
        self, guard: Guard, folder: Path, kafka: Kafka, options: Options, pipeline: Pipeline, kills: Iterable[Event]
    ) -> None:
        self.topic = f"{options.topic}-written"
        self.written = 0
        self._guard = guard
        self._folder = folder
        self._kafka = kafka
        self._options = options
        self._told = pipeline
        self._kills = list(kills)[::-1]  # the next one last
        self._checkpoint = folder / "checkpoint"
        self._cluster: SparkCluster | None = None
        self._lives: PipelineLives
        self._stack = ExitStack()
        self._looked_s = self._due_s = 0.0
        self._batch = NONE  # that was under way at the last look
        self._misses = 0  # of the kill that is due
        self._written_then = 0  # when it was seen for the first time

    def __enter__(self) -> Self:
        create_topic(self._kafka, self.topic, self._options.partitions)
        with ExitStack() as stack:
            if self._told.is_cluster:
                executors = min(2, self._options.partitions)  # so that each of them has work
                cluster = SparkCluster(self._guard, self._folder / "cluster", executors=executors, environ=os.environ)
                self._cluster = stack.enter_context(cluster)
            order = PipelineOrder(
                servers=self._kafka.servers,
                read=self._options.topic,
                write=self.topic,
                folder=str(self._folder),
                sink=self._told.sink,
                partitions=self._options.partitions,
                rows_a_batch=self._told.rows_a_batch,
                settings=settings_of(self._told, self._cluster.settings if self._cluster is not None else {}),
                login=self._kafka.login,
            )
            self._lives = stack.enter_context(PipelineLives(self._guard, self._folder, order))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.close()

    @property
    def topics(self) -> list[str]:
        """The topics that it has made; the direct sink keeps its state in one."""
        query = query_of(self._checkpoint) if self._told.sink == DIRECT else ""
        return [self.topic, *[topic_of(query)] * bool(query)]

    @property
    def most_rows(self) -> int:
        """More are never due."""
        return 2 * self._options.messages

    def due_of(self, numbers: Numbers) -> Numbers:
        """The rows due for these messages."""
        return due_of(numbers, self._options.messages)

    @property
    def timers(self) -> int:
        """The number of rows that a timer writes."""
        return 0

    def expect(self, rows: int) -> None:
        """`rows` must be written; what the checkpoint says is enough here."""

    def stored(self) -> Iterator[tuple[int, Numbers]]:
        """The rows that were written, in parts each of which ascends."""
        return stored_numbers(self._kafka, self.topic, self._options.partitions)

    def last_words(self) -> str:
        return self._lives.last_words()

    @property
    def restarts(self) -> int:
        return self._lives.restarts

    @property
    def pace_s(self) -> float:
        """The pause before the next look."""
        return LOOK_WHEN_DUE_S if self._is_due else LOOK_S

    @property
    def _is_due(self) -> bool:
        return bool(self._kills) and self._kills[-1].at <= self.written

    def look(self) -> Iterator[tuple[Event, int]]:
        """The kills so far, and the number of messages in the batch; 0 where it was over after all. Then the same is
        killed once more, in the next batch."""
        now_s = monotonic_s()
        if now_s - self._looked_s < self.pace_s:
            return
        self._looked_s = now_s
        if not self._is_due:
            self._due_s = now_s
        known = batches(self._checkpoint)
        batch = known.under_way
        self.written = max(self.written, sum(end_offsets(self._kafka, self.topic, self._options.partitions)))
        if batch != self._batch:
            self._batch, self._written_then = batch, self.written
        elif self._is_due and batch != NONE and self._has_come_far(now_s) and self._kill(self._kills[-1]):
            self._batch, self._due_s = NONE, now_s
            is_over = is_committed(self._checkpoint, batch)
            yield self._kills[-1], 0 if is_over else self._messages_of(batch)
            self._misses = self._misses + 1 if is_over else 0
            if not is_over or self._misses > MOST_MISSES:
                self._kills.pop()
                self._misses = 0
        self._lives.keep_alive(MOST_RESTARTS if known.begun != NONE else MOST_FALSE_STARTS)

    def _has_come_far(self, now_s: float) -> bool:
        return self.written > self._written_then or now_s - self._due_s > PATIENCE_S

    def _kill(self, event: Event) -> bool:
        if event.target is Target.DRIVER:
            self._lives.kill()
            self._lives.start()
            return True
        if self._cluster is not None:
            return self._cluster.kill_executor(event.at)
        return self._lives.kill_worker(event.at)

    def _messages_of(self, batch: int) -> int:
        before, to_its_end = (
            messages_before(self._checkpoint, each, self._options.topic) for each in (batch - 1, batch)
        )
        return to_its_end - before

    def is_through(self) -> bool:
        """Whether the batch with the last of all messages that are there is over."""
        known = batches(self._checkpoint)
        if known.under_way != NONE:
            return False
        read = messages_before(self._checkpoint, known.committed, self._options.topic)
        return read >= sum(end_offsets(self._kafka, self._options.topic, self._options.partitions))
