"""What a contestant can be told to do; every job answers its own seconds."""

import time
from collections.abc import Callable
from typing import Any

from bench.spark_empty import EmptyDataSource

Job = dict[str, Any]
Options = dict[str, str]


def prepare(spark: Any, *, is_ours: bool) -> None:
    spark.dataSource.register(EmptyDataSource)
    if is_ours:
        from bench.spark_unsaved import UnsavedDataSource

        spark.dataSource.register(UnsavedDataSource)


def read(spark: Any, format: str, options: Options, columns: list[str], schema: str | None = None) -> Job:
    """A batch read into `noop`. `columns`: what is selected, all by default; `schema`: what is decoded at all."""
    reader = spark.read.format(format).options(**options)
    if schema:
        reader = reader.schema(schema)
    started = time.perf_counter()
    frame = reader.load()
    if columns:
        frame = frame.select(*columns)
    frame.write.format("noop").mode("overwrite").save()
    return {"seconds": time.perf_counter() - started}


def query(
    spark: Any,
    format: str,
    options: Options,
    columns: list[str],
    sink_format: str,
    sink_options: Options,
    checkpoint: str,
    schema: str | None = None,
) -> Job:
    """A streaming query over all there is (availableNow), from the call of `start` until it has ended."""
    reader = spark.readStream.format(format).options(**options)
    if schema:
        reader = reader.schema(schema)
    started = time.perf_counter()
    frame = reader.load()
    if columns:
        frame = frame.select(*columns)
    writer = frame.writeStream.format(sink_format).options(**sink_options)
    running = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    running.awaitTermination()
    return {"seconds": time.perf_counter() - started, **_batches(running)}


def sealed(
    spark: Any, format: str, options: Options, columns: list[str], sink_options: Options, path: str, checkpoint: str
) -> Job:
    from oncelog.spark import sealed as sealing

    started = time.perf_counter()
    frame = spark.readStream.format(format).options(**options).load().select(*columns)
    writer = frame.writeStream.foreachBatch(sealing(path=path, **sink_options))
    running = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    running.awaitTermination()
    return {"seconds": time.perf_counter() - started, **_batches(running)}


def _batches(running: Any) -> Job:
    told = [progress for progress in running.recentProgress if progress.numInputRows]
    return {
        "rows": sum(progress.numInputRows for progress in told),
        "batches": [dict(progress.durationMs) for progress in told],
    }


def copy(spark: Any, servers: str, source: str, destination: str) -> Job:
    """What `oncelog copy` does, in a session that runs already."""
    from oncelog.spark.copying.cluster import Cluster
    from oncelog.spark.copying.copy_planning import Plan, Spec
    from oncelog.spark.copying.copy_running import Copying

    brokers = {"bootstrap.servers": servers}
    both = Cluster(brokers, brokers)
    started = time.perf_counter()
    with Plan(Spec(both, both, source, destination, name=destination)) as plan:
        copied = Copying(lambda: spark, plan).once()
    return {"seconds": time.perf_counter() - started, "rows": copied.records}


JOBS: dict[str, Callable[..., Job]] = {"read": read, "query": query, "sealed": sealed, "copy": copy}
