"""In the task: one range of a partition as Arrow data."""

import logging
from collections.abc import Iterator
from typing import Any, Final

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from oncelog.client.consumer.ranges import Range, read_columns
from oncelog.spark.options import SourceOptions
from oncelog.spark.source.columns import RowMaker, to_decode
from oncelog.spark.source.errors import in_words
from oncelog.spark.worker import settle

_log: Final = logging.getLogger("oncelog.spark")
WARNING: Final = "%s. Some data may have been lost because they are not available in Kafka any more (failOnDataLoss)"


class RangePartition(InputPartition):
    """What one task reads. Spark pickles it."""

    def __init__(self, asked: Range) -> None:
        super().__init__(asked)


def read(options: SourceOptions, wanted: StructType, partition: InputPartition) -> Iterator[Any]:
    asked = partition.value
    if asked is None:  # what Spark makes of a plan without partitions
        return
    rows = RowMaker(wanted, asked.topic, asked.partition)
    on_loss = None if options.fail_on_data_loss else warn_of_loss
    found = read_columns(
        options.client,
        asked,
        columns=to_decode(wanted),
        patience_s=options.patience_ms / 1000,
        on_loss=on_loss,
    )
    try:
        with in_words():
            for columns in found:
                yield rows.batch(columns)
    finally:
        settle()


def warn_of_loss(words: str) -> None:
    _log.warning(WARNING, words)
