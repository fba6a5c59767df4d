"""The inputs of a cell: what is at hand of each, which of it the plan has, and what is asked for."""

from collections import deque
from collections.abc import Sequence
from math import inf

from oncelog.clock import HOUR_MS
from oncelog.flow.cell_context import CellContext
from oncelog.flow.formats import Commit, InputPosition, Plan, PlannedRows, Range, shown
from oncelog.flow.messages import Expect, Fetch, Records
from oncelog.flow.planning import Source, collected, plan_of, rows_size


class CellInputs:
    def __init__(self, context: CellContext) -> None:
        self._context = context
        self.sources: list[Source] = []
        self.plan_left: deque[Range] = deque()
        self.rows_bytes = 0  # of what the plan takes of tables, and is not taken yet
        self.run_records = context.limits.run_records

    def expect(self, commit: Commit) -> None:
        for index, each in enumerate(commit.inputs):
            self._context.ask(Expect(index, each.next_offset))

    def restore(self, commit: Commit | None, planned: Sequence[PlannedRows]) -> None:
        context, inputs = self._context, self._context.stage.inputs
        # Of code that had a plan here one may be left: without one the order is that of the only input.
        if context.stage.has_plan and commit is not None and commit.plan is not None:
            self.plan_left.extend(commit.plan.ranges)
        starts = [each.next_offset for each in commit.inputs] if commit else [each.log_start for each in inputs]
        self.sources = [Source(input, start) for input, start in zip(inputs, starts, strict=True)]
        if self.plan_left and context.stage.collect is not None:
            self.sources[0].plan_to(self.plan_left[0].end, context.now)
        for rows in planned:
            records = Records(rows.offsets, rows.keys, rows.values, rows.times)
            end = max(each.end for each in self.plan_left if each.input == rows.input)
            self.sources[rows.input].add(records, end, context.now)
            self.rows_bytes += rows_size(records)

    def fetch(self) -> None:
        for index, source in enumerate(self.sources):
            if not source.is_asked and not source.left:
                source.is_asked = True
                self._context.ask(Fetch(index, source.fetched_to))

    # --- runs

    def next_run(self) -> tuple[Source, int] | None:
        """The input whose first records are next, and how many of them; where they are at hand."""
        if not self._context.stage.has_plan:
            (source,) = self.sources
            return (source, min(source.left, self.run_records)) if source.left else None
        if not self.plan_left:
            return None
        due = self.plan_left[0]
        source = self.sources[due.input]
        there = source.before(due.end)
        return (source, min(there, self.run_records)) if there else None

    def pass_range(self) -> Source | None:
        """The first range of the plan is over, where all of it was taken; then its mark counts."""
        if not (self._context.stage.has_plan and self.plan_left):
            return None
        due = self.plan_left[0]
        source = self.sources[due.input]
        if source.fetched_to < due.end:
            return None
        source.next_offset = max(source.next_offset, due.end)
        self.plan_left.popleft()
        self._context.work.mark(due.input, due.mark_ms)
        return source

    def take(self, source: Source, records: int, rows_bytes: int) -> None:
        if records:
            source.take(records)
        self.rows_bytes -= rows_bytes

    def halve_runs(self, records: int) -> None:
        self.run_records = records // 2 or 1

    def first_of(self, records: Records, source: Source) -> str:
        if not records.offsets:
            return "what is due by the time"
        topic, cell, key = source.input.topic, self._context.stage.cell, records.keys[0]
        return f"the record at offset {records.offsets[0]} of {topic}-{cell}, with the key {shown(key)},"

    @property
    def left(self) -> int:
        """Records that are at hand, and not taken yet."""
        return sum(source.left for source in self.sources)

    # --- plans and positions

    def plan(self, changed_bytes: int, most: int | None = None) -> Plan | None:
        """The commit has `changed_bytes` beside it."""
        context, marks, due_ms = self._context, self._context.work.marks, self.due_by_time_ms
        if context.stage.collect is not None:
            return collected(self.sources[0], context.now, context.stage.collect, marks, due_ms)
        return plan_of(self.sources, context.now, context.limits, marks, due_ms, most, changed_bytes)

    def rest_of_plan(self) -> Plan:
        """The part of the plan that is left. A cell that leaves may have taken the first of its records."""
        ranges = []
        for due in self.plan_left:
            first = min(max(due.first, self.sources[due.input].position), due.end)
            ranges.append(Range(due.input, first, due.end, due.mark_ms))
        return Plan(ranges, [], self._context.now.wall_ms)

    def planned(self, plan: Plan | None) -> None:
        """Take up a plan that goes into a commit; the work that follows is of this plan."""
        self.plan_left.clear()
        self.run_records = self._context.limits.run_records
        if plan is not None:
            self.plan_left.extend(plan.ranges)
            if self._context.stage.collect is not None:
                self.sources[0].plan_to(plan.ranges[0].end, self._context.now)

    def take_rows(self, plan: Plan | None) -> list[tuple[int, Records]]:
        """The rows of tables that a plan takes: they go into the commit, too."""
        rows = self.rows_of(plan.ranges if plan else ())
        self.rows_bytes = sum(rows_size(records) for _, records in rows)
        return rows

    def rows_of(self, ranges: Sequence[Range]) -> list[tuple[int, Records]]:
        """The rows of tables in these ranges, of those that are at hand."""
        inputs = self._context.stage.inputs
        ends = {each.input: each.end for each in ranges if inputs[each.input].is_table}
        found = ((input, self.sources[input]) for input in ends)
        rows = [(input, source.next(source.before(ends[input]))) for input, source in found]
        return [(input, records) for input, records in rows if records.offsets]

    def positions(self) -> list[InputPosition]:
        return [
            InputPosition(each.topic_id, source.position, -1, mark_ms)
            for each, source, mark_ms in zip(
                self._context.stage.inputs, self.sources, self._context.work.marks, strict=True
            )
        ]

    def has_moved(self, last: Commit | None) -> bool:
        """Whether it has taken anything behind what is committed of them."""
        inputs = self._context.stage.inputs
        starts = [each.next_offset for each in last.inputs] if last else [each.log_start for each in inputs]
        return any(source.position > start for source, start in zip(self.sources, starts, strict=True))

    # --- the time

    def mark_by_time(self) -> None:
        for index, source in enumerate(self.sources):
            self._context.work.mark(index, source.mark_by_time_ms)

    @property
    def due_by_time_ms(self) -> float:
        """The watermark at which there is something to do, though no record came."""
        stage, work = self._context.stage, self._context.work
        due = [] if (timer_ms := work.next_timer_ms) is None else [timer_ms]
        if stage.collect is not None:
            due.append(work.watermark_ms // HOUR_MS * HOUR_MS + HOUR_MS)
        if stage.tells_time:
            due.append(work.watermark_ms + self._context.limits.tell_time_every_ms)
        return min(due, default=inf)

    @property
    def is_timer_due(self) -> bool:
        timer_ms = self._context.work.next_timer_ms
        return timer_ms is not None and timer_ms <= self._context.work.watermark_ms

    @property
    def is_time_to_be_told(self) -> bool:
        """Whether the time is to be told by a stage that has no plan to say so."""
        stage = self._context.stage
        if stage.has_plan or not stage.tells_time:
            return False
        marks = zip(self._context.work.marks, self.sources, strict=True)
        return min(max(mark_ms, source.mark_by_time_ms) for mark_ms, source in marks) >= self.due_by_time_ms

    @property
    def due_ms(self) -> list[int]:
        """The times at which there is something to do with them, by the monotonic clock."""
        stage, limits, now = self._context.stage, self._context.limits, self._context.now
        due: list[int] = []
        empty = [each.empty_since_ms for each in self.sources if each.empty_since_ms is not None]
        if stage.has_plan and len(empty) < len(self.sources):
            due.extend(ms + limits.wait_ms for ms in empty if ms + limits.wait_ms > now.monotonic_ms)
        if stage.collect is not None:
            waiting = [each.waits_since_ms for each in self.sources if each.waits_since_ms is not None]
            due.extend(ms + stage.collect.every_ms for ms in waiting)
        at_ms = self.due_by_time_ms + max(each.wait_ms for each in stage.inputs) - now.wall_ms
        if 0 < at_ms < inf:
            due.append(now.monotonic_ms + int(at_ms))
        return due
