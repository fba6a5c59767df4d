"""Counts words as they come: a query with state, and the sink that writes every count once.

    python examples/spark_word_count.py
    python examples/spark_word_count.py --servers HOST:PORT --lines lines --counts counts --folder FOLDER

What `groupBy` yields comes through a shuffle, in another order each time, so a batch that is run again does not repeat.
The sealed sink writes each batch to files first, and sends those: whichever process is killed, every count stands in
the topic once. Without --servers a server in this process takes the place of a cluster, and a few lines that of a user.

With the same --folder the query goes on where it was: the second half of the lines below comes after a restart, and
finds the counts of the first half in the query's state.
"""

import argparse
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import oncelog
import oncelog.spark
from oncelog.client import Admin, KafkaError, NewTopic, Producer

LINES = ["to be or not to be", "that is the question", "to sleep no more", "perchance to dream"]


def main() -> int:
    options = read_options()
    with ExitStack() as stack:
        servers = options.servers or stack.enter_context(oncelog.Server()).bootstrap_servers
        folder = Path(options.folder or stack.enter_context(TemporaryDirectory()))
        create(servers, options.lines, options.counts)
        spark = oncelog.spark.session("word count", progress=False)
        half = len(LINES) // 2
        for lines in (LINES[:half], LINES[half:]):
            write(servers, options.lines, lines)
            count(spark, servers, options, folder)
        show(spark, servers, options.counts)
    return 0


def count(spark, servers, options, folder):
    kafka = {"kafka.bootstrap.servers": servers}
    lines = (
        spark.readStream.format("oncelog")
        .options(**kafka, subscribe=options.lines, startingOffsets="earliest")
        .load()
        .selectExpr("CAST(value AS STRING) AS line")
    )
    words = lines.selectExpr("explode(split(lower(line), ' ')) AS word")
    counts = words.groupBy("word").count().selectExpr("word AS key", "CAST(count AS STRING) AS value")
    query = (
        counts.writeStream.outputMode("update")  # a record for every count that has changed
        .foreachBatch(oncelog.spark.sealed(path=folder / "sealed", topic=options.counts, **kafka))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)  # what is there now; without it the query goes on for ever
        .start()
    )
    query.awaitTermination()


def show(spark, servers, topic):
    """The topic is a history of counts, which only grow: the largest one of a word is how often it came."""
    history = spark.read.format("oncelog").options(subscribe=topic, **{"kafka.bootstrap.servers": servers}).load()
    last = history.selectExpr(
        "CAST(key AS STRING) AS word", "INT(CAST(value AS STRING)) AS count", "offset", "partition"
    )
    latest = last.groupBy("word").agg({"count": "max"}).orderBy("max(count)", "word", ascending=[False, True])
    say(f"{history.count()} counts were written, the largest of each word:")
    for word, number in latest.limit(5).collect():
        say(f"{number:4}  {word}")


def create(servers, *topics):
    with Admin({"bootstrap.servers": servers}) as admin:
        for future in admin.create_topics([NewTopic(topic, 2, -1) for topic in topics]).values():
            failure = future.exception()
            if failure is not None and failure.error.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise failure


def write(servers, topic, lines):
    with Producer({"bootstrap.servers": servers}) as producer:
        for line in lines:
            producer.produce(topic, line)


def read_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", help="of a cluster; a server in this process if not given")
    parser.add_argument("--lines", default="lines", metavar="TOPIC")
    parser.add_argument("--counts", default="counts", metavar="TOPIC")
    parser.add_argument("--folder", help="for the checkpoint and the sealed batches; a temporary one if not given")
    return parser.parse_args()


def say(words):
    sys.stdout.write(words + "\n")


if __name__ == "__main__":
    sys.exit(main())
