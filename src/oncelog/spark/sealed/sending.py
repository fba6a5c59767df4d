"""Sealed files on their way to the log: lane i sends file i, and then all lanes are saved, by the rules of the direct
sink."""

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

import pyarrow as pa

from oncelog.spark.options import sink_options
from oncelog.spark.sealed import tasks
from oncelog.spark.sealed.manifest import Manifest, Owner
from oncelog.spark.sealed.tasks import send_lane
from oncelog.spark.sink.checking import lane_properties
from oncelog.spark.sink.deciding import Doing, decide
from oncelog.spark.sink.driver import commit_batch
from oncelog.spark.sink.standing import Standing
from oncelog.spark.sink.warm import cluster


class Frames(Protocol):
    """How sealed files come to the tasks that send them."""

    def few(self, manifest: Manifest) -> Iterable[pa.RecordBatch] | None:
        """The rows of a batch that is one small file, or none at all; None for a batch that needs tasks."""
        ...

    def to_send(self, frame: Any, manifest: Manifest) -> AbstractContextManager[Any]:
        """A frame with one task for each file, planned within the context."""
        ...

    def options(self, manifest: Manifest) -> dict[str, str]:
        """What these tasks are told besides."""
        ...


class SparkLanes:
    def __init__(self, options: Mapping[str, str], owner: Owner, frames: Frames) -> None:
        self._given = dict(options)
        self._options = sink_options(options)
        self._owner = owner
        self._frames = frames

    def is_saved(self, batch: int) -> bool:
        connected = cluster(lane_properties(self._options))
        log = connected.log(self._owner.sink)
        standing = connected.run(log.read()) if connected.run(log.exists()) else Standing()
        doing = decide(standing, self._owner.sink, self._owner.query, batch, self._options.first_batch)
        return doing is Doing.VERIFY

    def send(self, frame: Any, manifest: Manifest) -> None:
        few = self._frames.few(manifest)
        if few is not None:
            # A job of Spark's takes longer than such rows do. One lane, be it without rows: each batch is saved.
            commit_batch(self._options, [send_lane(self._options, manifest, 0, few)], manifest.batch)
            return
        with self._frames.to_send(frame, manifest) as rows:
            writer = rows.write.format("oncelog").mode("append").options(**self._given)
            for name, value in self._named(manifest).items():
                writer = writer.option(name, value)
            writer.save()

    def _named(self, manifest: Manifest) -> dict[str, str]:
        return {
            tasks.MANIFEST: manifest.to_bytes().decode(),
            **self._frames.options(manifest),
        }
