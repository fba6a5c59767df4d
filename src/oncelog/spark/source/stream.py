"""The stream reader: `spark.readStream.format("oncelog")`. Spark keeps one in a process of its own while a query runs.

Which records a batch has is decided here once, when it is planned, and written into its end offset (`positions.py`).
"""

from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, ReadMinRows
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow as AvailableNow
from pyspark.sql.types import StructType

from oncelog.client.door import EARLIEST
from oncelog.clock import monotonic_s
from oncelog.slots import AnyPlace
from oncelog.spark.options import source_options
from oncelog.spark.sentences import in_sentences
from oncelog.spark.source import group, positions, range_task
from oncelog.spark.source.broker_offsets import Ends, Planner
from oncelog.spark.source.columns import check_schema
from oncelog.spark.source.errors import lost
from oncelog.spark.source.positions import Offsets, Positions, Split


@in_sentences
class StreamReader(DataSourceStreamReader, AvailableNow):
    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        check_schema(schema)
        self._options = source_options(dict(options), is_streaming=True)
        self._schema = schema
        self._split = Split(self._options.min_partitions, self._options.max_records_per_partition)
        self._asking: Planner | None = None
        self._initial: Positions | None = None
        self._target: Ends | None = None  # where `availableNow` ends
        self._latest: Offsets = {}
        self._last_batch_s = float("-inf")

    # --- what Spark asks, in the driver's process

    def initialOffset(self) -> dict[str, Any]:
        if self._initial is None:
            partitions = self._planner.partitions()
            ids = self._planner.topic_ids(partitions)
            at = self._planner.bound(self._options.start, partitions, is_start=True)
            self._initial = Positions(at, is_initial=True, topic_ids=ids)
        return self._initial.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """The limit, as far as Python has classes for it. `latestOffset` goes by the options, unless it is told to read
        all."""
        options = self._options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.min_offsets_per_trigger is not None:
            return ReadMinRows(options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._ends()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        before = positions.from_json(start)
        if not before.is_initial:
            self._planner.commit(before.at)
        ends = self._ends_after(before)
        until = self._latest = ends.at
        starts = self._starts(before, ends)
        begin = before.at | starts
        until = {partition: max(last, begin[partition]) for partition, last in until.items()}
        if not isinstance(limit, ReadAllAvailable):
            until = self._limited(begin, until)
        if not before.is_initial and not starts and until == before.at:
            return start  # the same to the letter, or Spark would run a batch for it
        self._last_batch_s = monotonic_s()
        starts = begin if before.is_initial else starts
        return Positions(until, starts, self._split, topic_ids=ends.topic_ids).to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        if not self._latest:
            return None
        report = Positions(self._latest).to_json()
        if self._options.group_id is not None:
            report[group.GROUP] = {group.ID: self._options.group_id, group.SERVERS: self._planner.servers}
        return report

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The partitions of a batch, by the two offsets alone: a batch that is run again is the same batch, whatever
        has changed since."""
        planned = positions.ranges(positions.from_json(start), positions.from_json(end))
        return [range_task.RangePartition(each) for each in planned]

    def stop(self) -> None:
        if self._asking is not None:
            self._asking.close()
            self._asking = None

    # --- in the task

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return range_task.read(self._options, self._schema, partition)

    def __getstate__(self) -> dict[str, Any]:
        """Spark sends the reader to tasks, which need neither connections nor what was asked."""
        return self.__dict__ | {"_asking": None, "_initial": None, "_target": None, "_latest": {}}

    # --- how far a batch goes

    @property
    def _planner(self) -> Planner:
        if self._asking is None:
            self._asking = Planner(self._options)
        return self._asking

    def _ends(self) -> Ends:
        return self._planner.ends(or_fewer=not self._options.fail_on_data_loss)

    def _ends_after(self, before: Positions) -> Ends:
        """The ends, asked for again where they look like a loss: a broker may lag behind the one that was asked before,
        and a partition that it does not know of would be read anew from its beginning once it does."""
        ends = self._ends() if self._target is None else self._target
        for _ in range(self._options.offset_retries):
            if not (before.at.keys() - ends.at.keys() or _shrunk(before, ends.at) or _remade(before, ends)):
                break
            self._planner.pause(self._options.offset_retry_ms / 1000)
            ends = self._ends()
            if self._target is not None:
                self._target = ends
        return ends

    def _starts(self, before: Positions, ends: Ends) -> Offsets:
        """The beginnings of partitions that were not there before, or whose log is another one now."""
        until = ends.at
        if gone := before.at.keys() - until.keys():
            self._lost(f"{_named(gone)} are gone")
        shrunk = _shrunk(before, until)
        for topic, index in sorted(shrunk):
            was = before.at[topic, index]
            self._lost(f"Partition {topic}-{index}'s offset was changed from {was} to {until[topic, index]}")
        remade = _remade(before, ends)
        for topic in sorted({topic for topic, _ in remade}):
            self._lost(f"Topic {topic} was deleted and made anew")
        new = until.keys() - before.at.keys()
        starts = self._planner.offsets(dict.fromkeys(new | shrunk | remade, EARLIEST))
        for topic, index in sorted(new):
            if starts[topic, index] > 0:
                self._lost(f"Added partition {topic}-{index} starts from {starts[topic, index]} instead of 0")
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
        lost(words, is_error=self._options.fail_on_data_loss)


def _shrunk(before: Positions, until: Offsets) -> set[AnyPlace]:
    return {each for each, last in until.items() if last < before.at.get(each, 0)}


def _remade(before: Positions, ends: Ends) -> set[AnyPlace]:
    """The partitions whose topic has another id now, and whose offsets would not show it."""
    other = {topic for topic, its_id in before.topic_ids.items() if ends.topic_ids.get(topic, its_id) != its_id}
    return {each for each in before.at.keys() & ends.at.keys() if each[0] in other} - _shrunk(before, ends.at)


def _named(partitions: set[AnyPlace]) -> str:
    return ", ".join(f"{topic}-{index}" for topic, index in sorted(partitions))
