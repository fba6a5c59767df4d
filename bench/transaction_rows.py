"""Rows of transactions, by librdkafka: how many end in a second, what a large one carries, a copy with its offsets, and
how fast committed records are read."""

import itertools
import time
from collections.abc import Callable
from statistics import quantiles
from typing import Final

from confluent_kafka import Consumer, Producer, TopicPartition

from bench.arena import Arena, processor_time
from bench.rows import Figures, Line, row

VALUE: Final = b"x" * 100
PARTITIONS: Final = 3
SMALL, COPIED, LARGE = 3, 100, 10_000  # records of a transaction
PATIENCE_S: Final = 60

_names = itertools.count()


def transacting(servers: str, linger_ms: int) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "transactional.id": f"bench-{next(_names)}",
            "linger.ms": linger_ms,
            "queue.buffering.max.messages": 1_000_000,
            "log_level": 0,
        }
    )
    producer.init_transactions(PATIENCE_S)
    return producer


def write(producer: Producer, topic: str, records: int) -> None:
    """One transaction, committed."""
    producer.begin_transaction()
    for number in range(records):
        producer.produce(topic, VALUE, partition=number % PARTITIONS)
    producer.commit_transaction(PATIENCE_S)


def again_for(seconds: float, one: Callable[[], object]) -> list[float]:
    """How many seconds each took."""
    took: list[float] = []
    started = before = time.perf_counter()
    while before - started < seconds:
        one()
        now = time.perf_counter()
        took.append(now - before)
        before = now
    return took


def written(arena: Arena, peer: str, records: int, linger_ms: int) -> Figures:
    server = arena.server(peer)
    with arena.topic(peer, PARTITIONS) as topic:
        producer = transacting(server.bootstrap_servers, linger_ms)
        again_for(arena.warm_up_seconds(f"{peer} transacts", records), lambda: write(producer, topic, records))
        with processor_time(server) as spent:
            took = again_for(arena.seconds, lambda: write(producer, topic, records))
        read_per_s = committed_per_s(server.bootstrap_servers, topic)
    return {
        "transactions_per_s": len(took) / sum(took),
        "records_per_s": len(took) * records / sum(took),
        "p99_ms": quantiles(took, n=100)[-1] * 1000,
        "cpu_ms": spent[0] / len(took) * 1000,
        "read_per_s": read_per_s,
    }


def committed_per_s(servers: str, topic: str) -> float:
    """Of partition 0, from its first record to its end."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "bench",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "fetch.queue.backoff.ms": 1,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    got, started = 0, time.perf_counter()
    try:
        while True:
            for message in consumer.consume(20_000, 0.1):
                if message.error() is not None:  # the end
                    return got / (time.perf_counter() - started)
                got += 1
    finally:
        consumer.close()


@row(
    Line(
        "transactions_per_s",
        "librdkafka, transactions of a record to each of 3 partitions: committed/s",
        "≥ 1x",
        at_least=1.0,
    ),
    Line("p99_ms", "the same: p99 from begin to committed, ms", "≤ Kafka's", at_most=1.0),
    Line("cpu_ms", "the same: server's processor milliseconds a transaction", "≤ Kafka's", at_most=1.0),
)
def transactions_small(arena: Arena, peer: str) -> Figures:
    return written(arena, peer, SMALL, 0)


@row(
    Line("records_per_s", "librdkafka, transactions of 10,000 records: committed records/s", "≥ 1x", at_least=1.0),
    Line("read_per_s", "the same, read with `read_committed`: records/s", "≥ 1x", at_least=1.0),
)
def transactions_large(arena: Arena, peer: str) -> Figures:
    return written(arena, peer, LARGE, 5)


@row(
    Line(
        "records_per_s",
        "librdkafka, a copy in transactions of 100 records and their offset: records/s",
        "≥ 1x",
        at_least=1.0,
    ),
)
def transactions_copied(arena: Arena, peer: str) -> Figures:
    servers = arena.server(peer).bootstrap_servers
    with arena.topic(peer, PARTITIONS) as source, arena.topic(peer, PARTITIONS) as target:
        producer = transacting(servers, 0)
        metadata_of = Consumer({"bootstrap.servers": servers, "group.id": source})
        metadata_of.subscribe([source])
        while not metadata_of.assignment():
            metadata_of.poll(0.1)
        group, offsets = metadata_of.consumer_group_metadata(), itertools.count(COPIED, COPIED)

        def copy() -> None:
            producer.begin_transaction()
            for number in range(COPIED):
                producer.produce(target, VALUE, partition=number % PARTITIONS)
            position = [TopicPartition(source, 0, next(offsets))]
            producer.send_offsets_to_transaction(position, group, PATIENCE_S)
            producer.commit_transaction(PATIENCE_S)

        again_for(arena.warm_up_seconds(f"{peer} copies", COPIED), copy)
        took = again_for(arena.seconds, copy)
        metadata_of.close()
    return {"records_per_s": len(took) * COPIED / sum(took)}
