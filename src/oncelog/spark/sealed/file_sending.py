"""Sealed files on their way to the log: lane i sends file i, and then all lanes are saved, by the rules of the direct
sink."""

from collections.abc import Mapping
from typing import Any

from oncelog.spark.options import sink_options
from oncelog.spark.sealed import tasks
from oncelog.spark.sealed.arrow_files import ArrowFiles
from oncelog.spark.sealed.manifest import Manifest, Owner
from oncelog.spark.sealed.parquet_files import ParquetFiles
from oncelog.spark.sealed.tasks import send_lane
from oncelog.spark.sink.deciding import Doing, decide
from oncelog.spark.sink.driver import commit_batch
from oncelog.spark.sink.option_checking import lane_properties
from oncelog.spark.sink.sink_register import SinkRegister
from oncelog.spark.sink.warm_worker import cluster


class SparkLanes:
    def __init__(self, options: Mapping[str, str], owner: Owner, files: ArrowFiles | ParquetFiles) -> None:
        self._given = dict(options)
        self._options = sink_options(options)
        self._owner = owner
        self._files = files

    def is_saved(self, batch: int) -> bool:
        connected = cluster(lane_properties(self._options))
        log = connected.log(self._owner.sink)
        is_first = batch == (self._options.first_batch or 0)
        is_there = connected.run(log.exists(is_expected=not is_first))
        register = connected.run(log.read()) if is_there else SinkRegister()
        doing = decide(register, self._owner.sink, self._owner.query, batch, self._options.first_batch)
        return doing is Doing.VERIFY

    def send(self, frame: Any, manifest: Manifest) -> None:
        few = self._files.few(manifest)
        if few is not None:
            # A job of Spark's takes longer than such rows do. One lane, be it without rows: each batch is saved.
            commit_batch(self._options, [send_lane(self._options, manifest, 0, few)], manifest.batch)
            return
        with self._files.to_send(frame, manifest) as rows:
            writer = rows.write.format("oncelog").mode("append").options(**self._given)
            told = {tasks.MANIFEST: manifest.to_bytes().decode(), **self._files.options(manifest)}
            writer.options(**told).save()
