"""Queries with a sealed sink, and drivers that crash at a named step: for the tests that need a Spark."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import oncelog.spark
from oncelog.spark.sealed.surroundings import JOB_GROUP
from oncelog.spark.sink.direct import QUERY
from tests.peers.server_process import ServerProcess
from tests.spark import milestones as here
from tests.spark.sink.queries import END_S, Query


class SealedQuery(Query):
    """One text file a batch, through `frame`, into a sealed sink. Each start makes its sink anew, as a driver does."""

    def __init__(self, spark: Any, server: ServerProcess, folder: Path, **options: Any) -> None:
        super().__init__(spark, server, folder, **options)
        self.path = str(folder / "sealed")

    def add(self, *lines: Any) -> None:
        """Files are read in the order of their times, which otherwise would be the same."""
        super().add(*lines)
        path = max(self.input.iterdir())
        os.utime(path, (self._files, self._files))

    def start(self) -> Any:
        source = self.spark.readStream.schema("value STRING").option("maxFilesPerTrigger", 1)
        frame = self.frame(source.text(str(self.input)))
        options = {name: value for name, value in self.options.items() if name != "checkpointLocation"}
        writer = frame.writeStream.outputMode(self.mode).foreachBatch(oncelog.spark.sealed(path=self.path, **options))
        return writer.option("checkpointLocation", self.options["checkpointLocation"]).trigger(**self.trigger).start()

    def crash(self) -> str:
        """A run that a crash ends; what the query says of it."""
        query = self.start()
        try:
            assert query.awaitTermination(END_S), query.status
        except Exception as failed:
            return str(failed)
        finally:
            query.stop()
        raise AssertionError("the query came to its end")


class Crashed(RuntimeError):
    pass


class Crashes:
    """Ends the work of the driver at a step of a batch, once each: nothing behind it happens."""

    def __init__(self) -> None:
        self.wanted: list[tuple[str, int]] = []
        self.seen: list[tuple[str, int]] = []

    def reached(self, step: str, facts: dict[str, Any]) -> None:
        if "batch" not in facts:
            return
        here = (step, int(facts["batch"]))
        self.seen.append(here)
        if here in self.wanted:
            self.wanted.remove(here)
            raise Crashed(f"at {step!r} of batch {here[1]}")


@pytest.fixture
def crashes(monkeypatch: pytest.MonkeyPatch) -> Crashes:
    made = Crashes()
    monkeypatch.setattr(here, "reached", made.reached)
    return made


@contextmanager
def batch_of(spark: Any, query: str, run: str | None = None) -> Iterator[Callable[..., None]]:
    """Sinks called as foreachBatch calls them, with frames of the test's own."""

    def call(sink: Any, frame: Any, batch: int) -> None:
        # As in the thread of a query: Spark's writers find Python's formats by the session of their thread.
        spark._jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)
        spark.sparkContext.setLocalProperty(QUERY, query)
        spark.sparkContext.setLocalProperty(JOB_GROUP, run)
        sink(frame, batch)

    try:
        yield call
    finally:
        for name in (QUERY, JOB_GROUP):
            spark.sparkContext.setLocalProperty(name, None)
