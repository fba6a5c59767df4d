"""`df.write.format("oncelog")`: with `job.id` once, however often it is run; without it at least once, and it says
so."""

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter
from pyspark.sql.types import StructType

from oncelog.spark.option import BadOption
from oncelog.spark.options import sink_options
from oncelog.spark.sentences import in_sentences
from oncelog.spark.sink.columns import check_columns
from oncelog.spark.sink.lane import LaneTask
from oncelog.spark.sink.option_checking import check_options
from oncelog.spark.sink.written import TaskMessage, attempt, lanes_of

if TYPE_CHECKING:
    import pyarrow as pa

_log: Final = logging.getLogger("oncelog.spark")

BATCH: Final = 0  # a job is one batch
AT_LEAST_ONCE: Final = (
    "df.write.format('oncelog') without `job.id` writes at least once: a task or a job that is run again writes its "
    "rows again. With .option('job.id', NAME) they are written once, however often the job of that name is run."
)


@in_sentences
class BatchWriter(DataSourceArrowWriter):
    def __init__(self, options: Any, schema: StructType, overwrite: bool) -> None:
        self._options = sink_options(options, is_streaming=False)
        check_options(self._options)
        check_columns(schema, self._options.topic)
        if overwrite:
            raise BadOption(
                "Save mode Overwrite is not allowed for oncelog. Allowed save mode is Append: a log keeps what it has"
            )
        if self._options.job_id is None:
            _log.warning(AT_LEAST_ONCE)

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> TaskMessage:
        from oncelog.spark.sink.lane_writer import write_lane
        from oncelog.spark.sink.plain_writer import write_plain

        if self._options.job_id is None:
            return attempt(lambda: write_plain(self._options, iterator), iterator)
        context = TaskContext.get()
        assert context is not None, "Spark writes in tasks"
        place = LaneTask(query_of(self._options.job_id), BATCH, context.partitionId(), context.attemptNumber())
        return attempt(lambda: write_lane(self._options, place, iterator), iterator)

    def commit(self, messages: list[Any]) -> None:
        from oncelog.spark.sink.driver import commit_batch

        lanes = lanes_of(messages)
        if self._options.job_id is not None:
            commit_batch(self._options, lanes, BATCH)

    def abort(self, messages: list[Any]) -> None:
        """Nothing is taken back: what was written stands in its slots, and the next run of the job finds it."""


def query_of(job_id: str) -> str:
    return f"job {job_id}"
