"""Arrow batches as Spark hands them over, made into what a producer takes: one topic each, no nulls where none may
be."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from oncelog.spark.sink.lane import COLUMNS


class Portion(NamedTuple):
    topic: str
    rows: pa.RecordBatch
    numbers: Any  # of its rows in the lane, one for each

    def number(self, row: int) -> int:
        return int(self.numbers[row])


def columns_of(batch: pa.RecordBatch, topic: str | None) -> tuple[str, ...]:
    """The columns of such batches that are written, in a fixed order; the option `topic` goes before the column."""
    there = {name.lower() for name in batch.schema.names}
    return tuple(name for name in COLUMNS if name in there and not (name == "topic" and topic is not None))


def chosen(batch: pa.RecordBatch, columns: tuple[str, ...]) -> pa.RecordBatch:
    """The columns that are written, by their names in lower case."""
    places = {name.lower(): at for at, name in enumerate(batch.schema.names)}
    return pa.RecordBatch.from_arrays([batch.column(places[name]) for name in columns], list(columns))


def portions(batch: pa.RecordBatch, topic: str | None, first_row: int) -> Iterator[Portion]:
    """The rows of each topic, in their order. `batch` is what `chosen` made. ValueError names a row that has no
    place."""
    _check_partitions(batch, first_row)
    numbers = range(first_row, first_row + batch.num_rows)
    if topic is not None:
        yield from _by_times(Portion(topic, batch, numbers))
        return
    topics = batch.column("topic")
    if topics.null_count:
        row = first_row + int(np.flatnonzero(np.asarray(topics.is_null()))[0])
        raise ValueError(
            f"row {row}: null topic present in the data. Use the topic option for setting a topic, or fill the column"
        )
    rows = batch.select([name for name in batch.schema.names if name != "topic"])
    encoded = topics.dictionary_encode()
    names = encoded.dictionary.to_pylist()
    if len(names) == 1:
        yield from _by_times(Portion(names[0], rows, numbers))
        return
    for index, name in enumerate(names):
        places = np.flatnonzero(encoded.indices.to_numpy(zero_copy_only=False) == index)
        yield from _by_times(Portion(name, rows.take(pa.array(places)), places + first_row))


def named_partitions(rows: pa.RecordBatch) -> tuple[int, bool]:
    """The number of partitions that the rows need; whether any row leaves the choice to the partitioner."""
    column = rows.column("partition") if "partition" in rows.schema.names else None
    if column is None or column.null_count == len(column):
        return 0, bool(rows.num_rows)
    return int(pc.max(column).as_py()) + 1, column.null_count > 0


def oldest_ms(rows: pa.RecordBatch) -> int | None:
    """The first of the timestamps that these rows bring."""
    if "timestamp" not in rows.schema.names:
        return None
    oldest = pc.min(rows.column("timestamp"))
    return int(oldest.cast(pa.timestamp("ms", "UTC"), safe=False).value) if oldest.is_valid else None


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
        raise ValueError(f"row {first_row + row}: there is no partition {int(numbers[row])}; null leaves the choice")


def _by_times(portion: Portion) -> Iterator[Portion]:
    """A null timestamp means now. The producer takes a time for each row or for none, so the rows are cut where one
    kind ends and the other begins."""
    topic, rows, numbers = portion
    times = rows.column("timestamp") if "timestamp" in rows.schema.names else None
    if times is None or not times.null_count:
        yield portion
        return
    timeless = rows.select([name for name in rows.schema.names if name != "timestamp"])
    is_null = np.asarray(times.is_null())
    bounds = np.flatnonzero(np.diff(is_null)) + 1
    for start, stop in pairwise((0, *bounds.tolist(), len(times))):
        piece = (timeless if is_null[start] else rows).slice(start, stop - start)
        yield Portion(topic, piece, numbers[start:stop])
