"""A flow's side of an experiment: how far it is, what of it is killed when, and whether it is through."""

from collections.abc import Iterator
from typing import Final

from oncelog.chaos.audit import Numbers
from oncelog.chaos.flow_job import flow_of
from oncelog.chaos.pipeline import MOST_RESTARTS
from oncelog.chaos.pipeline_watch import LOOK_S, PATIENCE_S, PipelineWatch
from oncelog.chaos.plan import Event
from oncelog.chaos.topics import end_offsets, stored_counts
from oncelog.clock import monotonic_s
from oncelog.runner.layout import Layout

SILENCE_S: Final = 60.0  # without another row: what is missing then is missing


class FlowWatch(PipelineWatch):
    """A kill comes when its number of rows is written and more are seen to arrive."""

    _due_rows = 0  # all that must be written; 0 while that is not known
    _moved_s = 0.0

    def look(self) -> Iterator[tuple[Event, int]]:
        now_s = monotonic_s()
        if now_s - self._looked_s < LOOK_S:
            return
        self._looked_s = now_s
        if not self._is_due:
            self._due_s = now_s
        written = sum(end_offsets(self._servers, self.topic, self._options.partitions))
        is_moving = written > self.written
        if is_moving:
            self.written, self._moved_s = written, now_s
        if self._is_due and (is_moving or now_s - self._due_s > PATIENCE_S) and self._kill(self._kills[-1]):
            self._due_s = now_s
            yield self._kills.pop(), int(is_moving)
        self._lives.keep_alive(MOST_RESTARTS)

    def expect(self, rows: int) -> None:
        self._due_rows, self._moved_s = rows, monotonic_s()

    def is_through(self) -> bool:
        return self.written >= self._due_rows or monotonic_s() - self._moved_s > SILENCE_S

    def stored(self) -> Iterator[tuple[int, Numbers]]:
        return stored_counts(self._servers, self.topic, self._options.partitions)

    @property
    def topics(self) -> list[str]:
        layout = Layout(flow_of(self._options.topic, self.topic, self._options.partitions))
        return [self.topic, *layout.between, layout.register, *(stage.journal for stage in layout.stages)]
