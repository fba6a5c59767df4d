"""A job as a user would write it, in a process of its own:  job.py HOW SERVERS TOPIC FOLDER

HOW is `session`, or `plain` for what PySpark gives without us, or the address of a Connect server. Rows are written to
a topic, streamed to another one under a group, and read there. What came out is printed as JSON on stdout; what stands
on stderr, and how it looks in a terminal, is for the test to judge.
"""

import json
import os
import sys
import time
from typing import Any

ROWS = 1000
STATE_STORE = (
    "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider StateStoreProviderId[ storeId=x ]"
)
SETTINGS = {"spark.driver.memory": "600m", "spark.sql.shuffle.partitions": 2}

# What Spark says of itself that nobody can act on, and beside it what must not be lost.
DROPPED = (
    ("org.apache.hadoop.util.NativeCodeLoader", "warn", "Unable to load native-hadoop library for your platform..."),
    ("org.apache.spark.util.Utils", "warn", "Your hostname, x, resolves to a loopback address: 127.0.0.1"),
    (STATE_STORE, "warn", "The state for version 3 doesn't exist in loadedMaps. Reading snapshot file and delta files"),
    ("org.apache.spark.util.Utils", "error", "Aborting task"),
    ("org.apache.spark.sql.execution.datasources.v2.AppendDataExec", "error", "Data source write support x aborted."),
    (
        "org.apache.spark.scheduler.DAGScheduler",
        "warn",
        "Failed to cancel job group x. Cannot find active jobs for it.",
    ),
    ("org.apache.spark.scheduler.TaskSetManager", "warn", "[a] Lost task 3.0 in stage 1.0 (TID 3) (x): TaskKilled (b)"),
    (
        "org.apache.spark.storage.ShuffleBlockFetcherIterator",
        "error",
        "Error occurred while fetching local blocks, null",
    ),
    (
        "org.apache.spark.broadcast.TorrentBroadcast",
        "error",
        "Store broadcast broadcast_8 fail, remove all pieces of x",
    ),
)
KEPT = (
    (
        "org.apache.spark.scheduler.TaskSetManager",
        "warn",
        "Lost task 0.0 in stage 1.0 (TID 1) (x): java.io.IOException",
    ),
    ("org.apache.spark.scheduler.DAGScheduler", "warn", "Broadcasting large task binary with size 2.1 MiB"),
    ("org.apache.spark.sql.execution.datasources.v2.AppendDataExec", "error", "something else went wrong"),
    ("org.apache.spark.util.Utils", "error", "Uncaught exception in thread x"),
    ("org.apache.spark.storage.ShuffleBlockFetcherIterator", "error", "Error occurred while fetching local blocks, x"),
    (STATE_STORE, "warn", "Error cleaning up files"),
    ("some.other.Class", "warn", "look here"),
)


def start(how: str) -> Any:
    if how == "plain":
        os.environ["PYSPARK_PYTHON"] = sys.executable
        from pyspark.sql import SparkSession

        return SparkSession.builder.master("local[2]").config(map=SETTINGS).getOrCreate()
    import oncelog.spark

    if how.startswith("sc://"):
        spark = oncelog.spark.session("job", remote=how)
    else:
        spark = oncelog.spark.session("job", SETTINGS, master="local[2]")
    again = oncelog.spark.session(
        "again", remote=how if how.startswith("sc:") else None, spark__sql__adaptive__enabled=True
    )
    assert again is spark
    return spark


def work_through_a_topic(spark: Any, servers: str, topic: str, folder: str) -> dict[str, Any]:
    at = {"kafka.bootstrap.servers": servers}
    rows = spark.range(0, ROWS, 1, 2).selectExpr("CAST(id % 100 AS STRING) AS key", "CAST(id AS STRING) AS value")
    to = {**at, "topic": topic, "job.id": topic}
    rows.repartition(2, "key").write.format("oncelog").mode("append").options(**to).save()
    source = spark.readStream.format("oncelog").options(**at, subscribe=topic, startingOffsets="earliest")
    source = source.option("kafka.group.id", topic).option("maxOffsetsPerTrigger", ROWS // 2)
    sink = source.load().select("key", "value").writeStream.format("oncelog").options(**at, topic=f"{topic}-out")
    sink = sink.option("checkpointLocation", f"{folder}/checkpoint").queryName("copies")
    sink.trigger(availableNow=True).start().awaitTermination()
    found = spark.read.format("oncelog").options(**at, subscribe=f"{topic}-out").load()
    values = [int(row[0]) for row in found.selectExpr("CAST(value AS STRING)").collect()]
    return {"rows": len(values), "right": sorted(values) == list(range(ROWS))}


def keep_state(spark: Any, folder: str) -> None:
    """A query with state, stopped while it waits for its next batch."""
    rows = spark.readStream.format("rate").option("rowsPerSecond", 50).load().groupBy("value").count()
    sink = rows.writeStream.outputMode("update").format("noop").queryName("counts").trigger(processingTime="1 hour")
    query = sink.option("checkpointLocation", f"{folder}/counts").start()
    while query.lastProgress is None:
        time.sleep(0.05)
    query.stop()


def work_for_a_while(spark: Any) -> int:
    """Long enough for a bar."""

    def slow(rows: Any) -> Any:
        time.sleep(0.4)
        return rows

    count: int = spark.sparkContext.parallelize(range(8), 8).mapPartitions(slow).count()
    return count


def ask_for_what_is_not_there(spark: Any) -> str:
    from pyspark.errors import AnalysisException

    try:
        spark.range(1).selectExpr("nothing")
    except AnalysisException as refused:
        return str(refused.getCondition())
    return ""


def log_as_spark_does(spark: Any) -> None:
    for name, level, message in (*DROPPED, *KEPT):
        getattr(spark._jvm.org.slf4j.LoggerFactory.getLogger(name), level)(message)


def facts(spark: Any) -> dict[str, Any]:
    return {
        "java": spark._jvm.System.getProperty("java.version"),
        "master": spark.sparkContext.master,
        "ui": spark.sparkContext.uiWebUrl,
        "host": spark.conf.get("spark.driver.host"),
        "adaptive": spark.conf.get("spark.sql.adaptive.enabled"),
        "timezone": spark.conf.get("spark.sql.session.timeZone"),
        "partitions": spark.conf.get("spark.sql.shuffle.partitions"),
        "python": spark.sparkContext.pythonExec,
    }


def main() -> None:
    how, servers, topic, folder = sys.argv[1:]
    spark = start(how)
    said: dict[str, Any] = {"refused": ask_for_what_is_not_there(spark)}
    if how != "plain":
        said |= work_through_a_topic(spark, servers, topic, folder)
        keep_state(spark, folder)
    if not how.startswith("sc://"):
        said |= {"slow": work_for_a_while(spark), **facts(spark)}
        log_as_spark_does(spark)
    sys.stdout.write("RESULT " + json.dumps(said) + "\n")


if __name__ == "__main__":
    main()
