"""The records that a step takes next, where a stage has several inputs: of those at hand, the ones with the least time.
An input that is empty is waited for a while. A table is read before all else, as far as it goes when its cell begins;
from then on it is not waited for where it is at its end. Pure: the answer goes into the log before it is acted upon.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from typing import Final

from oncelog.clock import Now
from oncelog.flow.description import Collect, Input, Limits
from oncelog.flow.formats import MOST_RANGES, Plan, Range
from oncelog.flow.messages import EMPTY, Records

MOST_HEARD: Final = 1_000
LOADED_MS: Final = 1 << 62  # the mark of a table that was read to its end: it keeps no time back
ROW_BYTES: Final = 64  # of a row in a commit, beside key and value


class Source:
    """One input: what was fetched and not taken yet."""

    def __init__(self, input: Input, next_offset: int) -> None:
        self.input = input
        self.next_offset = next_offset  # the position: all before it is taken
        self.fetched_to = next_offset
        self.records = EMPTY
        self.at = 0  # of them; those before it are taken
        self.is_asked = False
        self.empty_since_ms: int | None = None  # when it was found to be at its end
        self.end_seen_ms = -1  # by the wall clock: when that was seen last
        self.seen_to = self.planned_to = next_offset  # so far there are records, and so far a plan has them
        self.load_to: int | None = None  # so far a table is read, before all else
        self.waits_since_ms: int | None = None  # when the first of those that no plan has was seen
        self.heard: deque[tuple[int, int]] = deque()  # of those who write it: behind this offset comes nothing older

    def see(self, end_offset: int, now: Now) -> None:
        """The input is known to go up to here."""
        self.seen_to = max(self.seen_to, end_offset)
        if self.waits_since_ms is None and self.seen_to > self.planned_to:
            self.waits_since_ms = now.monotonic_ms

    def see_unfetched(self, end_offset: int, now: Now) -> None:
        """The input is known to go up to here, though not all of it was fetched."""
        if self.input.is_table and self.load_to is None and end_offset >= 0:
            self.load_to = end_offset
        self.see(end_offset, now)

    def plan_to(self, end_offset: int, now: Now) -> None:
        self.planned_to = max(self.planned_to, end_offset)
        self.waits_since_ms = now.monotonic_ms if self.seen_to > self.planned_to else None

    def add(self, records: Records, next_offset: int, now: Now, *, is_open: bool = False) -> None:
        """Take the records that were asked for when none were left."""
        self.is_asked = False
        self.records, self.at = records, bisect_left(records.offsets, self.fetched_to)
        self.fetched_to = max(self.fetched_to, next_offset)
        self.see(self.fetched_to, now)
        if self.left:
            self.empty_since_ms = None
        else:
            self.at_its_end(now, is_open=is_open)

    def at_its_end(self, now: Now, *, is_open: bool = False) -> None:
        """`is_open`: a transaction keeps back what stands behind. Its records are older than now, so the time waits."""
        if not is_open:
            self.end_seen_ms = now.wall_ms
        if self.empty_since_ms is None:
            self.empty_since_ms = now.monotonic_ms

    def hear(self, offset: int, mark_ms: int, known_ms: int) -> None:
        while self.heard and (self.heard[0][1] <= known_ms or len(self.heard) >= MOST_HEARD):
            self.heard.popleft()
        if not self.heard or mark_ms > self.heard[-1][1]:
            self.heard.append((offset, mark_ms))

    def mark_at(self, offset: int) -> int:
        """The mark that its writers have set for records behind this offset; -1 where there is none."""
        return max((mark_ms for behind, mark_ms in self.heard if behind <= offset), default=-1)

    def records_before_a_mark(self, at: int, most: int) -> int:
        marks = [behind for behind, _ in self.heard] if self.load_to is None else [self.load_to]
        behind = next((behind for behind in marks if behind > self.records.offsets[at]), None)
        return most if behind is None else min(most, bisect_left(self.records.offsets, behind, at) - at)

    @property
    def end_mark_ms(self) -> int:
        """Read to its end, an input counts as now. -1 where it is not."""
        is_at_end = not self.input.is_derived and self.empty_since_ms is not None
        return self.end_seen_ms - self.input.wait_ms if is_at_end else -1

    @property
    def mark_by_time_ms(self) -> int:
        """The mark behind what is taken, beside what its records say; -1 where there is none."""
        return max(self.mark_at(self.position), self.end_mark_ms)

    @property
    def position(self) -> int:
        """All before it is taken, or was no record."""
        return self.next_offset if self.left else max(self.next_offset, self.fetched_to)

    @property
    def left(self) -> int:
        return len(self.records.offsets) - self.at

    def is_loaded_at(self, head: int) -> bool:
        """Whether a table whose first records up to here are taken is read so far that others may be joined with it."""
        return self.load_to is not None and self.offset_at(head) >= self.load_to

    def offset_at(self, head: int) -> int:
        """All before it is among the first records up to here, or is no record."""
        return self.records.offsets[head] if head < len(self.records.offsets) else self.fetched_to

    def before(self, offset: int) -> int:
        """The number of remaining records before this offset."""
        return bisect_left(self.records.offsets, offset, self.at) - self.at

    def next(self, most: int) -> Records:
        return self.records.part(self.at, self.at + most)

    def take(self, records: int) -> None:
        self.at += records
        self.next_offset = self.records.offsets[self.at - 1] + 1
        if not self.left:
            self.records, self.at = EMPTY, 0


def plan_of(
    sources: Sequence[Source],
    now: Now,
    limits: Limits,
    marks: Sequence[int],
    due_ms: float,
    most: int | None = None,
    changed_bytes: int = 0,
) -> Plan | None:
    """None while there is nothing to plan, or somebody is waited for. Where no record is there, a plan is worth making
    if it brings the watermark to what is due. The commit has `changed_bytes` beside the plan and its rows."""
    ended = [index for index, source in enumerate(sources) if _is_over(source, now.monotonic_ms, limits.wait_ms)]
    heads = [source.at for source in sources]
    ranges: list[Range] = []
    left = most or limits.plan_records
    room = limits.commit_bytes // 2 - changed_bytes
    while left and len(ranges) < MOST_RANGES - len(sources):
        waiting = _heads(sources, heads, ended, marks)
        if not waiting:
            break
        (_, rank), *others = waiting
        index = rank % len(sources)
        source, at = sources[index], heads[index]
        before = others[0] if others else None
        taken = _run(source.records.times, at, rank, before, source.records_before_a_mark(at, left))
        if source.input.is_table:
            taken, room = _fitting(source.records, at, taken, room, is_first=not (ranges or changed_bytes))
            if not taken:
                break
        heads[index] += taken
        left -= taken
        end = source.records.offsets[heads[index] - 1] + 1
        ranges.append(Range(index, source.records.offsets[at], end, source.mark_at(end)))
    for index, (source, head) in enumerate(zip(sources, heads, strict=True)):
        at, mark_ms = _mark(source, head)
        planned_ms = max((each.mark_ms for each in ranges if each.input == index), default=-1)
        if mark_ms > max(marks[index], planned_ms):
            ranges.append(Range(index, at, at, mark_ms))
    if any(each.end > each.first for each in ranges) or _watermark(ranges, marks) >= due_ms:
        return Plan(ranges, ended, now.wall_ms)
    return None


def collected(source: Source, now: Now, collect: Collect, marks: Sequence[int], due_ms: float) -> Plan | None:
    """The plan of one input, whose records need not be at hand."""
    first, most = source.next_offset, collect.records
    is_due = source.waits_since_ms is not None and now.monotonic_ms - source.waits_since_ms >= collect.every_ms
    end = min(source.seen_to, first + most) if is_due or source.seen_to - first >= most else first
    mark_ms = source.mark_at(end)
    if end == first == source.fetched_to:
        mark_ms = max(mark_ms, source.end_mark_ms)
    ranges = [Range(0, first, end, mark_ms)]
    return Plan(ranges, [], now.wall_ms) if end > first or _watermark(ranges, marks) >= due_ms else None


def _watermark(ranges: Sequence[Range], marks: Sequence[int]) -> int:
    """The watermark behind a plan of these ranges."""
    reached = list(marks)
    for each in ranges:
        reached[each.input] = max(reached[each.input], each.mark_ms)
    return min(reached)


def _heads(
    sources: Sequence[Source], heads: Sequence[int], ended: Sequence[int], marks: Sequence[int]
) -> list[tuple[int, int]]:
    """The times of the next records and whose they are, the first one first; none while one is waited for. At the same
    time a row comes first, so a table is counted from below zero. While one is loaded no others have a turn."""
    waiting = []
    loading = [
        index
        for index, (source, head) in enumerate(zip(sources, heads, strict=True))
        if source.input.is_table and marks[index] < LOADED_MS and not source.is_loaded_at(head)
    ]
    for index in loading or range(len(sources)):
        source, head = sources[index], heads[index]
        if head < len(source.records.times):
            waiting.append((source.records.times[head], index - len(sources) * source.input.is_table))
        elif index not in ended and not loading:
            return []
    return sorted(waiting)


def _fitting(records: Records, at: int, most: int, room: int, *, is_first: bool) -> tuple[int, int]:
    """The number of these rows that a commit has room for, and the room left then. The first row is tried in any
    case."""
    for taken in range(most):
        room -= rows_size(records.part(at + taken, at + taken + 1))
        if room < 0 and not (is_first and taken == 0):
            return taken, 0
    return most, room


def rows_size(records: Records) -> int:
    """The bytes of a commit that they take, at most."""
    cells = sum(len(cell) for column in (records.keys, records.values) for cell in column if cell is not None)
    return cells * 4 // 3 + ROW_BYTES * len(records.offsets)


def _mark(source: Source, head: int) -> tuple[int, int]:
    """The offset that the plan gets to, and the mark of this input there."""
    if source.input.is_table:
        return source.offset_at(head), LOADED_MS if source.is_loaded_at(head) else -1
    if head < len(source.records.offsets):
        offset = source.records.offsets[head]
        return offset, source.mark_at(offset)
    return source.fetched_to, max(source.mark_at(source.fetched_to), source.end_mark_ms)


def _run(times: Sequence[int], at: int, rank: int, before: tuple[int, int] | None, most: int) -> int:
    """The number of records in a row, before the first one of another input."""
    end = min(len(times), at + most)
    if before is None:
        return end - at
    place = at + 1
    while place < end and (times[place], rank) < before:
        place += 1
    return place - at


def _is_over(source: Source, now_ms: int, wait_ms: int) -> bool:
    if source.input.is_table:
        return source.empty_since_ms is not None
    return source.empty_since_ms is not None and now_ms - source.empty_since_ms >= wait_ms
