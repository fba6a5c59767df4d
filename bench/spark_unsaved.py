"""The direct sink with saving and hashing switched off, to tell what they cost: at least once, for the bench alone."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamWriter
from pyspark.sql.types import StructType

from oncelog.spark.datasource import OncelogDataSource
from oncelog.spark.sink.direct import StreamWriter, place_of_task
from oncelog.spark.sink.lane import LaneMessage
from oncelog.spark.sink.written import TaskMessage
from oncelog.spark.worker import keep_imports

if TYPE_CHECKING:
    import pyarrow as pa


class UnsavedWriter(StreamWriter):
    def write(self, iterator: "Iterator[pa.RecordBatch]") -> TaskMessage:
        from oncelog.spark.sink.plain_writer import write_plain

        place = place_of_task()
        try:
            write_plain(self._options, iterator)
        finally:
            keep_imports()
        return TaskMessage(LaneMessage("unsaved", place.query, place.batch, place.lane, place.attempt, 0, "", None))

    def commit(self, messages: list[Any], batchId: int) -> None:
        """Nothing is written down."""


class UnsavedDataSource(OncelogDataSource):
    @classmethod
    def name(cls) -> str:
        return "oncelog-unsaved"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return UnsavedWriter(self.options, schema, overwrite)
