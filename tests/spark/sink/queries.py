"""Queries and what they read, for the tests that need a Spark."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.peers.server_process import ServerProcess

END_S = 240  # beside forty other processes


class Query:
    """A query over text files, one of them a batch, so that what a batch holds is known."""

    def __init__(self, spark: Any, server: ServerProcess, folder: Path, **options: Any) -> None:
        self.spark = spark
        self.input = folder / "input"
        self.input.mkdir(parents=True)
        self.checkpoint = folder / "checkpoint"
        self.options = {
            "kafka.bootstrap.servers": server.bootstrap_servers,
            "checkpointLocation": str(self.checkpoint),
            **{name.replace("_", "."): str(value) for name, value in options.items()},
        }
        self.frame: Callable[[Any], Any] = lambda frame: frame.selectExpr(
            "value AS key", "CAST(value AS BINARY) AS value"
        )
        self.trigger: dict[str, Any] = {"availableNow": True}
        self.mode = "append"
        self._files = 0

    def add(self, *lines: Any) -> None:
        """One more batch."""
        path = self.input / f"{self._files:04}.txt"
        path.write_text("".join(f"{line}\n" for line in lines))
        self._files += 1

    def start(self) -> Any:
        source = self.spark.readStream.schema("value STRING").option("maxFilesPerTrigger", 1)
        frame = self.frame(source.text(str(self.input)))
        writer = frame.writeStream.format("oncelog").outputMode(self.mode).options(**self.options)
        return writer.trigger(**self.trigger).start()

    def run(self) -> Any:
        """Up to its end; what it wrote is in the log then."""
        query = self.start()
        try:
            assert query.awaitTermination(END_S), query.status
        finally:
            query.stop()
        return query

    def forget_commit(self, batch: int) -> None:
        """As if Spark had been killed before it wrote down that the batch was done."""
        for name in (f"{batch}", f".{batch}.crc"):
            (self.checkpoint / "commits" / name).unlink(missing_ok=True)

    def forget(self) -> None:
        shutil.rmtree(self.checkpoint)
