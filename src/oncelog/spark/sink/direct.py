"""`writeStream.format("oncelog")`: the thin part that Spark calls."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter
from pyspark.sql.types import StructType

from oncelog.spark.option import BadOption
from oncelog.spark.options import sink_options
from oncelog.spark.sentences import in_sentences
from oncelog.spark.sink.columns import check_columns
from oncelog.spark.sink.lane import LaneTask
from oncelog.spark.sink.option_checking import check_options
from oncelog.spark.sink.written import TaskMessage, attempt, lanes_of
from oncelog.spark.worker import keep_imports

if TYPE_CHECKING:
    import pyarrow as pa

BATCH = "streaming.sql.batchId"
QUERY = "sql.streaming.queryId"


@in_sentences
class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: Any, schema: StructType, overwrite: bool) -> None:
        self._options = sink_options(options)
        check_options(self._options)
        check_columns(schema, self._options.topic)
        if overwrite:
            raise BadOption("complete mode would have to take rows back, and a log keeps them: use append mode")
        if self._options.async_progress_tracking:
            raise BadOption(
                "asyncProgressTrackingEnabled cannot be used: a batch that is not written down would run twice"
            )
        keep_imports()  # Spark asks for a writer once a batch, in a worker that does nothing else

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> TaskMessage:
        from oncelog.spark.sink.lane_writer import write_lane

        try:
            return attempt(lambda: write_lane(self._options, place_of_task(), iterator), iterator)
        finally:
            keep_imports()

    def commit(self, messages: list[Any], batchId: int) -> None:
        from oncelog.spark.sink.driver import commit_batch
        from oncelog.spark.sink.transactional_driver import commit_transaction

        commit = commit_transaction if self._options.transactional_batches else commit_batch
        try:
            commit(self._options, lanes_of(messages), batchId)
        finally:
            keep_imports()

    def abort(self, messages: list[Any], batchId: int) -> None:
        """Nothing is taken back: what was written stands in its slots, and the next run of the batch finds it. But a
        transaction is over, so that readers need not wait for its time to end."""
        from oncelog.spark.sink.transactional_driver import abort_transaction

        if self._options.transactional_batches:
            abort_transaction(self._options, [each.lane for each in messages if each is not None])


def place_of_task() -> LaneTask:
    context = TaskContext.get()
    batch = None if context is None else context.getLocalProperty(BATCH)
    query = None if context is None else context.getLocalProperty(QUERY)
    if context is None or batch is None or query is None:
        raise BadOption(
            "no task of a streaming query runs here: the format `oncelog` writes in Spark's micro-batches only"
        )
    return LaneTask(query, int(batch), context.partitionId(), context.attemptNumber())
