"""Which records a step takes next, where a stage has several inputs: those with the least timestamp, of what is at
hand. An input that is empty is waited for a while. Pure: the answer goes into the log before it is acted upon.
"""

from collections import deque
from collections.abc import Sequence

from oncelog.flow.formats import MOST_RANGES, Plan, Range
from oncelog.flow.messages import InputRecord


class Source:
    """One input: what was fetched and not taken yet."""

    def __init__(self, next_offset: int) -> None:
        self.next_offset = next_offset  # the position: all before it is taken
        self.fetched_to = next_offset
        self.records: deque[InputRecord] = deque()
        self.is_asked = False
        self.empty_since_ms: int | None = None  # when it was found to be at its end

    def add(self, records: Sequence[InputRecord], next_offset: int, now_ms: int) -> None:
        self.is_asked = False
        self.records.extend(each for each in records if each.offset >= self.fetched_to)
        self.fetched_to = max(self.fetched_to, next_offset)
        if self.records:
            self.empty_since_ms = None
        elif self.empty_since_ms is None:
            self.empty_since_ms = now_ms

    def take(self) -> InputRecord:
        record = self.records.popleft()
        self.next_offset = record.offset + 1
        return record


def plan_of(sources: Sequence[Source], now_ms: int, wall_ms: int, wait_ms: int, most_records: int) -> Plan | None:
    """None while there is nothing to plan, or somebody is waited for."""
    rests = [iter(source.records) for source in sources]
    heads = [next(rest, None) for rest in rests]
    ended = [index for index, source in enumerate(sources) if _is_over(source, now_ms, wait_ms)]
    ranges: list[Range] = []
    for _ in range(most_records):
        if any(head is None and index not in ended for index, head in enumerate(heads)):
            break
        waiting = [(head.timestamp_ms, index, head.offset) for index, head in enumerate(heads) if head is not None]
        if not waiting:
            break
        _, index, offset = min(waiting)
        heads[index] = next(rests[index], None)
        if ranges and ranges[-1].input == index:
            ranges[-1] = Range(index, ranges[-1].first, offset + 1)
        elif len(ranges) < MOST_RANGES:
            ranges.append(Range(index, offset, offset + 1))
        else:
            break
    return Plan(ranges, ended, wall_ms) if ranges else None


def _is_over(source: Source, now_ms: int, wait_ms: int) -> bool:
    return source.empty_since_ms is not None and now_ms - source.empty_since_ms >= wait_ms
