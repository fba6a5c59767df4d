"""Fetched records as Arrow data, under the names and in the order of Spark's Kafka source."""

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from oncelog.records.arrow import HEADERS, to_arrow

if TYPE_CHECKING:
    from oncelog.records.column_types import Columns

SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("ms", "UTC"), nullable=False),
        pa.field("timestampType", pa.int32(), nullable=False),
        pa.field("headers", HEADERS, nullable=False),
    ]
)


class PartitionColumns:
    """Topic and partition as columns: made once for as many rows as were ever needed, and cut to size."""

    def __init__(self, topic: str, partition: int) -> None:
        self._topic = pa.scalar(topic, pa.string())
        self._partition = pa.scalar(partition, pa.int32())
        self._rows = -1
        self._columns: tuple[Any, Any] = (None, None)

    def of(self, rows: int) -> tuple[Any, Any]:
        if rows > self._rows:
            self._rows = rows
            self._columns = pa.repeat(self._topic, rows), pa.repeat(self._partition, rows)
        topics, partitions = self._columns
        return topics.slice(0, rows), partitions.slice(0, rows)


def record_batch(columns: "Columns", own: PartitionColumns) -> Any:
    """All of a partition's decoded columns as a RecordBatch of `SCHEMA`."""
    decoded = to_arrow(columns)
    key, value, headers, offset, timestamp, timestamp_type = decoded.columns
    topics, partitions = own.of(columns.row_count)
    arrays = [key, value, topics, partitions, offset, timestamp, timestamp_type, headers]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def table_of(batches: list[Any]) -> Any:
    return pa.Table.from_batches(batches, schema=SCHEMA)
