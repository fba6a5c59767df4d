"""A stream's positions: as the JSON that Spark keeps in its checkpoint, and what follows from two of them.

An offset looks as that of Spark's own Kafka source, `{"topic":{"0":23}}`, so that whatever reads it goes on working.
Entries more may stand in it, under names that no topic can have:
- `$topics`: the ids of the topics, where brokers tell them: a topic that was deleted and made anew is another one, also
  where its log has grown beyond the offset.
- `$start`: where those partitions begin that the offset before does not name, or names wrongly. The first offset of a
  query has all of them, because Spark asks for the initial offset again after a restart, and then it may be another.
- `$split`: how partitions are cut into tasks, as the options were when the batch was planned.
So which tasks a batch has, and what each reads, is a function of its two offsets alone.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import ceil, floor
from typing import Any, Final

from oncelog.client.door import Range
from oncelog.settings import LONG_MAX
from oncelog.slots import AnyPlace
from oncelog.spark.source.errors import SourceError

START: Final = "$start"
SPLIT: Final = "$split"
TOPICS: Final = "$topics"
INITIAL: Final = "$initial"
_MIN: Final = "minPartitions"
_MAX: Final = "maxRecordsPerPartition"

Offsets = dict[AnyPlace, int]


@dataclass(frozen=True, slots=True)
class Split:
    min_partitions: int | None = None
    max_records: int | None = None


NO_SPLIT: Final = Split()


@dataclass(frozen=True, slots=True)
class Positions:
    at: Offsets
    starts: Offsets = field(default_factory=dict)
    split: Split = NO_SPLIT
    is_initial: bool = False
    topic_ids: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = _nested(self.at)
        if self.starts:
            found[START] = _nested(self.starts)
        split = {_MIN: self.split.min_partitions, _MAX: self.split.max_records}
        if any(split.values()):
            found[SPLIT] = {name: number for name, number in split.items() if number}
        if self.topic_ids:
            found[TOPICS] = dict(sorted(self.topic_ids.items()))
        if self.is_initial:
            found[INITIAL] = True
        return found


def from_json(found: Mapping[str, Any]) -> Positions:
    """Positions from a checkpoint, which may hold anything."""
    try:
        return _positions(found)
    except (AttributeError, TypeError, ValueError):
        raise SourceError(
            f"this is no offset of this source: {str(found)[:200]}. The checkpoint was damaged, or another source's: "
            "put back a copy of it, or begin with a new one"
        ) from None


def _positions(found: Mapping[str, Any]) -> Positions:
    split = found.get(SPLIT, {})
    return Positions(
        _flat(found),
        _flat(found.get(START, {})),
        Split(split.get(_MIN), split.get(_MAX)),
        bool(found.get(INITIAL)),
        dict(found.get(TOPICS, {})),
    )


def _nested(at: Offsets) -> dict[str, Any]:
    topics: dict[str, Any] = {}
    for (topic, index), offset in sorted(at.items()):
        topics.setdefault(topic, {})[str(index)] = offset
    return topics


def _flat(topics: Mapping[str, Any]) -> Offsets:
    return {
        (topic, int(index)): _whole(offset)
        for topic, partitions in topics.items()
        if not topic.startswith("$")
        for index, offset in partitions.items()
    }


def _whole(offset: Any) -> int:
    if type(offset) is not int:
        raise TypeError("an offset is a whole number")
    return offset


# --- a batch


def ranges(start: Positions, end: Positions) -> list[Range]:
    """The ranges between two offsets: one for each task of the batch."""
    begin = start.at | end.starts
    whole = [
        Range(*partition, begin[partition], last, topic_id=end.topic_ids.get(partition[0], ""))
        for partition, last in sorted(end.at.items())
        if partition in begin
    ]
    return split(whole, end.split)


def split(whole: Iterable[Range], by: Split) -> list[Range]:
    """Ranges cut so that none has more than `max_records`, and so that there are about `min_partitions` of them: as
    many parts of each as its share of all that is to be read."""
    parts = [part for each in whole if each.end > each.start for part in _cut(each, _pieces(each, by.max_records))]
    if by.min_partitions is None or len(parts) >= by.min_partitions:
        return parts
    total = sum(each.end - each.start for each in parts)
    small = [each for each in parts if _share(each, total, by.min_partitions) == 1]
    left = max(1, by.min_partitions - len(small))
    left_total = total - sum(each.end - each.start for each in small)
    cut: list[Range] = []
    for each in parts:
        cut += [each] if each in small else _cut(each, _share(each, left_total, left))
    return cut


def _pieces(whole: Range, max_records: int | None) -> int:
    return 1 if max_records is None else ceil((whole.end - whole.start) / max_records)


def _share(part: Range, total: int, parts: int) -> int:
    return max(1, floor((part.end - part.start) / total * parts + 0.5))


def _cut(whole: Range, parts: int) -> list[Range]:
    size = whole.end - whole.start
    parts = min(parts, size)
    edges = [whole.start + size * at // parts for at in range(parts + 1)]
    return [replace(whole, start=first, end=last) for first, last in pairwise(edges)]


# --- how far a batch goes


def limited(begin: Offsets, until: Offsets, most: int) -> Offsets:
    """Ends that are together about `most` beyond the beginnings: each partition's part is its share of what waits, and
    none is left out."""
    waiting = {partition: last - begin[partition] for partition, last in until.items() if last > begin[partition]}
    total = sum(waiting.values())
    if total <= most:
        return dict(until)
    ends = dict(until)
    for partition, size in waiting.items():
        share = most * size / total
        rows = max(1, floor(share))
        ends[partition] = min(until[partition], begin[partition] + min(rows, LONG_MAX - begin[partition]))
    return ends
