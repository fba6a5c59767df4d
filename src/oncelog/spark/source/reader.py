"""The batch reader: `spark.read.format("oncelog")`."""

from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from oncelog.client.door import EARLIEST, LATEST, Range
from oncelog.spark.option import BadOption
from oncelog.spark.options import source_options
from oncelog.spark.sentences import in_sentences
from oncelog.spark.source import range_task
from oncelog.spark.source.broker_offsets import Planner
from oncelog.spark.source.columns import check_schema
from oncelog.spark.source.errors import lost
from oncelog.spark.source.positions import Split, split


@in_sentences
class Reader(DataSourceReader):
    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        check_schema(schema)
        self._options = source_options(dict(options))
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        options = self._options
        with Planner(options) as planner:
            there = planner.partitions()
            # Before any offset: another topic of its name may answer from now on, and tasks are not to read that one.
            ids = planner.topic_ids(there)
            # In this order, so that what is written or deleted meanwhile is taken for no loss.
            first = planner.offsets(dict.fromkeys(there, EARLIEST))
            starts = planner.bound(options.start, there, is_start=True)
            ends = planner.bound(options.end, there, is_start=False)
            last = planner.offsets(dict.fromkeys(there, LATEST))
        whole = []
        for topic, index in sorted(there):
            begin, end = starts[topic, index], ends[topic, index]
            low, high = first[topic, index], last[topic, index]
            if begin > end:
                raise BadOption(
                    f"the starting offset {begin} of {topic}-{index} is greater than the ending offset {end}"
                )
            if end > begin and (begin < low or end > high):
                self._lost(
                    f"{topic}-{index}: offsets {begin} to {end} are wanted, and the log goes from {low} to {high}"
                )
            whole.append(Range(topic, index, max(begin, low), min(end, high), topic_id=ids.get(topic, "")))
        by = Split(options.min_partitions, options.max_records_per_partition)
        return [range_task.RangePartition(each) for each in split(whole, by)]

    def _lost(self, words: str) -> None:
        lost(words, is_error=self._options.fail_on_data_loss)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return range_task.read(self._options, self._schema, partition)
