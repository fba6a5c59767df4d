"""Sealed rows as Parquet files, written and read by Spark: for file systems that only the JVM reaches."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from oncelog.spark.sealed import tasks
from oncelog.spark.sealed.hadoop import HadoopStorage
from oncelog.spark.sealed.manifest import Manifest, SealedError, SealedFile

# One task reads one file, and all of it: no size that a file may have is too large for a task, and what opening one is
# said to cost leaves no room for a second.
_LARGE: Final = str(1 << 40)
_WHOLE: Final = {"spark.sql.files.maxPartitionBytes": _LARGE, "spark.sql.files.openCostInBytes": _LARGE}
_DIVIDES: Final = "spark.sql.files.maxPartitionNum"


class ParquetFiles:
    layout: Final = "parquet"

    def __init__(self, storage: HadoopStorage, jvm: Any, conf: Any) -> None:
        self._storage = storage
        self._jvm = jvm
        self._conf = conf

    def write(self, frame: Any, folder: str) -> tuple[SealedFile, ...]:
        from pyspark.sql.functions import spark_partition_id

        marked = frame.withColumn(tasks.LANE, spark_partition_id())
        marked.write.option("maxRecordsPerFile", 0).parquet(self._storage.where(folder))
        found = [name for name in self._storage.sizes(folder) if name.startswith("part-")]
        files = (self._file(folder, name) for name in sorted(found, key=tasks.partition_of))
        return tuple(file for file in files if file.rows)

    def _file(self, folder: str, name: str) -> SealedFile:
        hadoop = self._jvm.org.apache.parquet.hadoop
        path = self._storage.path(f"{folder}/{name}")
        reader = hadoop.ParquetFileReader.open(hadoop.util.HadoopInputFile.fromPath(path, self._conf))
        try:
            rows = int(reader.getRecordCount())
        finally:
            reader.close()
        return SealedFile(name=name, rows=rows, size_bytes=self._storage.sizes(folder)[name])

    def advance(self, frame: Any) -> None:
        frame.write.format("noop").mode("overwrite").save()

    def check(self, manifest: Manifest) -> None:
        found = self._storage.sizes(manifest.folder)
        for file in manifest.files:
            if found.get(file.name) != file.size_bytes:
                raise SealedError(
                    f"{self._storage.where(manifest.folder)}/{file.name} has {found.get(file.name, 'no')} bytes, and "
                    f"the manifest of batch {manifest.batch} says {file.size_bytes}: nothing of the batch is sent "
                    "until the file is brought back"
                )

    def few(self, manifest: Manifest) -> tuple[()] | None:
        return None if manifest.files else ()

    @contextmanager
    def to_send(self, frame: Any, manifest: Manifest) -> Iterator[Any]:
        session = frame.sparkSession
        place = self._storage.where(manifest.folder)
        with _conf_of(session):
            rows = session.read.parquet(*(f"{place}/{file.name}" for file in manifest.files))
            tasks_count = rows._jdf.queryExecution().toRdd().getNumPartitions()
            if tasks_count != len(manifest.files):
                raise SealedError(
                    f"Spark reads the {len(manifest.files)} files of batch {manifest.batch} in {tasks_count} tasks, "
                    "and each file is to be one: nothing was sent"
                )
            yield rows

    def options(self, manifest: Manifest) -> dict[str, str]:
        return {}


@contextmanager
def _conf_of(session: Any) -> Iterator[None]:
    """The conf of the session that this query has to itself, and its thread, which waits here."""
    before = {name: session.conf.get(name, None) for name in (*_WHOLE, _DIVIDES)}
    for name, value in _WHOLE.items():
        session.conf.set(name, value)
    session.conf.unset(_DIVIDES)
    try:
        yield
    finally:
        for name, value in before.items():
            session.conf.unset(name) if value is None else session.conf.set(name, value)
