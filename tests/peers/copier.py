"""A stock consumer and producer (librdkafka) that copy a topic in transactions, record by record exactly once: as the
documents of confluent-kafka show it. A process of its own, to be killed.

    python -m tests.peers.copier SERVERS FROM TO NAME
"""

import os
import sys

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.cluster.transacting import Hung, send_offsets

AT_ONCE, PATIENCE_S = 20, 60.0


def copy(servers: str, source: str, target: str, name: str) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": name,
            "group.instance.id": name,  # who is started again goes on at once
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "session.timeout.ms": 6_000,
        }
    )
    consumer.subscribe([source])
    producer = Producer({"bootstrap.servers": servers, "transactional.id": name, "transaction.timeout.ms": 20_000})
    producer.init_transactions(PATIENCE_S)
    while True:
        found = [each for each in consumer.consume(AT_ONCE, 0.5) if each.error() is None]
        if found:
            try:
                in_transaction(consumer, producer, found, target)
            except KafkaException as failure:
                error = failure.args[0]
                if not isinstance(error, KafkaError) or not error.txn_requires_abort():
                    raise
                producer.abort_transaction(PATIENCE_S)
                go_back(consumer)
            except Hung:
                os.execv(sys.executable, sys.orig_argv)


def in_transaction(consumer: Consumer, producer: Producer, found: list, target: str) -> None:  # type: ignore[type-arg]
    producer.begin_transaction()
    for each in found:
        producer.produce(target, each.value(), each.key(), each.partition())
    positions = consumer.position(consumer.assignment())
    send_offsets(producer, positions, consumer.consumer_group_metadata())
    producer.commit_transaction(PATIENCE_S)


def go_back(consumer: Consumer) -> None:
    for each in consumer.committed(consumer.assignment(), PATIENCE_S):
        consumer.seek(TopicPartition(each.topic, each.partition, max(each.offset, 0)))


if __name__ == "__main__":
    copy(*sys.argv[1:])
