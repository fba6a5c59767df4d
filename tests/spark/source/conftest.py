"""Topics that all tests of the source read, and the two sources that must say the same of them."""

from collections.abc import Mapping
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.query import StreamingQuery

from tests.peers.server_process import ServerProcess
from tests.raw import CODECS, RawConnection
from tests.spark.source.filling import Servers, new_topic, options, produce

OURS, SPARKS = "oncelog", "kafka"
WAIT_S = 60

Row = tuple[Any, ...]
Batches = dict[int, list[Row]]


@pytest.fixture(scope="session")
def plain(server: ServerProcess) -> str:
    """A topic of three partitions of which the second is empty; batches in every codec, some rows without a key, a
    value or headers."""
    with RawConnection(server.port) as raw:
        topic = new_topic(raw, "plain", 3)
        for at, codec in enumerate(CODECS):
            for partition, count in ((0, 40), (2, 7)):
                produce(raw, topic, partition, count, first=at * count, codec=codec)
    return topic


class Reads:
    """Batch queries on one server."""

    def __init__(self, spark: Any, server: ServerProcess) -> None:
        self._spark = spark
        self._server = server

    def frame(self, source: str, **more: Any) -> Any:
        return self._spark.read.format(source).options(**options(self._server, **more)).load()

    def rows(self, source: str, **more: Any) -> list[Row]:
        found = self.frame(source, **more).collect()
        return sorted((tuple(row) for row in found), key=lambda row: row[2:5])

    def all_rows(self, source: str, cases: Mapping[str, Mapping[str, Any]]) -> dict[str, list[Row]]:
        """The rows of many queries, by name, with headers, in one job."""
        frames = [
            self.frame(source, **more, includeHeaders="true").selectExpr("*", f"'{name}' AS case")
            for name, more in cases.items()
        ]
        answers: dict[str, list[Row]] = {name: [] for name in cases}
        for row in reduce(lambda one, other: one.union(other), frames).collect():
            answers[row["case"]].append(tuple(row)[:-1])
        return {name: sorted(rows, key=lambda row: row[2:5]) for name, rows in answers.items()}

    def same(self, **more: Any) -> list[Row]:
        """The rows that both sources give for these options."""
        ours, sparks = self.rows(OURS, **more), self.rows(SPARKS, **more)
        assert ours == sparks
        return ours


@pytest.fixture
def reads(spark: Any, server: ServerProcess) -> Reads:
    return Reads(spark, server)


class Streams:
    """Streaming queries on one server; what each batch had is kept, and a batch that is run again must be the same."""

    def __init__(self, spark: Any, server: Servers, folder: Path) -> None:
        self._spark = spark
        self._server = server
        self._folder = folder
        self.batches: dict[str, Batches] = {}

    def checkpoint(self, name: str) -> Path:
        return self._folder / name

    def start(
        self,
        source: str,
        name: str,
        trigger: dict[str, Any] | None = None,
        columns: tuple[str, ...] = ("*",),
        **more: Any,
    ) -> StreamingQuery:
        """`name` is the query's checkpoint, with which it goes on when it is started again."""
        frame = self._spark.readStream.format(source).options(**options(self._server, **more)).load()
        seen = self.batches.setdefault(name, {})

        def take(batch: Any, number: int) -> None:
            rows = sorted((tuple(row) for row in batch.selectExpr(*columns).collect()), key=str)
            assert seen.setdefault(number, rows) == rows, f"batch {number} came again with other rows"

        writer = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(self.checkpoint(name)))
        started: StreamingQuery = (writer.trigger(**trigger) if trigger else writer).start()
        return started

    def run(
        self, source: str, name: str, trigger: dict[str, Any], columns: tuple[str, ...] = ("*",), **more: Any
    ) -> None:
        """A query that ends by itself."""
        query = self.start(source, name, trigger, columns, **more)
        assert query.awaitTermination(WAIT_S), f"{name} did not end"

    def rows(self, name: str) -> list[Row]:
        return sorted((row for rows in self.batches[name].values() for row in rows), key=str)


@pytest.fixture
def streams(spark: Any, server: ServerProcess, tmp_path: Path) -> Streams:
    return Streams(spark, server, tmp_path)
