"""Producers side by side: records of 100 bytes, idempotent with acks=all, to one partition unless a row says otherwise.

A rate is that of records acknowledged: the clock stops when the last callback was called.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import confluent_kafka
import pyarrow as pa
from aiokafka import AIOKafkaProducer
from kafka import KafkaProducer

from oncelog.client import Producer
from tests.raw import RawConnection

RECORD_BYTES = 100
TOPIC = "produced"
KEYED_PARTITIONS = 100
KEYS = [b"key-%d" % number for number in range(10_000)]
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


def oncelog_bulk_keyed(servers: str, records: int) -> float:
    with Producer({"bootstrap.servers": servers, **QUEUE}) as producer:
        keys = [KEYS[number % len(KEYS)] for number in range(records)]
        values = pa.array([b"x" * RECORD_BYTES] * records, pa.binary())
        table = pa.table({"key": pa.array(keys, pa.binary()), "value": values})
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


def oncelog_keyed(servers: str, records: int) -> float:
    with Producer({"bootstrap.servers": servers, **QUEUE}) as producer:
        return _one_by_one(producer, records, KEYS)


def librdkafka_keyed(servers: str, records: int) -> float:
    return _one_by_one(_librdkafka(servers), records, KEYS)


def _one_by_one(producer: Any, records: int, keys: list[bytes] | None = None) -> float:
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
                if keys is None:
                    producer.produce(TOPIC, value, on_delivery=report)
                else:
                    producer.produce(TOPIC, value, keys[sent % len(keys)], on_delivery=report)
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
    "librdkafka produce": librdkafka_one_by_one,
    "oncelog produce": oncelog_one_by_one,
    "aiokafka send": aiokafka_one_by_one,
    "kafka-python send": kafka_python_one_by_one,
    "librdkafka produce, keys": librdkafka_keyed,
    "oncelog produce, keys": oncelog_keyed,
    "librdkafka produce, no callbacks": librdkafka_without_callbacks,
    "oncelog bulk send": oncelog_bulk,
    "oncelog bulk send, keys": oncelog_bulk_keyed,
}
KEYED = frozenset({"librdkafka produce, keys", "oncelog produce, keys", "oncelog bulk send, keys"})


@contextmanager
def topic(port: int, partitions: int = 1) -> Iterator[None]:
    """Made anew for every row and deleted, so that no row pays for the disk that another has filled."""
    with RawConnection(port, timeout_s=60) as connection:
        connection.create_topic(TOPIC, partitions, patience_s=60)
        try:
            yield
        finally:
            connection.delete_topic(TOPIC)
