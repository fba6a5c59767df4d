"""The first record that a replay does not bring again as it stands in the log.

A saved batch that is run again is compared by numbers and hashes. Where these differ, what was written is read back and
held against the rows, so that the message says where to look. Only then does it cost anything.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from oncelog.client import SavedProducer
from oncelog.client.door import (
    KEYLESS,
    Brokers,
    CannotResume,
    KeylessCounter,
    Partitioner,
    partitioner,
    partitions_of,
    slots,
)
from oncelog.producers.sequences import records_behind
from oncelog.records.arrow import bytes_column, headers_column, timestamps
from oncelog.slots import Place, Span
from oncelog.slots.chain import SavedPartition
from oncelog.slots.comparing import difference
from oncelog.slots.replay import Output, Slot
from oncelog.spark.sink.rows import Portion, portions

KEPT_BYTES: Final = 64 << 20


class Kept:
    """The rows of a replay, as far as they are kept."""

    def __init__(self) -> None:
        self.batches: list[pa.RecordBatch] = []
        self.is_whole = True
        self._size_bytes = 0

    def add(self, rows: pa.RecordBatch) -> None:
        self._size_bytes += rows.nbytes
        self.is_whole = self.is_whole and self._size_bytes <= KEPT_BYTES
        if self.is_whole:
            self.batches.append(rows)


class Replayed(NamedTuple):
    row: int
    output: Output


async def first_difference(
    brokers: Brokers, before: SavedProducer, after: SavedProducer, kept: Kept, topic: str | None
) -> str | None:
    """The first difference in words; None where the rows that were kept are the same, or the log can no longer tell.
    `before` and `after` are the lane as it stood before the batch and behind it."""
    replayed = replayed_rows(before, kept.batches, topic)
    found: list[tuple[int, str]] = []
    try:
        for name, saved in after.topics.items():
            for at, end in saved.partitions.items():
                place = Place(name, at)
                standing = await _standing(brokers, place, before.topics[name].partitions[at], end)
                found += _difference(place, standing, replayed.pop(place, []), is_whole=kept.is_whole)
    except (CannotResume, KeyError):
        return None  # gone by retention or compaction; or another batch's
    for place, rows in replayed.items():
        found += _difference(place, [], rows, is_whole=kept.is_whole)
    return min(found)[1] if found else None


async def _standing(brokers: Brokers, place: Place, start: SavedPartition, end: SavedPartition) -> list[Slot]:
    count = records_behind(end.last.next_sequence - 1, start.last.next_sequence)
    found: list[Slot] = []
    if count:
        span = Span(start.last.identity, start.last.next_sequence, count)
        async for portion in slots(brokers, *place, span, start.next_offset):
            found += portion
    return found


def _difference(
    place: Place, standing: list[Slot], rows: list[Replayed], *, is_whole: bool
) -> Iterator[tuple[int, str]]:
    """The first one of a partition, with the row that it is found at."""
    for slot, each in zip(standing, rows, strict=False):
        words = difference(each.output.content, slot.content)
        if words is not None:
            yield each.row, f"row {each.row}: {slot.place_in(*place)}: {words}"
            return
    if len(rows) > len(standing):
        extra = rows[len(standing)]
        yield extra.row, f"row {extra.row} goes to {place.topic}-{place.partition}, where no further record stands"
    elif is_whole and len(rows) < len(standing):
        slot = standing[len(rows)]
        words = f"the record at offset {slot.offset} of {place.topic}-{place.partition} did not come again"
        yield (rows[-1].row + 1 if rows else 0), words


def replayed_rows(
    lane: SavedProducer, batches: Iterable[pa.RecordBatch], topic: str | None
) -> dict[Place, list[Replayed]]:
    """The places to which a lane that stands there puts these rows."""
    placing = partitioner(lane.partitioner)
    counters = {name: KeylessCounter(each.keyless_counter, lane.keyless_run) for name, each in lane.topics.items()}
    found: dict[Place, list[Replayed]] = defaultdict(list)
    row = 0
    for batch in batches:
        for portion in portions(batch, topic, row):
            name = portion.topic
            counter = counters.setdefault(name, KeylessCounter(0, lane.keyless_run))
            count = lane.topics[name].partition_count if name in lane.topics else 1
            chosen = places_of(portion.rows, placing, counter, count)
            for number, output, at in zip(portion.numbers, _outputs(portion), chosen.tolist(), strict=True):
                found[Place(name, at)].append(Replayed(int(number), output))
        row += batch.num_rows
    return found


def places_of(rows: pa.RecordBatch, placing: Partitioner, counter: KeylessCounter, count: int) -> Any:
    """The partitions that the bulk producer of a pinned topic chooses for these rows."""
    columns = _columns(rows)
    chosen: Any = np.full(rows.num_rows, KEYLESS, np.int64)
    if "key" in columns:
        key = bytes_column(columns["key"])
        chosen = partitions_of(placing, key.data, key.ends, count, key.valid).astype(np.int64)
    if "partition" in columns:
        given = columns["partition"].cast(pa.int64()).fill_null(KEYLESS).to_numpy(zero_copy_only=False)
        chosen = np.where(given >= 0, given, chosen)
    keyless = chosen < 0
    turns = counter.choose_many(int(np.count_nonzero(keyless)))
    chosen[keyless] = np.arange(turns.start, turns.stop, dtype=np.int64) // counter.run % count
    return chosen


def _outputs(portion: Portion) -> Iterator[Output]:
    columns = _columns(portion.rows)
    none: list[Any] = [None] * portion.rows.num_rows
    keys = bytes_column(columns["key"]).to_list() if "key" in columns else none
    values = bytes_column(columns["value"]).to_list()
    headers = headers_column(columns["headers"]).to_list() if "headers" in columns else none
    times = timestamps(columns["timestamp"]).tolist() if "timestamp" in columns else none
    for key, value, pairs, time_ms in zip(keys, values, headers, times, strict=True):
        yield Output(key, value, pairs or (), time_ms)


def _columns(rows: pa.RecordBatch) -> Mapping[str, pa.Array]:
    return dict(zip(rows.schema.names, rows.columns, strict=True))
