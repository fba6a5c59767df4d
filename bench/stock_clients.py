"""Figures of clients that people use: librdkafka, and the Java client by Kafka's own perf tools."""

import re
import subprocess
import time
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from tests.peers.jars import kafka_java

TOOL_HEAP = ("-Xmx512m", "-XX:+UseG1GC")
TOOL_SECONDS = 300


@dataclass(frozen=True, slots=True)
class Shape:
    """What the issue calls small and large batches, in each client's words."""

    batch_bytes: int
    linger_ms: int


SMALL = Shape(16_384, 0)
LARGE = Shape(900_000, 20)


def librdkafka_produce(servers: str, topic: str, shape: Shape, seconds: float) -> float:
    """Records of 100 bytes a second, all acknowledged."""
    failures: list[KafkaError] = []

    def report(error: KafkaError | None, _: object) -> None:
        if error is not None:
            failures.append(error)

    producer = Producer(
        {
            "bootstrap.servers": servers,
            "enable.idempotence": True,
            "batch.size": shape.batch_bytes,
            "linger.ms": shape.linger_ms,
            "queue.buffering.max.messages": 1_000_000,
            "on_delivery": report,
        }
    )
    value = b"x" * 100
    producer.produce(topic, value)
    producer.flush(30)
    sent = 0
    started = time.perf_counter()
    while time.perf_counter() - started < seconds:
        for _ in range(2000):
            try:
                producer.produce(topic, value)
            except BufferError:
                producer.poll(0.05)
                continue
            sent += 1
        producer.poll(0)
    left = producer.flush(60)
    elapsed = time.perf_counter() - started
    if failures or left:
        raise RuntimeError(f"librdkafka: {left} messages left, first failure {failures[:1]}")
    return sent / elapsed


def librdkafka_consume(servers: str, topic: str, records: int) -> float:
    """Records a second, from the start of partition 0."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "bench",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.message.max.bytes": 1 << 20,
            # By default it sits out a whole second whenever its queue is full, which says nothing about the server.
            "fetch.queue.backoff.ms": 1,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    got = 0
    try:
        while not got:
            got += len(consumer.consume(1, 10))
        started = time.perf_counter()
        while got < records:
            got += len(consumer.consume(20_000, 10))
        return got / (time.perf_counter() - started)
    finally:
        consumer.close()


def java_produce(servers: str, topic: str, records: int, shape: Shape, *, per_s: int = -1) -> dict[str, float]:
    """Records a second and latencies of org.apache.kafka.tools.ProducerPerformance, idempotent, acks=all."""
    properties = [
        f"bootstrap.servers={servers}",
        "acks=all",
        "enable.idempotence=true",
        f"batch.size={shape.batch_bytes}",
        f"linger.ms={shape.linger_ms}",
    ]
    order = ["org.apache.kafka.tools.ProducerPerformance", "--topic", topic, "--record-size", "100"]
    order += ["--num-records", str(records), "--throughput", str(per_s), "--producer-props", *properties]
    said = run_tool(order)
    total = said.strip().splitlines()[-1]
    rate = re.search(r"([\d.]+) records/sec", total)
    average = re.search(r"([\d.]+) ms avg latency", total)
    p99 = re.search(r"(\d+) ms 99th", total)
    if rate is None or average is None or p99 is None:
        raise RuntimeError(f"ProducerPerformance said: {said[-800:]}")
    return {"records_per_s": float(rate[1]), "average_ms": float(average[1]), "p99_ms": float(p99[1])}


def java_consume(servers: str, topic: str, records: int) -> float:
    order = ["org.apache.kafka.tools.ConsumerPerformance", "--bootstrap-server", servers, "--topic", topic]
    order += ["--num-records", str(records), "--timeout", "60000"]
    said = run_tool(order)
    columns = said.strip().splitlines()[-1].split(",")
    return float(columns[-1])  # the rate of fetching alone, without the time to join the group


def run_tool(order: list[str]) -> str:
    command = kafka_java(*order, jvm=TOOL_HEAP)
    done = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_SECONDS, check=False)
    if done.returncode:
        raise RuntimeError(f"{order[0]} failed: {(done.stdout + done.stderr)[-1500:]}")
    return done.stdout
