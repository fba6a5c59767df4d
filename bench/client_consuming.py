"""Consumers side by side on one server in one run: ours, librdkafka's, aiokafka's and kafka-python's.

    python -m bench.client_consuming [--server oncelog|kafka] [--gb 0.3] [--rounds 3]

Each takes all records of 100 bytes of one partition, and looks at every value where it gets records one by one. The
rounds are taken in turn, so that what else the machine does meets all of them; the medians are compared.
"""

import argparse
import asyncio
import contextlib
import gc
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as PythonPartition

from bench.arena import fill
from oncelog.client import Consumer, TopicPartition
from tests.peers.apache import ApacheKafka
from tests.peers.oncelog_process import OncelogProcess
from tests.peers.server_process import ServerProcess
from tests.raw import RawConnection

# At a time; what is left at the end is asked for exactly, since a call for more would sit out its timeout.
ARROW_ROWS = 10_000
PATIENCE_S = 10.0
SLOW_SHARE = 10  # the consumers in Python read this part of the records, so that a run does not take minutes

Measure = Callable[[str, str, int], float]


def oncelog_arrow(servers: str, topic: str, records: int) -> float:
    with _ours(servers, topic) as consumer:
        got = int(consumer.consume_arrow(1, PATIENCE_S).num_rows)
        started = time.perf_counter()
        while got < records:
            got += int(consumer.consume_arrow(min(ARROW_ROWS, records - got), PATIENCE_S).num_rows)
        return got / (time.perf_counter() - started)


def oncelog_consume(servers: str, topic: str, records: int) -> float:
    with _ours(servers, topic) as consumer:
        return _rate_of_consume(consumer, records)


def oncelog_poll(servers: str, topic: str, records: int) -> float:
    with _ours(servers, topic) as consumer:
        return _rate_of_poll(consumer, records)


def oncelog_iteration(servers: str, topic: str, records: int) -> float:
    with _ours(servers, topic) as consumer:
        got = len(consumer.consume(1, PATIENCE_S))
        started = time.perf_counter()
        for message in consumer:
            message.value()
            got += 1
            if got >= records:
                break
        return got / (time.perf_counter() - started)


def _ours(servers: str, topic: str) -> Consumer:
    consumer = Consumer({"bootstrap.servers": servers, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    return consumer


@contextlib.contextmanager
def _librdkafka(servers: str, topic: str) -> Any:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "bench",
            "enable.auto.commit": False,
            # By default it sits out a whole second whenever its queue is full, which says nothing about it.
            "fetch.queue.backoff.ms": 1,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    try:
        yield consumer
    finally:
        consumer.close()


def librdkafka_consume(servers: str, topic: str, records: int) -> float:
    with _librdkafka(servers, topic) as consumer:
        return _rate_of_consume(consumer, records)


def librdkafka_poll(servers: str, topic: str, records: int) -> float:
    with _librdkafka(servers, topic) as consumer:
        return _rate_of_poll(consumer, records)


def _rate_of_consume(consumer: Any, records: int) -> float:
    got = len(consumer.consume(1, PATIENCE_S))
    started = time.perf_counter()
    while got < records:
        got += len(consumer.consume(min(10_000, records - got), PATIENCE_S))
    return got / (time.perf_counter() - started)


def _rate_of_poll(consumer: Any, records: int) -> float:
    got = len(consumer.consume(1, PATIENCE_S))
    started = time.perf_counter()
    while got < records:
        message = consumer.poll(PATIENCE_S)
        if message is not None:
            message.value()
            got += 1
    return got / (time.perf_counter() - started)


def aiokafka_iteration(servers: str, topic: str, records: int) -> float:
    async def run() -> float:
        consumer = AIOKafkaConsumer(bootstrap_servers=servers, enable_auto_commit=False, auto_offset_reset="earliest")
        await consumer.start()
        try:
            consumer.assign([AioPartition(topic, 0)])
            await consumer.getone()
            got = 1
            started = time.perf_counter()
            async for _ in consumer:
                got += 1
                if got >= records // SLOW_SHARE:
                    break
            return got / (time.perf_counter() - started)
        finally:
            await consumer.stop()

    return asyncio.run(run())


def kafka_python_iteration(servers: str, topic: str, records: int) -> float:
    consumer = KafkaConsumer(bootstrap_servers=servers, enable_auto_commit=False, auto_offset_reset="earliest")
    try:
        consumer.assign([PythonPartition(topic, 0)])
        next(consumer)
        got = 1
        started = time.perf_counter()
        for _ in consumer:
            got += 1
            if got >= records // SLOW_SHARE:
                break
        return got / (time.perf_counter() - started)
    finally:
        consumer.close()


ROWS: dict[str, Measure] = {
    "librdkafka consume(10,000)": librdkafka_consume,
    "oncelog consume_arrow(10,000)": oncelog_arrow,
    "oncelog consume(10,000)": oncelog_consume,
    "librdkafka poll": librdkafka_poll,
    "oncelog poll": oncelog_poll,
    "oncelog iteration": oncelog_iteration,
    "aiokafka iteration": aiokafka_iteration,
    "kafka-python iteration": kafka_python_iteration,
}
# What is held against what, and the goal.
GOALS = (
    ("oncelog consume_arrow(10,000)", "librdkafka consume(10,000)", 5.0),
    ("oncelog poll", "librdkafka poll", 1.0),
    ("oncelog iteration", "librdkafka poll", 1.0),
)


def measure(server: ServerProcess, *, gb: float, rounds: int, rows: dict[str, Measure] = ROWS) -> dict[str, float]:
    """Median records a second by row."""
    with RawConnection(server.port) as connection:
        connection.create_topic("consumed")
    filled = fill(server.port, "consumed", gb)
    found: dict[str, list[float]] = {name: [] for name in rows}
    oncelog_arrow(server.bootstrap_servers, "consumed", 100_000)  # loads what is compiled
    for _ in range(rounds):
        for name, row in rows.items():
            gc.collect()
            found[name].append(row(server.bootstrap_servers, "consumed", filled.end_offset))
    return {name: statistics.median(rates) for name, rates in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", choices=("oncelog", "kafka"), default="oncelog")
    parser.add_argument("--gb", type=float, default=0.3)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="oncelog-bench-") as folder:
        kind = ApacheKafka if given.server == "kafka" else OncelogProcess
        with kind(Path(folder) / "server") as server:
            rates = measure(server, gb=given.gb, rounds=given.rounds)
    for name, rate in rates.items():
        print(f"{name:32} {rate:12,.0f} records/s")
    for ours, theirs, goal in GOALS:
        print(f"{ours} is {rates[ours] / rates[theirs]:.2f} times {theirs}; the goal is {goal:g}")


if __name__ == "__main__":
    main()
