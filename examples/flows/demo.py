"""What the examples beside it have in common: a cluster, the topics, the records, and a look at what comes of them."""

import argparse
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import oncelog
from oncelog.client import Admin, Consumer, KafkaError, KafkaException, NewTopic, Producer, TopicPartition
from oncelog.flow import Flow, Sent, Topic

MOST_SHOWN = 12
COMPACTED = {"ranks.customers"}  # tables


def show(flow: Flow, sent: Iterable[Sent], *outputs: Topic[Any, Any]) -> None:
    """Runs a flow over these records, up to their end, and prints what stands in its outputs then."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--servers", help="a Kafka or an oncelog server; one in this process if not given")
    parser.add_argument("--spark", action="store_true", help="the work is done in Spark's tasks")
    options = parser.parse_args()
    how: dict[str, Any] = {}
    if options.spark:
        from oncelog.spark import session

        how["spark"] = session(flow.name, progress=False)
    with ExitStack() as stack:
        servers = options.servers or stack.enter_context(oncelog.Server()).bootstrap_servers
        properties = {"bootstrap.servers": servers}
        send(properties, sent, outputs)
        flow.run(properties, until="end", **how)
        for topic in outputs:
            found = list(written(properties, topic))
            for key, value in found[:MOST_SHOWN]:
                print(f"{topic.name}: {key} {value}")
            if len(found) > MOST_SHOWN:
                print(f"{topic.name}: and {len(found) - MOST_SHOWN} more")


def send(properties: Mapping[str, str], sent: Iterable[Sent], outputs: Iterable[Topic[Any, Any]]) -> None:
    """Makes the topics that are missing, and writes the records."""
    records = list(sent)
    topics = {topic.name: topic for topic in (*outputs, *(each.topic for each in records))}
    keep = {"retention.ms": "-1"}  # these records are of 2023
    with Admin(properties) as admin:
        wanted = [
            NewTopic(name, topic.partitions, -1, config={"cleanup.policy": "compact"} if name in COMPACTED else keep)
            for name, topic in topics.items()
        ]
        for future in admin.create_topics(wanted).values():
            failure = future.exception()
            is_there = isinstance(failure, KafkaException) and failure.error.code() == KafkaError.TOPIC_ALREADY_EXISTS
            if failure is not None and not is_there:
                raise failure
    with Producer({**properties, "partitioner": "murmur2_random"}) as producer:
        for each in records:
            producer.produce(
                each.topic.name, key=each.key, value=each.value, timestamp=each.at_ms, headers=list(each.headers)
            )
        producer.flush()


def written(properties: Mapping[str, str], topic: Topic[Any, Any]) -> Iterator[tuple[Any, Any]]:
    """All that stands in a topic, partition by partition."""
    with Consumer({**properties, "enable.partition.eof": True}) as consumer:
        for partition in range(topic.partitions):
            consumer.assign([TopicPartition(topic.name, partition, 0)])
            while (message := consumer.poll(30)) is not None and message.error() is None:
                key, value = message.key(), message.value()
                yield topic.key.decode(key or b""), None if value is None else topic.value.decode(value)
