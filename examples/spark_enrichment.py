"""Orders with the names of their customers: a table that is joined in a way that repeats, and the direct sink.

    python examples/spark_enrichment.py
    python examples/spark_enrichment.py --servers HOST:PORT --orders orders --enriched enriched --customers FILE

The direct sink needs batches that repeat: the same rows in the same order, should a batch be run again. Spark's join of
a stream with a table does not promise that, and the table may have changed meanwhile. Here the table is read once, when
the query is started for the first time, kept beside the checkpoint, and looked up by an expression; a stream through an
expression repeats, as `oncelog.spark.check` confirms. A new table is a new version, with a checkpoint of its own.
"""

import argparse
import csv
import json
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import oncelog
import oncelog.spark
from oncelog.client import Admin, KafkaError, NewTopic, Producer

CUSTOMERS = {"1": "Anna", "2": "Bert", "3": "Carla"}
ORDERS = [("1", "apples"), ("2", "pears"), ("1", "plums"), ("9", "nuts"), ("3", "figs")]


def main() -> int:
    options = read_options()
    with ExitStack() as stack:
        servers = options.servers or stack.enter_context(oncelog.Server()).bootstrap_servers
        folder = Path(options.folder or stack.enter_context(TemporaryDirectory()))
        create(servers, options.orders, options.enriched)
        customers = customers_of(folder, options.customers)
        if not options.servers:
            write(servers, options.orders, ORDERS)
        spark = oncelog.spark.session("enrichment", progress=False)
        enrich(spark, servers, options, customers, folder)
        show(spark, servers, options.enriched)
    return 0


def customers_of(folder, path):
    """The table as it was when the query began: a batch that is run again must find the same one."""
    kept = folder / "customers.json"
    if not kept.exists():
        table = CUSTOMERS
        if path:
            with open(path, newline="") as file:
                table = {row["id"]: row["name"] for row in csv.DictReader(file)}
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(table))
    return json.loads(kept.read_text())


def enrich(spark, servers, options, customers, folder):
    from pyspark.sql import functions as F

    kafka = {"kafka.bootstrap.servers": servers}
    orders = (
        spark.readStream.format("oncelog").options(**kafka, subscribe=options.orders, startingOffsets="earliest").load()
    )
    names = F.create_map(*[F.lit(cell) for pair in sorted(customers.items()) for cell in pair])
    name = F.coalesce(F.try_element_at(names, F.col("key").cast("string")), F.lit("somebody"))
    enriched = orders.select("key", F.concat(name, F.lit(" orders "), F.col("value").cast("string")).alias("value"))
    say(str(oncelog.spark.check(enriched)).splitlines()[0])
    query = (
        enriched.writeStream.format("oncelog")
        .options(**kafka, topic=options.enriched)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def show(spark, servers, topic):
    rows = spark.read.format("oncelog").options(subscribe=topic, **{"kafka.bootstrap.servers": servers}).load()
    for (line,) in rows.selectExpr("CAST(value AS STRING)").sort("value").collect():
        say(line)


def create(servers, *topics):
    with Admin({"bootstrap.servers": servers}) as admin:
        for future in admin.create_topics([NewTopic(topic, 2, -1) for topic in topics]).values():
            failure = future.exception()
            if failure is not None and failure.error.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise failure


def write(servers, topic, orders):
    with Producer({"bootstrap.servers": servers}) as producer:
        for customer, what in orders:
            producer.produce(topic, what, key=customer)


def read_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", help="of a cluster; a server in this process if not given")
    parser.add_argument("--orders", default="orders", metavar="TOPIC", help="key: the customer's number")
    parser.add_argument("--enriched", default="enriched", metavar="TOPIC")
    parser.add_argument("--customers", metavar="FILE", help="CSV with the columns id and name")
    parser.add_argument("--folder", help="for the checkpoint and the table; a temporary one if not given")
    return parser.parse_args()


def say(words):
    sys.stdout.write(words + "\n")


if __name__ == "__main__":
    sys.exit(main())
