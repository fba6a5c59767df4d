"""A flow's side of an experiment: how far it is, what of it is killed when, and whether it is through."""

from collections.abc import Iterator
from functools import cached_property
from threading import Event as Waiting
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from oncelog.chaos.audit import NOT_A_NUMBER, Numbers
from oncelog.chaos.flow_job import FIRED, ONE_IN, flow_of
from oncelog.chaos.kafka_login import Kafka
from oncelog.chaos.orphans import Heir, Orphan, busiest
from oncelog.chaos.pipeline import MOST_RESTARTS, workers_of
from oncelog.chaos.pipeline_watch import LOOK_S, PATIENCE_S, PipelineWatch
from oncelog.chaos.plan import ORPHANS, Event, Target
from oncelog.chaos.process_tree import ticks_of
from oncelog.chaos.topics import end_offsets, numbers_of, stored
from oncelog.clock import monotonic_s
from oncelog.runner.layout import Layout

ORPHAN_S: Final = 5.0  # for what an orphan may still do in the end
WORK_S: Final = 0.5  # in which a worker is seen to work
WAIT: Final = Waiting()  # never set: a wait that Ctrl-C ends
SILENCE_S: Final = 180.0  # without another row: what is missing then is missing; a driver may take a minute to start


class FlowWatch(PipelineWatch):
    """A kill comes when its number of rows is written and more are seen to arrive."""

    _due_rows = 0  # all that must be written; 0 while that is not known
    _moved_s = 0.0
    _timers = 0
    _orphan: Orphan | None = None

    def look(self) -> Iterator[tuple[Event, int]]:
        now_s = monotonic_s()
        if now_s - self._looked_s < LOOK_S:
            return
        self._looked_s = now_s
        if not self._is_due:
            self._due_s = now_s
        written = sum(end_offsets(self._kafka, self.topic, self._options.partitions))
        is_moving = written > self.written
        if is_moving:
            self.written, self._moved_s = written, now_s
        if self._orphan is not None:
            yield from self._look_at(self._orphan, now_s)
        elif self._is_due and (is_moving or now_s - self._due_s > PATIENCE_S) and self._kill(self._kills[-1]):
            self._due_s = now_s
            if self._orphan is None:
                yield self._kills.pop(), int(is_moving)
        self._lives.keep_alive(MOST_RESTARTS)

    def _kill(self, event: Event) -> bool:
        if event.target not in ORPHANS:
            return super()._kill(event)
        pids = self._lives.abandon() if event.target is Target.ORPHAN_DRIVER else self._at_work()
        if pids:
            self._orphan = Orphan(pids, monotonic_s())
        if event.target is Target.ORPHAN_DRIVER:
            self._lives.start()
        return bool(pids)

    def _at_work(self) -> list[int]:
        """The worker that works most."""
        leader = self._lives.pid if self._cluster is None else self._cluster.leader
        before = {pid: ticks_of(pid) for pid in workers_of(leader)}
        WAIT.wait(WORK_S)
        return busiest(list(before), before)[:1]

    def _look_at(self, orphan: Orphan, now_s: float) -> Iterator[tuple[Event, int]]:
        """It goes on behind the back of what has its cells. One that held none is no orphan: another is."""
        stages = self._layout.stages
        ends = [end for each in stages for end in end_offsets(self._kafka, each.journal, each.cells)]
        place = orphan.succession.look(ends, now_s)
        if place is Heir.HELD:
            return
        orphan.go_on()
        self._orphan, self._due_s = None, now_s
        if place is not Heir.NONE:
            self._moved_s = now_s
            yield self._kills.pop(), int(place is Heir.TAKEN)

    def expect(self, rows: int) -> None:
        self._due_rows, self._moved_s = rows, monotonic_s()

    def is_through(self) -> bool:
        if self._orphan is not None:
            return False
        quiet_s = monotonic_s() - self._moved_s
        return (self.written >= self._due_rows and quiet_s > ORPHAN_S) or quiet_s > SILENCE_S

    @property
    def most_rows(self) -> int:
        return self._first_timer + self._first_timer // ONE_IN + 1

    @property
    def _first_timer(self) -> int:
        """The first number that stands for what a timer wrote."""
        return super().most_rows

    def due_of(self, numbers: Numbers) -> Numbers:
        rows = super().due_of(numbers)
        fired = self._first_timer + rows[rows % ONE_IN == 0] // ONE_IN
        self._timers += len(fired)
        return np.concatenate((rows, fired))

    @property
    def timers(self) -> int:
        return self._timers

    def stored(self) -> Iterator[tuple[int, Numbers]]:
        return stored_counts(self._kafka, self.topic, self._options.partitions, self._first_timer)

    @cached_property
    def _layout(self) -> Layout:
        return Layout(flow_of(self._options.topic, self.topic, self._options.partitions).program)

    @property
    def topics(self) -> list[str]:
        layout = self._layout
        return [self.topic, *layout.between, layout.register, *(stage.journal for stage in layout.stages)]


def stored_counts(kafka: Kafka, topic: str, partitions: int, first_timer: int) -> Iterator[tuple[int, Numbers]]:
    """The rows of a flow, bucket by bucket, and apart those of its timers, as numbers from `first_timer` on. A
    number whose count is not the next one of its bucket is none: the state was not the fold of its input. Nor is one
    that a timer tells with another count than it had."""
    counted: dict[int, int] = {}
    waiting: dict[int, int] = {}  # the counts of rows that a timer is to tell
    for _, rows in stored(kafka, topic, partitions, "key", "value"):
        parts = pc.extract_regex(
            rows.column("value").cast(pa.string()), rf"^(?P<number>\d+),(?P<count>\d+)(?P<end>|{FIRED})$"
        )
        numbers, counts = (numbers_of(pc.struct_field(parts, at).cast(pa.binary())) for at in (0, 1))
        is_fired = pc.equal(pc.struct_field(parts, 2), FIRED).fill_null(False).to_numpy(zero_copy_only=False)
        buckets = numbers_of(pc.utf8_slice_codeunits(rows.column("key").cast(pa.string()), 1).cast(pa.binary()))
        for bucket in np.unique(buckets).tolist():
            own = (buckets == bucket) & ~is_fired
            due = counted.get(bucket, 0) + 1 + np.arange(np.count_nonzero(own))
            counted[bucket] = counted.get(bucket, 0) + len(due)
            found = np.where(counts[own] == due, numbers[own], NOT_A_NUMBER)
            yield bucket, found
            is_timed = (found >= 0) & (found % ONE_IN == 0)
            waiting.update(zip(found[is_timed].tolist(), due[is_timed].tolist(), strict=True))
            told = (buckets == bucket) & is_fired
            pairs = zip(numbers[told].tolist(), counts[told].tolist(), strict=True)
            fired = [first_timer + row // ONE_IN if waiting.get(row) == count else NOT_A_NUMBER for row, count in pairs]
            yield ~bucket, np.array(fired, np.int64)
