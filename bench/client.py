"""Producers side by side on one server in one run: ours, librdkafka's, aiokafka's and kafka-python's.

    python -m bench.client [--server oncelog|kafka] [--rounds 5] [--records 1000000]

All are idempotent with acks=all and send records of 100 bytes to one partition. A rate is that of records acknowledged:
the clock stops when the last callback was called. The rounds are taken in turn, so that what else the machine does
meets all of them; each ratio is the median of those within a round.
"""

import argparse
import asyncio
import gc
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka
import pyarrow as pa
from aiokafka import AIOKafkaProducer
from kafka import KafkaProducer

from oncelog.client import Producer
from tests.peers.apache import ApacheKafka
from tests.peers.oncelog_process import OncelogProcess
from tests.raw import RawConnection

RECORD_BYTES = 100
TOPIC = "produced"
SERVE_EVERY = 1000
SLOW_SHARE = 20  # the producers in Python send this part of the records, so that a run does not take minutes
QUEUE = {"queue.buffering.max.messages": 1_000_000}

Measure = Callable[[str, int], float]


def oncelog_one_by_one(servers: str, records: int) -> float:
    with Producer({"bootstrap.servers": servers, **QUEUE}) as producer:
        return _one_by_one(producer, records)


def librdkafka_one_by_one(servers: str, records: int) -> float:
    return _one_by_one(_librdkafka(servers), records)


def librdkafka_without_callbacks(servers: str, records: int) -> float:
    """The fastest that it goes one by one, which is what bulk is held against."""
    producer = _librdkafka(servers)
    value = b"x" * RECORD_BYTES
    producer.produce(TOPIC, value)
    producer.flush(30)
    started = time.perf_counter()
    for _ in range(records):
        while True:
            try:
                producer.produce(TOPIC, value)
                break
            except BufferError:
                producer.poll(0.01)
    if producer.flush(60):
        raise RuntimeError("librdkafka did not deliver everything")
    return records / (time.perf_counter() - started)


def oncelog_bulk(servers: str, records: int) -> float:
    with Producer({"bootstrap.servers": servers, **QUEUE}) as producer:
        table = pa.table({"value": pa.array([b"x" * RECORD_BYTES] * records, pa.binary())})
        producer.send(TOPIC, table.slice(0, 1000)).result(60)
        started = time.perf_counter()
        producer.send(TOPIC, table).result(60)
        return records / (time.perf_counter() - started)


def aiokafka_one_by_one(servers: str, records: int) -> float:
    async def run() -> float:
        producer = AIOKafkaProducer(
            bootstrap_servers=servers, enable_idempotence=True, max_batch_size=900_000, linger_ms=5
        )
        await producer.start()
        value = b"x" * RECORD_BYTES
        try:
            await producer.send_and_wait(TOPIC, value)
            started = time.perf_counter()
            futures = [await producer.send(TOPIC, value) for _ in range(records // SLOW_SHARE)]
            await asyncio.gather(*futures)
            return len(futures) / (time.perf_counter() - started)
        finally:
            await producer.stop()

    return asyncio.run(run())


def kafka_python_one_by_one(servers: str, records: int) -> float:
    producer = KafkaProducer(
        bootstrap_servers=servers, enable_idempotence=True, acks="all", batch_size=900_000, linger_ms=5
    )
    value = b"x" * RECORD_BYTES
    delivered = [0]

    def report(_: object) -> None:
        delivered[0] += 1

    try:
        producer.send(TOPIC, value).get(30)
        started = time.perf_counter()
        for _ in range(records // SLOW_SHARE):
            producer.send(TOPIC, value).add_callback(report)
        producer.flush(60)
        return delivered[0] / (time.perf_counter() - started)
    finally:
        producer.close()


def _librdkafka(servers: str) -> Any:
    return confluent_kafka.Producer(
        {"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 5, "log_level": 0, **QUEUE}
    )


def _one_by_one(producer: Any, records: int) -> float:
    delivered, failed = 0, 0

    def report(error: Any, _: object) -> None:
        nonlocal delivered, failed
        if error is None:
            delivered += 1
        else:
            failed += 1

    value = b"x" * RECORD_BYTES
    producer.produce(TOPIC, value)
    producer.flush(30)
    started = time.perf_counter()
    for sent in range(records):
        while True:
            try:
                producer.produce(TOPIC, value, on_delivery=report)
                break
            except BufferError:
                producer.poll(0.01)
        if not sent % SERVE_EVERY:
            producer.poll(0)
    producer.flush(60)
    seconds = time.perf_counter() - started
    if delivered != records:
        raise RuntimeError(f"{delivered} of {records} delivered, {failed} failed")
    return records / seconds


ROWS: dict[str, Measure] = {
    "librdkafka produce, callbacks": librdkafka_one_by_one,
    "oncelog produce, callbacks": oncelog_one_by_one,
    "aiokafka send, futures": aiokafka_one_by_one,
    "kafka-python send, callbacks": kafka_python_one_by_one,
    "librdkafka produce, no callbacks": librdkafka_without_callbacks,
    "oncelog bulk send": oncelog_bulk,
}
# What is held against what, and the goal.
GOALS = (
    ("oncelog produce, callbacks", "librdkafka produce, callbacks", 1.0),
    ("oncelog produce, callbacks", "aiokafka send, futures", 5.0),
    ("oncelog produce, callbacks", "kafka-python send, callbacks", 5.0),
    ("oncelog bulk send", "librdkafka produce, callbacks", 5.0),
    ("oncelog bulk send", "librdkafka produce, no callbacks", 5.0),
)


def measure(servers: str, port: int, *, rounds: int, records: int) -> dict[str, list[float]]:
    """Records a second by row, one for each round."""
    found: dict[str, list[float]] = {name: [] for name in ROWS}
    for name in ("oncelog produce, callbacks", "oncelog bulk send"):
        with topic(port):
            ROWS[name](servers, 20_000)  # loads what is compiled
    for _ in range(rounds):
        for name, row in ROWS.items():
            with topic(port):
                gc.collect()
                found[name].append(row(servers, records))
    return found


@contextmanager
def topic(port: int) -> Iterator[None]:
    """Made anew for every row and deleted, so that no row pays for the disk that another has filled."""
    with RawConnection(port, timeout_s=60) as connection:
        connection.create_topic(TOPIC)
        try:
            yield
        finally:
            connection.delete_topic(TOPIC)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", choices=("oncelog", "kafka"), default="oncelog")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=1_000_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="oncelog-bench-") as folder:
        kind = ApacheKafka if given.server == "kafka" else OncelogProcess
        with kind(Path(folder) / "server") as server:
            found = measure(server.bootstrap_servers, server.port, rounds=given.rounds, records=given.records)
    print(f"load average {os.getloadavg()[0]:.1f} on {len(os.sched_getaffinity(0))} cores")
    for name, rates in found.items():
        print(f"{name:36} {statistics.median(rates):12,.0f} records/s")
    for ours, theirs, goal in GOALS:
        ratios = [mine / its for mine, its in zip(found[ours], found[theirs], strict=True)]
        middle = statistics.median(ratios)
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
        print(f"{ours} / {theirs}: {middle:.2f} ({spread}); goal {goal:g}: {'yes' if middle >= goal else 'NO'}")


if __name__ == "__main__":
    main()
