"""What a producer needs beside time for each record: to be resumed, and memory while it sends as fast as it can."""

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import confluent_kafka

from oncelog.client import Producer

RESUMED_PARTITIONS = 100
QUEUE_MB = 64
SENT_MB = 512
RECORD_BYTES = 1000
ROOT = Path(__file__).parents[1]


def resume_ms(servers: str, topic: str) -> float:
    """A producer that has written to every partition is saved; another one starts from that, until it may send."""
    with Producer({"bootstrap.servers": servers, "linger.ms": 0}) as producer:
        producer.pin(topic)
        producer.saved()
        for partition in range(RESUMED_PARTITIONS):
            producer.produce(topic, b"x", partition=partition)
        value = producer.saved()
    started = time.perf_counter()
    with Producer({"bootstrap.servers": servers}, saved=value):
        return (time.perf_counter() - started) * 1000


def oncelog_memory_mb(servers: str, topic: str) -> float:
    return _grown_mb("oncelog", servers, topic)


def librdkafka_memory_mb(servers: str, topic: str) -> float:
    return _grown_mb("librdkafka", servers, topic)


def _grown_mb(whose: str, servers: str, topic: str) -> float:
    """In a process of its own, whose largest size says it."""
    command = [sys.executable, "-m", "bench.client_lives", whose, servers, topic]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=300)
    return float(done.stdout)


def _send_as_fast_as_possible(producer: Any, topic: str) -> None:
    value = b"x" * RECORD_BYTES
    for number in range(SENT_MB * 1_000_000 // RECORD_BYTES):
        while True:
            try:
                producer.produce(topic, value[:500] + b"%500d" % number)
                break
            except BufferError:
                producer.poll(0.01)
    if producer.flush(120):
        raise RuntimeError("not everything was delivered")


def main(whose: str, servers: str, topic: str) -> None:
    properties: dict[str, Any] = {
        "bootstrap.servers": servers,
        "enable.idempotence": True,
        "queue.buffering.max.kbytes": QUEUE_MB * 1024,
        "queue.buffering.max.messages": 10_000_000,
    }
    producer: Any = Producer(properties) if whose == "oncelog" else confluent_kafka.Producer(properties)
    for _ in range(3000):  # loads what is compiled, which is no matter of records
        producer.produce(topic, b"x")
    producer.flush(60)
    time.sleep(2 if whose == "oncelog" else 0)
    before_mb = _largest_mb()
    _send_as_fast_as_possible(producer, topic)
    print(_largest_mb() - before_mb)


def _largest_mb() -> float:
    """Of this process alone: what getrusage says is inherited from the one that started it."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024 / 1e6


if __name__ == "__main__":
    main(*sys.argv[1:])
