"""A source and a sink that do nothing: what a Python data source costs inside Spark before it does any work.

The source yields the same Arrow rows over and over, in the columns of a Kafka source; the sink counts rows.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

COLUMNS = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
DEFAULT_BATCH_ROWS = 10_000


@dataclass(frozen=True, slots=True)
class Shape:
    """What the options ask for."""

    rows: int  # in all
    partitions: int
    value_bytes: int
    batch_rows: int  # of one Arrow batch
    trigger_rows: int  # of one micro-batch

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "Shape":
        rows = int(options["rows"])
        return cls(
            rows=rows,
            partitions=int(options.get("partitions", "1")),
            value_bytes=int(options.get("value.bytes", "100")),
            batch_rows=int(options.get("batch.rows", DEFAULT_BATCH_ROWS)),
            trigger_rows=int(options.get("trigger.rows", rows)),
        )


@dataclass(frozen=True)
class Share(InputPartition):
    rows: int


@dataclass(frozen=True)
class Counted(WriterCommitMessage):
    rows: int


@lru_cache(maxsize=4)
def _sample(names: tuple[str, ...], rows: int, value_bytes: int) -> pa.RecordBatch:
    columns = {
        "key": pa.array([None] * rows, pa.binary()),
        "value": pa.array([b"x" * value_bytes] * rows, pa.binary()),
        "topic": pa.array(["empty"] * rows, pa.string()),
        "partition": pa.array([0] * rows, pa.int32()),
        "offset": pa.array(range(rows), pa.int64()),
        "timestamp": pa.array([0] * rows, pa.timestamp("us", tz="UTC")),
        "timestampType": pa.array([0] * rows, pa.int32()),
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in names], names=list(names))


def _batches(names: tuple[str, ...], shape: Shape, rows: int) -> Iterator[pa.RecordBatch]:
    sample = _sample(names, min(shape.batch_rows, max(rows, 1)), shape.value_bytes)
    while rows > 0:
        yield sample.slice(0, min(rows, sample.num_rows))
        rows -= sample.num_rows


def _shares(rows: int, partitions: int) -> list[Share]:
    each, more = divmod(rows, partitions)
    return [Share(each + (index < more)) for index in range(partitions)]


class Reader(DataSourceReader):
    def __init__(self, shape: Shape, names: tuple[str, ...]) -> None:
        self.shape = shape
        self.names = names

    def partitions(self) -> list[InputPartition]:
        return list(_shares(self.shape.rows, self.shape.partitions))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, Share)
        return _batches(self.names, self.shape, partition.rows)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, shape: Shape, names: tuple[str, ...]) -> None:
        self.shape = shape
        self.names = names

    def prepareForTriggerAvailableNow(self) -> None:
        pass

    def initialOffset(self) -> dict[str, int]:
        return {"at": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
        return {"at": min(self.shape.rows, start["at"] + self.shape.trigger_rows)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return list(_shares(end["at"] - start["at"], self.shape.partitions))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, Share)
        return _batches(self.names, self.shape, partition.rows)

    def commit(self, end: dict[str, int]) -> None:
        pass


def _count(batches: Iterator[pa.RecordBatch]) -> Counted:
    return Counted(sum(batch.num_rows for batch in batches))


class Writer(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _count(iterator)


class StreamWriter(DataSourceStreamArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _count(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        pass


class EmptyDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "empty"

    def schema(self) -> str:
        return COLUMNS

    def reader(self, schema: Any) -> DataSourceReader:
        return Reader(Shape.of(self.options), tuple(schema.fieldNames()))

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return StreamReader(Shape.of(self.options), tuple(schema.fieldNames()))

    def writer(self, schema: Any, overwrite: bool) -> Writer:
        return Writer()

    def streamWriter(self, schema: Any, overwrite: bool) -> StreamWriter:
        return StreamWriter()
