"""A topic of a cluster copied to a log on this machine, worked on there, and the result copied back.

    python examples/spark_copy.py
    python examples/spark_copy.py --servers HOST:PORT --topic orders --back orders-checked

`oncelog copy` in a program: every record once, with its key, its headers and its time, also when this program is killed
and started again (give --folder then, where the log on this machine is kept). Without --servers a second server in this
process takes the place of the cluster.
"""

import argparse
import sys
from contextlib import ExitStack
from tempfile import TemporaryDirectory

import oncelog
import oncelog.spark
from oncelog.client import Admin, Consumer, KafkaError, NewTopic, Producer


def main() -> int:
    options = read_options()
    with ExitStack() as stack:
        folder = options.folder or stack.enter_context(TemporaryDirectory())
        here = stack.enter_context(oncelog.Server(data_dir=folder)).bootstrap_servers
        cluster = options.servers or example_cluster(stack, options.topic)
        spark = oncelog.spark.session("copy", progress=False)

        copied = oncelog.spark.copy_topic(
            options.topic, options.topic, from_servers=cluster, to_servers=here, spark=spark
        )
        say(f"from the cluster: {copied.records} records in {copied.partitions} partitions")

        checked = check(here, options.topic, options.back)
        say(f"on this machine: {checked} of them are in order")

        copied = oncelog.spark.copy_topic(
            options.back, options.back, from_servers=here, to_servers=cluster, spark=spark
        )
        say(f"back to the cluster: {copied.records} records")
    return 0


def check(servers, topic, passed):
    """The work: records that have a value, to a topic of their own."""
    create(servers, passed)
    count = 0
    with (
        Consumer({"bootstrap.servers": servers, "group.id": "check", "auto.offset.reset": "earliest"}) as consumer,
        Producer({"bootstrap.servers": servers}) as producer,
    ):
        consumer.subscribe([topic])
        for message in until_end(consumer, topic):
            if message.value():
                producer.produce(passed, message.value(), key=message.key(), headers=message.headers())
                count += 1
    return count


def until_end(consumer, topic):
    left = {
        (topic, index): consumer.get_watermark_offsets(oncelog.client.TopicPartition(topic, index), timeout=30)[1]
        for index in consumer.list_topics(topic, timeout=30).topics[topic].partitions
    }
    while any(left.values()):
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            yield message
            if message.offset() + 1 >= left[topic, message.partition()]:
                left[topic, message.partition()] = 0


def example_cluster(stack, topic):
    servers = stack.enter_context(oncelog.Server()).bootstrap_servers
    create(servers, topic)
    with Producer({"bootstrap.servers": servers}) as producer:
        for number in range(1000):
            producer.produce(topic, f"order {number}" if number % 10 else None, key=f"customer {number % 7}")
    return servers


def create(servers, topic):
    with Admin({"bootstrap.servers": servers}) as admin:
        failure = admin.create_topics([NewTopic(topic, 3, -1)])[topic].exception()
        if failure is not None and failure.error.code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise failure


def read_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", help="of a cluster; a second server in this process if not given")
    parser.add_argument("--topic", default="orders")
    parser.add_argument("--back", default="orders-checked", metavar="TOPIC")
    parser.add_argument("--folder", help="of the log on this machine; a temporary one if not given")
    return parser.parse_args()


def say(words):
    sys.stdout.write(words + "\n")


if __name__ == "__main__":
    sys.exit(main())
