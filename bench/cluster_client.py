"""Clients of three brokers. librdkafka sends as much as it can, or so many records a second; raw connections send as
much as the brokers take."""

import struct
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

from confluent_kafka import KafkaError, Message, Producer

from bench.load import RECORD_BYTES, ProduceLoad

FLUSH_S = 60
QUEUED_KB = 32 << 10  # what is left to be acknowledged when the time is over
FULL_S = 0.01
POLL_S = 0.001
_SENT = struct.Struct("<d")


@dataclass(frozen=True, slots=True)
class Shape:
    """What is in one request. `queued`: records in the client at most."""

    record_bytes: int
    records: int
    queued: int


ONE = Shape(100, 1, 2_000)
KB_16 = Shape(1_000, 16, 20_000)
MB_1 = Shape(10_000, 100, 20_000)


@dataclass(frozen=True, slots=True)
class Sent:
    records_per_s: float
    mb_per_s: float
    records: int


class Filling:
    """A producer that always has more to send, to each partition in turn."""

    def __init__(self, servers: str, topic: str, partitions: int, shape: Shape) -> None:
        self._topic, self._partitions, self._shape = topic, partitions, shape
        self._failures: list[KafkaError] = []
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 0 if shape.records == 1 else 5,
                "batch.num.messages": shape.records,
                "batch.size": 1_048_000,
                "message.max.bytes": 1_048_000,
                "queue.buffering.max.messages": shape.queued,
                "queue.buffering.max.kbytes": QUEUED_KB,
                "delivery.report.only.error": True,
                "on_delivery": lambda error, _: self._failures.append(error),
                "log_level": 0,
            }
        )

    def run(self, seconds: float) -> Sent:
        """Until all is acknowledged that was sent in this time."""
        producer, topic, partitions = self._producer, self._topic, self._partitions
        value = b"x" * self._shape.record_bytes
        sent = 0
        started_s = time.perf_counter()
        while time.perf_counter() - started_s < seconds:
            for _ in range(100):
                try:
                    producer.produce(topic, value, partition=sent % partitions)
                except BufferError:
                    producer.poll(FULL_S)
                    break
                sent += 1
            producer.poll(0)
        left = producer.flush(FLUSH_S)
        took_s = time.perf_counter() - started_s
        if self._failures or left:
            raise RuntimeError(f"librdkafka: {left} records left, first failure {self._failures[:1]}")
        return Sent(sent / took_s, sent * len(value) / took_s / 1e6, sent)


class Pumps:
    """A raw connection to the leader of each partition, which costs next to no processor time. librdkafka takes more
    than one core: while it may send no more, it asks its sockets again and again."""

    def __init__(self, ports: Sequence[int], topic: str, records: int, depth: int) -> None:
        self._loads = [ProduceLoad(port, topic, records, partition=index) for index, port in enumerate(ports)]
        self._depth = depth

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._loads:
            each.close()

    def run(self, seconds: float) -> Sent:
        """What was sent to find out how much fills the time is in its records, but not in its rates."""
        before = self._sent_records()
        with ThreadPoolExecutor(len(self._loads)) as threads:
            rates = list(threads.map(lambda each: each.run_for(seconds, self._depth), self._loads))
        per_s = sum(each.records for each in rates) / max(each.seconds for each in rates)
        return Sent(per_s, per_s * RECORD_BYTES / 1e6, self._sent_records() - before)

    def _sent_records(self) -> int:
        return sum(each.sent_records for each in self._loads)


class Trickle:
    """Some records a second to each partition in turn, and when each was acknowledged."""

    def __init__(self, servers: str, topic: str, partitions: int, per_s: float, **more: Any) -> None:
        self._topic, self._partitions, self._per_s = topic, partitions, per_s
        self._producer = Producer(
            {"bootstrap.servers": servers, "enable.idempotence": True, "acks": "all", "log_level": 0, **more}
        )
        self.failures: list[KafkaError] = []
        self.sent = 0
        self.acknowledged: list[tuple[int, float, float]] = []  # partition; when it was sent, and acknowledged
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bench-trickle", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        started_s = time.perf_counter()
        while not self._is_over.is_set():
            due = int((time.perf_counter() - started_s) * self._per_s)
            while self.sent < due:
                value = _SENT.pack(time.perf_counter()) + bytes(92)
                self._producer.produce(
                    self._topic, value, partition=self.sent % self._partitions, on_delivery=self._delivered
                )
                self.sent += 1
            self._producer.poll(POLL_S)
        left = self._producer.flush(FLUSH_S)
        if left:
            self.failures.append(KafkaError(KafkaError._TIMED_OUT, f"{left} records never answered"))

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failures.append(error)
            return
        value = message.value()
        assert value is not None
        (sent_s,) = _SENT.unpack_from(value)
        self.acknowledged.append((message.partition() or 0, sent_s, time.perf_counter()))

    def first_after(self, moment_s: float, patience_s: float) -> float:
        """Seconds from this moment until something that was sent after it was acknowledged."""
        seen = 0
        while time.perf_counter() < moment_s + patience_s:
            known = len(self.acknowledged)
            for _, sent_s, acknowledged_s in self.acknowledged[seen:known]:
                if sent_s >= moment_s:
                    return acknowledged_s - moment_s
            seen = known
            time.sleep(POLL_S)
        raise TimeoutError(f"nothing was acknowledged in {patience_s} s; failures: {self.failures[:1]}")

    def longest_gap_s(self) -> float:
        """Between acknowledgements of one partition."""
        times: dict[int, list[float]] = defaultdict(list)
        for partition, _, acknowledged_s in self.acknowledged:
            times[partition].append(acknowledged_s)
        return max(later - earlier for each in times.values() for earlier, later in pairwise(sorted(each)))

    def latencies_ms(self, after_s: float) -> list[float]:
        """From `produce` to the acknowledgement, of what was sent after that."""
        return [(acknowledged_s - sent_s) * 1e3 for _, sent_s, acknowledged_s in self.acknowledged if sent_s >= after_s]


def first_acknowledgement(servers: str, topic: str) -> None:
    """One record, by a client that is new."""
    found: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 0, "log_level": 0})
    producer.produce(topic, b"x", on_delivery=lambda error, _: found.append(error))
    if producer.flush(FLUSH_S) or found != [None]:
        raise RuntimeError(f"the first record was not acknowledged: {found}")
