"""One range of a partition as Arrow data, read in a task."""

from collections.abc import Iterator
from typing import Any, Final

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from oncelog.client.door import Range, read_columns
from oncelog.spark.options import SourceOptions
from oncelog.spark.sentences import told
from oncelog.spark.source.columns import RowMaker, to_decode
from oncelog.spark.source.errors import in_words, lost

# The bytes that go to the JVM at a time. It walks over each batch row by row: one that fits its cache is faster.
BATCH_BYTES: Final = 1 << 20


class RangePartition(InputPartition):
    """The range that one task reads. Spark pickles it."""

    def __init__(self, asked: Range) -> None:
        super().__init__(asked)


def read(options: SourceOptions, wanted: StructType, partition: InputPartition) -> Iterator[Any]:
    asked = partition.value
    if asked is None:  # what Spark makes of a plan without partitions
        return
    rows = RowMaker(wanted, asked.topic, asked.partition)
    found = read_columns(
        options.client,
        asked,
        columns=to_decode(wanted),
        patience_s=options.patience_ms / 1000,
        on_loss=lambda words: lost(words, is_error=options.fail_on_data_loss),
    )
    with told(), in_words():
        for columns in found:
            yield from _cut(rows.batch(columns))


def _cut(batch: Any) -> Iterator[Any]:
    rows = max(1, batch.num_rows * BATCH_BYTES // max(1, batch.nbytes))
    for first in range(0, batch.num_rows, rows):
        yield batch.slice(first, rows)
