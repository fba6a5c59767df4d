"""Arrow batches as Spark hands them over, made into what a producer takes: one topic each, no nulls where none may
be."""

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from oncelog.spark.sink.errors import SinkRefused

COLUMNS = ("topic", "key", "value", "headers", "partition", "timestamp")


class Portion(NamedTuple):
    topic: str
    rows: pa.RecordBatch
    first_row: int  # in the lane, or of the portion's first row where others lie between


def columns_of(batch: pa.RecordBatch, topic: str | None) -> tuple[str, ...]:
    """What is written of such batches, in a fixed order; the option `topic` goes before the column."""
    there = {name.lower() for name in batch.schema.names}
    return tuple(name for name in COLUMNS if name in there and not (name == "topic" and topic is not None))


def chosen(batch: pa.RecordBatch, columns: tuple[str, ...]) -> pa.RecordBatch:
    """Only the columns that are written, by their names in lower case."""
    places = {name.lower(): at for at, name in enumerate(batch.schema.names)}
    return pa.RecordBatch.from_arrays([batch.column(places[name]) for name in columns], list(columns))


def portions(batch: pa.RecordBatch, topic: str | None, first_row: int) -> Iterator[Portion]:
    """For each topic its rows, in their order. `batch` is what `chosen` made."""
    _check_partitions(batch, first_row)
    if topic is not None:
        for rows, at in _by_times(batch, first_row):
            yield Portion(topic, rows, at)
        return
    topics = batch.column("topic")
    if topics.null_count:
        row = first_row + int(np.flatnonzero(np.asarray(topics.is_null()))[0])
        raise SinkRefused(
            f"row {row}: null topic present in the data. Use the topic option for setting a topic, or fill the column"
        )
    rows = batch.select([name for name in batch.schema.names if name != "topic"])
    encoded = topics.dictionary_encode()
    names = encoded.dictionary.to_pylist()
    for number, name in enumerate(names):
        mine, at = rows, first_row
        if len(names) > 1:
            mask = pc.equal(encoded.indices, number)
            mine, at = rows.filter(mask), first_row + int(np.argmax(np.asarray(mask)))
        for part, part_at in _by_times(mine, at):
            yield Portion(name, part, part_at)


def _check_partitions(batch: pa.RecordBatch, first_row: int) -> None:
    """Null leaves it to the partitioner; the producer would take -1 for that."""
    if "partition" not in batch.schema.names:
        return
    column = batch.column("partition")
    if pa.types.is_null(column.type):
        return
    numbers = column.fill_null(0).to_numpy(zero_copy_only=False)
    if len(numbers) and int(numbers.min()) < 0:
        row = int(numbers.argmin())
        raise SinkRefused(f"row {first_row + row}: there is no partition {int(numbers[row])}; null leaves the choice")


def _by_times(rows: pa.RecordBatch, first_row: int) -> Iterator[tuple[pa.RecordBatch, int]]:
    """A null timestamp means now. The producer takes a time for each row or for none, so the rows are cut where one
    kind ends and the other begins."""
    if "timestamp" not in rows.schema.names:
        yield rows, first_row
        return
    times = rows.column("timestamp")
    if not times.null_count:
        yield rows, first_row
        return
    timeless = rows.select([name for name in rows.schema.names if name != "timestamp"])
    if times.null_count == len(times):
        yield timeless, first_row
        return
    is_null = np.asarray(times.is_null())
    bounds = np.flatnonzero(np.diff(is_null)) + 1
    for start, stop in pairwise((0, *bounds.tolist(), len(times))):
        yield (timeless if is_null[start] else rows).slice(start, stop - start), first_row + start
