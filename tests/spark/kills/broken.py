"""Sinks that are wrong on purpose, to see that the harness would notice. They exist in these tests only."""

import pickle
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql.types import StructType

from oncelog.spark.datasource import OncelogDataSource
from oncelog.spark.sink.direct import StreamWriter, place_of_task
from oncelog.spark.sink.written import TaskMessage

NOTES = "notes"  # the option that names the folder in which tasks write down that they are done


class CompletedByTask(OncelogDataSource):
    """A task that came to the end of its input says so itself; whoever finds that does not run its rows again."""

    @classmethod
    def name(cls) -> str:
        return "completed-by-task"

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        options = {name: value for name, value in self.options.items() if name != NOTES}
        writer = WriterCompletedByTask(options, schema, overwrite)
        writer.notes = self.options[NOTES]
        return writer


class WriterCompletedByTask(StreamWriter):
    notes = ""

    def write(self, iterator: Iterator[Any]) -> TaskMessage:
        place = place_of_task()
        note = Path(self.notes) / f"done-{place.batch}-{place.lane}"
        if note.exists():
            for _ in iterator:
                pass
            done: TaskMessage = pickle.loads(note.read_bytes())
            return done
        written = super().write(iterator)
        note.write_bytes(pickle.dumps(written))
        return written


class WithoutState(OncelogDataSource):
    """Nobody finds what an earlier attempt has written down: each begins under a sink's name of its own."""

    @classmethod
    def name(cls) -> str:
        return "without-state"

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        return WriterWithoutState(self.options, schema, overwrite)


class WriterWithoutState(StreamWriter):
    def write(self, iterator: Iterator[Any]) -> TaskMessage:
        self._options = replace(self._options, sink_name=uuid.uuid4().hex, first_batch=place_of_task().batch)
        return super().write(iterator)

    def commit(self, messages: list[Any], batchId: int) -> None:
        assert None not in messages


BROKEN = (CompletedByTask, WithoutState)
