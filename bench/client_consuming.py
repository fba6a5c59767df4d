"""Consumers side by side: each takes all records of 100 bytes of one partition, and looks at every value where it gets
records one by one.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Any

import confluent_kafka
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as PythonPartition

from oncelog.client import Consumer, TopicPartition

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


def aiokafka_getone(servers: str, topic: str, records: int) -> float:
    async def run() -> float:
        consumer = AIOKafkaConsumer(bootstrap_servers=servers, enable_auto_commit=False, auto_offset_reset="earliest")
        await consumer.start()
        try:
            consumer.assign([AioPartition(topic, 0)])
            await consumer.getone()
            wanted = records // SLOW_SHARE
            started = time.perf_counter()
            for _ in range(wanted):
                await consumer.getone()
            return wanted / (time.perf_counter() - started)
        finally:
            await consumer.stop()

    return asyncio.run(run())


def kafka_python_poll(servers: str, topic: str, records: int) -> float:
    consumer = KafkaConsumer(bootstrap_servers=servers, enable_auto_commit=False, auto_offset_reset="earliest")
    try:
        consumer.assign([PythonPartition(topic, 0)])
        next(consumer)
        got = 0
        started = time.perf_counter()
        while got < records // SLOW_SHARE:
            got += len(consumer.poll(int(PATIENCE_S * 1000), max_records=1))
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
    "aiokafka getone": aiokafka_getone,
    "kafka-python poll": kafka_python_poll,
}
