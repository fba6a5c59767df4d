"""JSON in, columns between, JSON out: what cannot be read goes to a topic of its own, with the reason in a header.

    python examples/spark_json_columns.py
    python examples/spark_json_columns.py --servers HOST:PORT --readings readings --good good --bad bad

One query writes to two topics: the column `topic` says where each row goes. Nothing here goes through a shuffle, so the
direct sink writes every row once. Without --servers a server in this process takes the place of a cluster.
"""

import argparse
import json
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import oncelog
import oncelog.spark
from oncelog.client import Admin, KafkaError, NewTopic, Producer

READINGS = [
    {"sensor": "roof", "at": "2025-06-01T12:00:00Z", "celsius": 31.5},
    {"sensor": "cellar", "at": "2025-06-01T12:00:00Z", "celsius": 14.0},
    "no JSON at all",
    {"sensor": "roof", "at": "2025-06-01T13:00:00Z", "celsius": "hot"},
    {"sensor": "cellar", "at": "2025-06-01T13:00:00Z", "celsius": 14.5},
]
SCHEMA = "sensor STRING, at TIMESTAMP, celsius DOUBLE, wrong STRING"


def main() -> int:
    options = read_options()
    with ExitStack() as stack:
        servers = options.servers or stack.enter_context(oncelog.Server()).bootstrap_servers
        folder = Path(options.folder or stack.enter_context(TemporaryDirectory()))
        create(servers, options.readings, options.good, options.bad)
        if not options.servers:
            write(servers, options.readings, READINGS)
        spark = oncelog.spark.session("JSON to columns", progress=False)
        convert(spark, servers, options, folder)
        show(spark, servers, options)
    return 0


def convert(spark, servers, options, folder):
    from pyspark.sql import functions as F

    kafka = {"kafka.bootstrap.servers": servers}
    rows = (
        spark.readStream.format("oncelog")
        .options(**kafka, subscribe=options.readings, startingOffsets="earliest")
        .load()
    )
    parsed = rows.select(
        "value",
        "timestamp",
        F.from_json(F.col("value").cast("string"), SCHEMA, {"columnNameOfCorruptRecord": "wrong"}).alias("read"),
    )
    is_good = F.col("read.wrong").isNull() & F.col("read.sensor").isNotNull()
    fahrenheit = F.struct("read.sensor", "read.at", (F.col("read.celsius") * 1.8 + 32).alias("fahrenheit"))
    reason = F.array(F.struct(F.lit("reason").alias("key"), F.lit("not a reading").cast("binary").alias("value")))
    written = parsed.select(
        F.when(is_good, F.lit(options.good)).otherwise(F.lit(options.bad)).alias("topic"),
        F.when(is_good, F.col("read.sensor").cast("binary")).alias("key"),
        F.when(is_good, F.to_json(fahrenheit).cast("binary")).otherwise(F.col("value")).alias("value"),
        F.when(~is_good, reason).alias("headers"),
        "timestamp",  # as it was
    )
    query = (
        written.writeStream.format("oncelog")
        .options(**kafka)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def show(spark, servers, options):
    for topic in (options.good, options.bad):
        rows = spark.read.format("oncelog").options(subscribe=topic, **{"kafka.bootstrap.servers": servers}).load()
        for (value,) in rows.selectExpr("CAST(value AS STRING)").sort("value").collect():
            say(f"{topic}: {value}")


def create(servers, *topics):
    with Admin({"bootstrap.servers": servers}) as admin:
        for future in admin.create_topics([NewTopic(topic, 2, -1) for topic in topics]).values():
            failure = future.exception()
            if failure is not None and failure.error.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise failure


def write(servers, topic, readings):
    with Producer({"bootstrap.servers": servers}) as producer:
        for reading in readings:
            producer.produce(topic, reading if isinstance(reading, str) else json.dumps(reading))


def read_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", help="of a cluster; a server in this process if not given")
    parser.add_argument("--readings", default="readings", metavar="TOPIC")
    parser.add_argument("--good", default="good", metavar="TOPIC")
    parser.add_argument("--bad", default="bad", metavar="TOPIC")
    parser.add_argument("--folder", help="for the checkpoint; a temporary one if not given")
    return parser.parse_args()


def say(words):
    sys.stdout.write(words + "\n")


if __name__ == "__main__":
    sys.exit(main())
