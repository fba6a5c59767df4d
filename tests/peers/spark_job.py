"""Spark's own Kafka connector at work; runs in an environment with pyspark:  spark_job.py JARS SERVERS TOPIC FOLDER

One session does it all, because a session takes seconds to start: a batch is written, read by offsets and by time, and
streamed to another topic in two runs with one checkpoint. What came out is printed as JSON.
"""

import json
import os
import sys

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
from pyspark.sql import SparkSession

ROWS = 1000


def main() -> None:
    jars, servers, topic, folder = sys.argv[1:]
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", jars)
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    kafka = {"kafka.bootstrap.servers": servers}

    def write(first: int, last: int) -> None:
        rows = spark.range(first, last).selectExpr("CAST(id AS STRING) AS key", "CAST(id * 2 AS STRING) AS value")
        rows.write.format("kafka").options(**kafka).option("topic", topic).save()

    def read(name: str, **options: str) -> list[tuple[str, str]]:
        frame = spark.read.format("kafka").options(**kafka).option("subscribe", name).options(**options).load()
        found = frame.selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)").collect()
        return sorted((row[0], row[1]) for row in found)

    def stream() -> None:
        source = spark.readStream.format("kafka").options(**kafka).option("subscribe", topic)
        rows = source.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "400").load()
        sink = rows.selectExpr("key", "value").writeStream.format("kafka").options(**kafka)
        sink = sink.option("topic", f"{topic}-out").option("checkpointLocation", f"{folder}/checkpoint")
        sink.trigger(availableNow=True).start().awaitTermination()

    write(0, ROWS)
    everything = read(topic)
    in_the_future = read(topic, startingTimestamp="4000000000000", startingOffsetsByTimestampStrategy="latest")
    stream()
    write(ROWS, 2 * ROWS)
    stream()
    out = read(f"{topic}-out")
    expected = [(str(i), str(2 * i)) for i in range(2 * ROWS)]
    said = {
        "read": everything == sorted(expected[:ROWS]),
        "future": len(in_the_future),
        "streamed": len(out),
        "streamed_right": out == sorted(expected),
        "version": spark.version,
    }
    sys.stdout.write("RESULT " + json.dumps(said) + "\n")
    spark.stop()


main()
