"""The stream reader: `spark.readStream.format("oncelog")`. Spark keeps one in a process of its own while a query
runs.

Which records a batch has is decided here once, when it is planned, and written into its end offset (`positions.py`).
"""

import logging
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, ReadMinRows
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow as AvailableNow
from pyspark.sql.types import StructType

from oncelog.client.consumer.ranges import DataLost
from oncelog.clock import monotonic_s
from oncelog.spark.options import source_options
from oncelog.spark.source import positions, reading
from oncelog.spark.source.bounds import Partition
from oncelog.spark.source.columns import check_schema
from oncelog.spark.source.planning import EARLIEST, LATEST, Planner
from oncelog.spark.source.positions import Offsets, Positions, Split

_log: Final = logging.getLogger("oncelog.spark")


class StreamReader(DataSourceStreamReader, AvailableNow):
    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        check_schema(schema)
        self._options = source_options(dict(options), is_streaming=True)
        self._schema = schema
        self._split = Split(self._options.min_partitions, self._options.max_records_per_partition)
        self._planner: Planner | None = None
        self._initial: Positions | None = None
        self._target: Offsets | None = None  # where `availableNow` ends
        self._latest: Offsets = {}
        self._last_batch_s = float("-inf")

    # --- what Spark asks in the driver's process

    def initialOffset(self) -> dict[str, Any]:
        if self._initial is None:
            planner = self._ask()
            at = planner.bound(self._options.start, planner.partitions(), is_start=True)
            self._initial = Positions(at, is_initial=True)
        return self._initial.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        options = self._options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.min_offsets_per_trigger is not None:
            return ReadMinRows(options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        planner = self._ask()
        self._target = planner.offsets(dict.fromkeys(planner.partitions(), LATEST))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        before = positions.from_json(start)
        until = self._until()
        self._latest = until
        starts = self._starts(before, until)
        begin = before.at | starts
        until = {partition: max(last, begin[partition]) for partition, last in until.items()}
        if self._target is not None:
            until |= {each: offset for each, offset in begin.items() if each in until and offset > until[each]}
        if not isinstance(limit, ReadAllAvailable):
            until = self._limited(begin, until)
        if not before.is_initial and not starts and until == before.at:
            return start  # the same to the letter, or Spark would run a batch for it
        self._last_batch_s = monotonic_s()
        return Positions(until, before.at | starts if before.is_initial else starts, self._split).to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return Positions(self._latest).to_json() if self._latest else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Of the two offsets alone: a batch that is run again is the same batch, whatever has changed since."""
        planned = positions.ranges(positions.from_json(start), positions.from_json(end))
        return [reading.RangePartition(each) for each in planned]

    def stop(self) -> None:
        if self._planner is not None:
            self._planner.close()
            self._planner = None

    # --- in the task

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return reading.read(self._options, self._schema, partition)

    def __getstate__(self) -> dict[str, Any]:
        """Spark sends the reader to tasks, which need neither connections nor what was asked."""
        return self.__dict__ | {"_planner": None, "_initial": None, "_target": None, "_latest": {}}

    # --- how far a batch goes

    def _ask(self) -> Planner:
        if self._planner is None:
            self._planner = Planner(self._options)
        return self._planner

    def _until(self) -> Offsets:
        if self._target is not None:
            return dict(self._target)
        planner = self._ask()
        return planner.offsets(dict.fromkeys(planner.partitions(), LATEST))

    def _starts(self, before: Positions, until: Offsets) -> Offsets:
        """Where partitions begin that were not there before, or whose log is another one now."""
        if gone := before.at.keys() - until.keys():
            self._lost(f"{_named(gone)} are gone")
        shrunk = {each for each, last in until.items() if last < before.at.get(each, 0)}
        for topic, index in sorted(shrunk):
            was = before.at[topic, index]
            self._lost(f"Partition {topic}-{index}'s offset was changed from {was} to {until[topic, index]}")
        new = until.keys() - before.at.keys()
        starts = self._ask().offsets(dict.fromkeys(new | shrunk, EARLIEST))
        for each in sorted(new):
            if starts[each] > 0:
                self._lost(f"Added partition {each[0]}-{each[1]} starts from {starts[each]} instead of 0")
        return starts

    def _limited(self, begin: Offsets, until: Offsets) -> Offsets:
        options = self._options
        least, most = options.min_offsets_per_trigger, options.max_offsets_per_trigger
        if least is not None and self._target is None and self._is_too_early():
            waiting = sum(last - begin[each] for each, last in until.items())
            if waiting < least:
                return {each: begin[each] for each in until}
        return until if most is None else positions.limited(begin, until, most)

    def _is_too_early(self) -> bool:
        return monotonic_s() < self._last_batch_s + self._options.max_trigger_delay_ms / 1000

    def _lost(self, words: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLost(f"{words}. Some data may have been missed")
        reading.warn_of_loss(words)


def _named(partitions: set[Partition]) -> str:
    return ", ".join(f"{topic}-{index}" for topic, index in sorted(partitions))
