"""Which records a step takes next, where a stage has several inputs: those with the least time, of what is at hand. An
input that is empty is waited for a while. Pure: the answer goes into the log before it is acted upon.
"""

from bisect import bisect_left
from collections.abc import Sequence

from oncelog.flow.formats import MOST_RANGES, Plan, Range
from oncelog.flow.messages import EMPTY, Records


class Source:
    """One input: what was fetched and not taken yet."""

    def __init__(self, next_offset: int) -> None:
        self.next_offset = next_offset  # the position: all before it is taken
        self.fetched_to = next_offset
        self.records = EMPTY
        self.at = 0  # of them; those before it are taken
        self.is_asked = False
        self.empty_since_ms: int | None = None  # when it was found to be at its end

    def add(self, records: Records, next_offset: int, now_ms: int) -> None:
        """What was asked for when nothing was left."""
        self.is_asked = False
        self.records, self.at = records, bisect_left(records.offsets, self.fetched_to)
        self.fetched_to = max(self.fetched_to, next_offset)
        if self.left:
            self.empty_since_ms = None
        elif self.empty_since_ms is None:
            self.empty_since_ms = now_ms

    @property
    def left(self) -> int:
        return len(self.records.offsets) - self.at

    def before(self, offset: int) -> int:
        """How many of those that are left."""
        return bisect_left(self.records.offsets, offset, self.at) - self.at

    def next(self, most: int) -> Records:
        return self.records.part(self.at, self.at + most)

    def take(self, records: int) -> None:
        self.at += records
        self.next_offset = self.records.offsets[self.at - 1] + 1


def plan_of(sources: Sequence[Source], now_ms: int, wall_ms: int, wait_ms: int, most_records: int) -> Plan | None:
    """None while there is nothing to plan, or somebody is waited for."""
    ended = [index for index, source in enumerate(sources) if _is_over(source, now_ms, wait_ms)]
    heads = [source.at for source in sources]
    ranges: list[Range] = []
    left = most_records
    while left and len(ranges) < MOST_RANGES:
        waiting = []
        for index, source in enumerate(sources):
            times = source.records.times
            if heads[index] < len(times):
                waiting.append((times[heads[index]], index))
            elif index not in ended:
                break
        else:
            if not waiting:
                break
            waiting.sort()
            index = waiting[0][1]
            before = waiting[1] if len(waiting) > 1 else None
            taken = _run(sources[index].records.times, heads[index], index, before, left)
            offsets = sources[index].records.offsets
            ranges.append(Range(index, offsets[heads[index]], offsets[heads[index] + taken - 1] + 1))
            heads[index] += taken
            left -= taken
            continue
        break
    return Plan(ranges, ended, wall_ms) if ranges else None


def _run(times: Sequence[int], at: int, index: int, before: tuple[int, int] | None, most: int) -> int:
    """How many come in a row, before the first one of another input."""
    end = min(len(times), at + most)
    if before is None:
        return end - at
    place = at + 1
    while place < end and (times[place], index) < before:
        place += 1
    return place - at


def _is_over(source: Source, now_ms: int, wait_ms: int) -> bool:
    return source.empty_since_ms is not None and now_ms - source.empty_since_ms >= wait_ms
