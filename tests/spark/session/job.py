"""A job as a user would write it, in a process of its own:  job.py HOW SERVERS TOPIC FOLDER

HOW is `session`, or `plain` for what PySpark gives without us, or an address of a Connect server. A batch with a
shuffle is written and read, streamed to another topic under a group, and a stream with state is stopped as it runs.
What came out is printed as JSON on stdout; stderr is what the test is about.
"""

import json
import os
import sys
import time
from typing import Any

ROWS = 1000
SETTINGS = {"spark.driver.memory": "600m", "spark.sql.shuffle.partitions": 2}
GROUP = "readers"


def start(how: str) -> Any:
    if how == "plain":
        os.environ["PYSPARK_PYTHON"] = sys.executable
        from pyspark.sql import SparkSession

        return SparkSession.builder.master("local[2]").config(map=SETTINGS).getOrCreate()
    import oncelog.spark

    if how.startswith("sc://"):
        return oncelog.spark.session("job", remote=how)
    spark = oncelog.spark.session("job", SETTINGS, master="local[2]")
    assert oncelog.spark.session("again", spark__sql__adaptive__enabled=True) is spark
    return spark


def work_through_a_topic(spark: Any, servers: str, topic: str, folder: str) -> dict[str, Any]:
    """From one topic to another, and what stands there."""
    at = {"kafka.bootstrap.servers": servers}
    rows = spark.range(0, ROWS, 1, 2).selectExpr("CAST(id % 100 AS STRING) AS key", "CAST(id AS STRING) AS value")
    rows.repartition(2, "key").write.format("oncelog").mode("append").options(
        **at, topic=topic, **{"job.id": topic}
    ).save()
    source = spark.readStream.format("oncelog").options(**at, subscribe=topic, startingOffsets="earliest")
    source = source.option("kafka.group.id", f"{topic}-{GROUP}").option("maxOffsetsPerTrigger", ROWS // 2)
    sink = source.load().select("key", "value").writeStream.format("oncelog").options(**at, topic=f"{topic}-out")
    sink = sink.option("checkpointLocation", f"{folder}/checkpoint").queryName("copies")
    sink.trigger(availableNow=True).start().awaitTermination()
    found = spark.read.format("oncelog").options(**at, subscribe=f"{topic}-out").load()
    values = [int(row[0]) for row in found.selectExpr("CAST(value AS STRING)").collect()]
    return {"rows": len(values), "right": sorted(values) == list(range(ROWS))}


def stop_a_query_in_the_middle(spark: Any, folder: str) -> None:
    rows = spark.readStream.format("rate").option("rowsPerSecond", 50).load().groupBy("value").count()
    sink = rows.writeStream.outputMode("update").format("noop").queryName("counts")
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


def main() -> None:
    how, servers, topic, folder = sys.argv[1:]
    spark = start(how)
    said: dict[str, Any] = work_through_a_topic(spark, servers, topic, folder)
    stop_a_query_in_the_middle(spark, folder)
    if not how.startswith("sc://"):
        said["slow"] = work_for_a_while(spark)
        said["java"] = spark._jvm.System.getProperty("java.version")
        said["master"] = spark.sparkContext.master
        said["ui"] = spark.sparkContext.uiWebUrl
        said["host"] = spark.conf.get("spark.driver.host")
        said["adaptive"] = spark.conf.get("spark.sql.adaptive.enabled")
    said["partitions"] = spark.conf.get("spark.sql.shuffle.partitions")
    sys.stdout.write("RESULT " + json.dumps(said) + "\n")


if __name__ == "__main__":
    main()
