"""The work of tasks for a sealed batch: `FileWriter` writes a partition of the frame to a file, `FileSender`
and `RowSender` send a file as a lane. Thin; Spark pickles them, so they hold options and numbers.

The options that name the batch are the driver's own, and no user's: `writer_of` is asked before options are read.
"""

import json
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from oncelog.spark.options import SinkOptions, sink_options
from oncelog.spark.sealed import milestones
from oncelog.spark.sealed.manifest import Manifest, SealedError, SealedFile
from oncelog.spark.sentences import in_sentences
from oncelog.spark.sink.lane import LaneMessage, LaneTask
from oncelog.spark.sink.milestones import reached
from oncelog.spark.sink.written import TaskMessage, attempt, lanes_of

FOLDER: Final = "oncelog.sealed.folder"  # where files are to be written
MANIFEST: Final = "oncelog.sealed.manifest"  # what is to be sent, in full
PLACE: Final = "oncelog.sealed.place"  # where the manifest's files are, for tasks that read them themselves
LANE: Final = "oncelog_sealed_partition"  # the column that tells which file a row is from
LISTING: Final = "files.json"
_OURS: Final = (FOLDER, MANIFEST, PLACE)


def writer_of(options: Mapping[str, str]) -> DataSourceArrowWriter | None:
    """The writer of a sealed batch, where these are the options of one."""
    if FOLDER in options:
        return FileWriter(options[FOLDER])
    if MANIFEST in options:
        return FileSender(options) if PLACE in options else RowSender(options)
    return None


@dataclass(frozen=True)
class FileMessage(WriterCommitMessage):
    partition: int
    file: SealedFile | None  # None: a partition without rows


@in_sentences
class FileWriter(DataSourceArrowWriter):
    def __init__(self, folder: str) -> None:
        self._folder = folder

    def write(self, iterator: Iterator[pa.RecordBatch]) -> FileMessage:
        """Each attempt writes a file of its own. Which of them count is what Spark's commit says, so one whose input
        ended early, because its JVM is gone, counts for nobody."""
        partition = TaskContext.get().partitionId()
        os.makedirs(self._folder, exist_ok=True)
        return FileMessage(partition, write_file(self._folder, partition, iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """The only way from here to the driver is the folder: this is a process of its own."""
        if any(message is None for message in messages):
            raise SealedError(f"{messages.count(None)} of {len(messages)} tasks did not say which file they wrote")
        told = sorted((message for message in messages if isinstance(message, FileMessage)), key=lambda m: m.partition)
        listing = json.dumps([asdict(message.file) for message in told if message.file is not None])
        os.makedirs(self._folder, exist_ok=True)
        with open(os.path.join(self._folder, LISTING), "x", encoding="ascii") as file:
            file.write(listing)


def write_file(folder: str, partition: int, batches: Iterator[pa.RecordBatch]) -> SealedFile | None:
    name = f"{partition:05d}-{uuid.uuid4().hex}.arrow"
    path = os.path.join(folder, name)
    rows = 0
    writer = None
    try:
        for batch in batches:
            if batch.num_rows == 0:
                continue
            if writer is None:
                writer = pa.ipc.new_file(path, batch.schema)
            writer.write_batch(batch)
            rows += batch.num_rows
            reached(milestones.WRITING, folder=folder, partition=partition, rows=rows)
    finally:
        if writer is not None:
            writer.close()
    return SealedFile(name=name, rows=rows, size_bytes=os.path.getsize(path)) if rows else None


def read_file(path: str, rows: int) -> Iterator[pa.RecordBatch]:
    """Its batches, as they were written, where they lie in memory."""
    with pa.memory_map(path) as source:
        try:
            with pa.ipc.open_file(source) as reader:
                batches = [reader.get_batch(number) for number in range(reader.num_record_batches)]
        except (pa.ArrowInvalid, OSError) as error:
            raise SealedError(
                f"{path} is damaged: {error}. Nothing of it was sent; bring the file back as it was written"
            ) from error
        found = sum(batch.num_rows for batch in batches)
        if found != rows:
            raise SealedError(f"{path} holds {found} rows, and its manifest says {rows}: nothing of it was sent")
        yield from batches


def send_lane(
    options: SinkOptions, manifest: Manifest, lane: int, batches: Iterable[pa.RecordBatch], attempt: int = 0
) -> LaneMessage:
    from oncelog.spark.sink.lane_writer import write_lane

    message = write_lane(options, LaneTask(manifest.query, manifest.batch, lane, attempt), batches)
    rows = manifest.files[lane].rows if manifest.files else 0
    if message.rows != rows:
        # A worker whose JVM is gone may see its input end early, as if that were all.
        raise SealedError(f"lane {lane} of batch {manifest.batch} sent {message.rows} rows of a file that has {rows}")
    return message


@in_sentences
class _Sender(DataSourceArrowWriter):
    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = sink_options({name: value for name, value in options.items() if name.lower() not in _OURS})
        self._manifest = Manifest.from_bytes(options[MANIFEST].encode(), f"option {MANIFEST}")
        self._place = options.get(PLACE, "")

    def commit(self, messages: list[Any]) -> None:
        from oncelog.spark.sink.driver import commit_batch

        commit_batch(self._options, lanes_of(messages), self._manifest.batch)

    def abort(self, messages: list[Any]) -> None:
        """Nothing is taken back: what was sent stands in its slots, and the next run of the batch finds it."""

    def _send(self, lane: int, batches: Iterator[pa.RecordBatch]) -> TaskMessage:
        number = TaskContext.get().attemptNumber()
        return attempt(lambda: send_lane(self._options, self._manifest, lane, batches, number), batches)


@in_sentences
class FileSender(_Sender):
    """Its input is one row, the number of the file, which it reads itself: no row goes through the JVM again."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        numbers = [number for batch in iterator for number in batch.column(0).to_pylist()]
        if len(numbers) != 1:
            raise SealedError(f"a task of batch {self._manifest.batch} was given {numbers}: one file each is expected")
        (lane,) = numbers
        file = self._manifest.files[lane]
        return self._send(lane, read_file(os.path.join(self._place, file.name), file.rows))


@in_sentences
class RowSender(_Sender):
    """Its input is the rows of one file, read by Spark; a column of theirs tells which."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        first = next(iterator, None)
        if first is None:
            raise SealedError(
                f"a task of batch {self._manifest.batch} was given no rows: the rows of a file are expected"
            )
        partition = first.column(LANE)[0].as_py()
        lane = self._lane_of(partition)
        return self._send(lane, (self._of_one(batch, partition) for batch in chain([first], iterator)))

    def _lane_of(self, partition: int) -> int:
        for lane, file in enumerate(self._manifest.files):
            if partition_of(file.name) == partition:
                return lane
        raise SealedError(f"there are rows of partition {partition}, of which the manifest has no file")

    def _of_one(self, batch: pa.RecordBatch, partition: int) -> pa.RecordBatch:
        column = batch.column(LANE)
        if len(column.unique()) != 1 or column[0].as_py() != partition:
            raise SealedError("a task was given the rows of several files: Spark divided them in another way")
        return batch.drop_columns([LANE])


def partition_of(name: str) -> int:
    """The partition of a file that Spark wrote: part-00007-..."""
    return int(name.split("-")[1])
