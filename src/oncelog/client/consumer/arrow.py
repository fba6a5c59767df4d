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


def record_batch(columns: "Columns", topic: str, partition: int) -> Any:
    """All of a partition's decoded columns as a RecordBatch of `SCHEMA`."""
    decoded = to_arrow(columns)
    rows = columns.row_count
    own = {
        "topic": pa.repeat(pa.scalar(topic, pa.string()), rows),
        "partition": pa.repeat(pa.scalar(partition, pa.int32()), rows),
    }
    arrays = [own[name] if name in own else decoded.column(name) for name in SCHEMA.names]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def table_of(batches: list[Any]) -> Any:
    return pa.Table.from_batches(batches, schema=SCHEMA)
