"""What goes into a flow and what comes out of it, as clients see it: so a contestant is measured without its help."""

import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import quantiles
from types import TracebackType
from typing import Any, Self

import confluent_kafka
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bench.flow_contestant import Contestant
from oncelog.client import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

Numbers = np.ndarray[Any, np.dtype[np.int64]]

USERS = 10_000
VALUE_BYTES = 88
MOST_ROWS = 10_000
PATIENCE_S = 150.0
LATENCY_RATE = 1_000
WARM_UP_S = 8.0
TAIL_S = 8.0  # more is sent for so long, so that the late ones count, too


def texts(prefix: bytes, numbers: Any, digits: int, filler: int = 0) -> pa.Array:
    """The numbers in decimal, all equally long, as a column of bytes."""
    width = len(prefix) + digits + filler
    cells = np.full((len(numbers), width), ord("."), np.uint8)
    cells[:, : len(prefix)] = np.frombuffer(prefix, np.uint8)
    for place in range(digits):
        cells[:, len(prefix) + place] = numbers // 10 ** (digits - 1 - place) % 10 + ord("0")
    ends = np.arange(len(numbers) + 1, dtype=np.int32) * width
    return pa.Array.from_buffers(pa.binary(), len(numbers), [None, pa.py_buffer(ends), pa.py_buffer(cells.tobytes())])


def send(servers: str, topic: str, keys: Any, users: Any, times_ms: Any = None) -> None:
    """A record for each, of the present where no times are given."""
    with Producer({"bootstrap.servers": servers, "partitioner": "murmur2"}) as producer:
        for first in range(0, len(keys), 500_000):
            here = slice(first, first + 500_000)
            columns = {
                "key": texts(b"p", keys[here], 7),
                "value": texts(b"", users[here], 8, VALUE_BYTES - 8),
            }
            if times_ms is not None:
                columns["timestamp"] = pa.array(times_ms[here])
            producer.send(topic, pa.table(columns)).result(600)


def views(records: int, keys: int, seed: int = 1) -> tuple[Any, Any]:
    """Keys and users, which begin at 1."""
    numbers = np.random.default_rng(seed)
    return numbers.integers(0, keys, records), numbers.integers(1, USERS, records)


class Outputs:
    """All records of a topic that a `read_committed` reader sees."""

    def __init__(self, servers: str, topic: str, partitions: int, *, keeps: bool = False) -> None:
        self._consumer = Consumer({"bootstrap.servers": servers, "isolation.level": "read_committed"})
        self._places = [TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(partitions)]
        self._keeps = keeps
        self.seen = 0
        self.tables: list[pa.Table] = []

    def __enter__(self) -> Self:
        self._consumer.__enter__()
        self._consumer.assign(self._places)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._consumer.__exit__(kind, error, at)

    def look(self, wait_s: float = 0.02) -> None:
        table = self._consumer.consume_arrow(MOST_ROWS, wait_s)
        self.seen += table.num_rows
        if self._keeps and table.num_rows:
            self.tables.append(table.select(["key", "value"]))

    def until(self, count: int, contestant: Contestant, patience_s: float = PATIENCE_S) -> float:
        """When this many have been seen."""
        give_up_s = time.monotonic() + patience_s
        while self.seen < count:
            self.look()
            if self.seen < count and (not contestant.is_running or time.monotonic() > give_up_s):
                said = contestant.last_words()
                raise RuntimeError(f"{contestant.name}: {self.seen} outputs of {count} in {patience_s:g} s:\n{said}")
        return time.monotonic()

    def until_time(self, until_s: float) -> None:
        while time.monotonic() < until_s:
            self.look()

    def until_quiet(self, quiet_s: float) -> None:
        last, since_s = self.seen, time.monotonic()
        while time.monotonic() - since_s < quiet_s:
            self.look()
            if self.seen != last:
                last, since_s = self.seen, time.monotonic()


@dataclass(frozen=True, slots=True)
class Audit:
    twice: int
    missing: int
    wrong: int


def audit(tables: Sequence[pa.Table], keys: Any) -> Audit:
    """Each key counts from one up to how often it came, once."""
    pairs = pa.concat_tables(tables).group_by(["key", "value"]).aggregate([])
    rows = sum(table.num_rows for table in tables)
    named = pc.utf8_slice_codeunits(pairs["key"].cast(pa.string()), 1)  # behind the p
    of, seen = (column.cast(pa.string()).cast(pa.int64()).to_numpy() for column in (named, pairs["value"]))
    due = np.bincount(keys, minlength=int(of.max(initial=0)) + 1)
    right = int(np.sum(seen <= due[of]))
    return Audit(twice=rows - len(pairs), missing=len(keys) - right, wrong=len(pairs) - right)


@dataclass
class Latency:
    """1,000 records a second; a record's time ends when its count is read. By librdkafka on both sides."""

    servers: str
    source: str
    out: str
    keys: int
    partitions: int
    _sent: dict[tuple[bytes | None, bytes | None], float] = field(default_factory=dict)
    _over: threading.Event = field(default_factory=threading.Event)

    def measure(self, contestant: Contestant, seconds: float) -> list[float]:
        sender = threading.Thread(target=self._send, daemon=True)
        sender.start()
        try:
            return self._read(contestant, seconds)
        finally:
            self._over.set()
            sender.join(15)

    def _send(self) -> None:
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": self.servers, "linger.ms": 1, "partitioner": "murmur2_random"}
        )
        counts: dict[bytes, int] = {}
        chance, sent, began_s = random.Random(2), 0, time.monotonic()
        while not self._over.is_set():
            for _ in range(int((time.monotonic() - began_s) * LATENCY_RATE) - sent):
                key = b"p%07d" % chance.randrange(self.keys)
                counts[key] = counts.get(key, 0) + 1
                self._sent[key, b"%d" % counts[key]] = time.monotonic()
                producer.produce(self.source, b"%08d" % chance.randrange(1, USERS) + b"." * (VALUE_BYTES - 8), key)
                sent += 1
            producer.poll(0)
            time.sleep(0.002)
        producer.flush(10)

    def _read(self, contestant: Contestant, seconds: float) -> list[float]:
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": self.servers, "group.id": "bench", "isolation.level": "read_committed"}
        )
        consumer.assign([confluent_kafka.TopicPartition(self.out, index, 0) for index in range(self.partitions)])
        taken: list[float] = []
        began_s: float | None = None  # the first output came
        give_up_s = time.monotonic() + PATIENCE_S
        try:
            while began_s is None or time.monotonic() < began_s + WARM_UP_S + seconds + TAIL_S:
                if not contestant.is_running or time.monotonic() > give_up_s:
                    raise RuntimeError(f"{contestant.name} wrote {len(taken)}:\n{contestant.last_words()}")
                for message in consumer.consume(500, 0.01):
                    now_s = time.monotonic()
                    began_s = began_s or now_s
                    sent_s = self._sent.get((message.key(), message.value()))
                    if sent_s is not None and 0 <= sent_s - began_s - WARM_UP_S < seconds:
                        taken.append(now_s - sent_s)
        finally:
            consumer.close()
        return taken


def percentiles_ms(taken: list[float]) -> dict[str, float]:
    cuts = quantiles(taken, n=100)
    return {"p50_ms": cuts[49] * 1000, "p99_ms": cuts[98] * 1000, "most_ms": max(taken) * 1000}
