"""The server of a run, and the topics that its rows read: filled once, by our own bulk producer."""

import itertools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np
import pyarrow as pa

from bench.process import cpu_seconds
from oncelog.client import Consumer, Producer, TopicPartition
from oncelog.embedded import Server
from tests.peers.apache import ApacheKafka
from tests.peers.oncelog_process import OncelogProcess
from tests.raw import RawConnection

PARTITIONS = 4
CHUNK_BYTES = 64 << 20
# Deleted topics give their disk space back at once; all else is a broker's default.
KAFKA_SETTINGS = {"log.segment.delete.delay.ms": "1000", "log.initial.task.delay.ms": "1000"}


@dataclass(frozen=True, slots=True)
class Shape:
    """What a filled topic holds."""

    records: int
    value_bytes: int
    partitions: int = PARTITIONS
    has_keys: bool = False  # a key of 16 bytes and two headers

    @property
    def name(self) -> str:
        keyed = "-keyed" if self.has_keys else ""
        return f"filled-{self.records}x{self.value_bytes}-{self.partitions}{keyed}"


class Running(Protocol):
    """A server, whichever it is."""

    @property
    def bootstrap_servers(self) -> str: ...


class World:
    def __init__(self, folder: Path, server: str) -> None:
        self.folder = folder
        self.kind = server
        self._numbers = itertools.count()
        self._filled: set[str] = set()
        self._server: ApacheKafka | OncelogProcess | Server
        if server == "kafka":
            self._server = ApacheKafka(folder / "kafka", settings=KAFKA_SETTINGS)
        elif server == "oncelog":
            self._server = OncelogProcess(folder / "oncelog")
        else:
            self._server = Server(data_dir=str(folder / "embedded"))

    def __enter__(self) -> Self:
        self._server.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.__exit__(kind, error, at)

    @property
    def servers(self) -> str:
        return self._server.bootstrap_servers

    @property
    def port(self) -> int:
        return int(self.servers.rpartition(":")[2])

    def kill_server(self) -> bool:
        """kill -9, and it is started again over what it left; False where it is not a process of ours."""
        if not isinstance(self._server, OncelogProcess):
            return False
        self._server.kill()
        self._server.start()
        return True

    def server_cpu_s(self) -> float:
        """Of the server's process; not to be told apart from the bench's own where it is embedded."""
        return cpu_seconds(self._server.pid) if isinstance(self._server, ApacheKafka | OncelogProcess) else 0.0

    def new_name(self, kind: str) -> str:
        return f"{kind}-{next(self._numbers)}"

    @contextmanager
    def topic(self, partitions: int = PARTITIONS) -> Iterator[str]:
        """A new one to write to, deleted afterwards."""
        name = self.new_name("out")
        with RawConnection(self.port, timeout_s=60) as connection:
            connection.create_topic(name, partitions, patience_s=60)
        try:
            yield name
        finally:
            self.delete(name)

    def delete(self, name: str) -> None:
        with RawConnection(self.port, timeout_s=60) as connection:
            connection.delete_topic(name)
        self._filled.discard(name)

    def filled(self, shape: Shape) -> str:
        """The topic's name."""
        if shape.name not in self._filled:
            with RawConnection(self.port, timeout_s=60) as connection:
                connection.create_topic(shape.name, shape.partitions, patience_s=60)
            fill(self.servers, shape)
            self._filled.add(shape.name)
        return shape.name

    def end_offsets(self, topic: str) -> dict[str, int]:
        with Consumer({"bootstrap.servers": self.servers}) as consumer:
            count = len(consumer.list_topics(topic).topics[topic].partitions)
            marks = [consumer.get_watermark_offsets(TopicPartition(topic, at)) for at in range(count)]
        return {str(at): mark[1] for at, mark in enumerate(marks) if mark is not None}

    def source_options(self, topic: str, **more: Any) -> dict[str, str]:
        """The same for Spark's connector and for ours."""
        named = {key.replace("_", "."): str(value) for key, value in more.items()}
        return {"kafka.bootstrap.servers": self.servers, "subscribe": topic, "startingOffsets": "earliest", **named}


def values(records: int, value_bytes: int, seed: int) -> pa.Array:
    """Bytes that no two records share."""
    data = np.random.default_rng(seed).integers(32, 127, records * value_bytes, np.uint8)
    ends = np.arange(records + 1, dtype=np.int32) * value_bytes
    return pa.Array.from_buffers(pa.binary(), records, [None, pa.py_buffer(ends), pa.py_buffer(data)])


def fill(servers: str, shape: Shape) -> None:
    each = max(1, min(shape.records, CHUNK_BYTES // shape.value_bytes))
    with Producer({"bootstrap.servers": servers}) as producer:
        sent = 0
        for number in itertools.count():
            count = min(each, shape.records - sent)
            if not count:
                break
            columns: dict[str, Any] = {
                "value": values(count, shape.value_bytes, number),
                "partition": pa.array((np.arange(sent, sent + count) % shape.partitions).astype(np.int32)),
            }
            if shape.has_keys:
                columns["key"] = values(count, 16, number + 1_000_000)
                columns["headers"] = _headers(count)
            producer.send(shape.name, pa.table(columns)).result(600)
            sent += count


def _headers(count: int) -> pa.Array:
    entries = pa.array([{"key": "trace", "value": b"0123456789abcdef"}, {"key": "kind", "value": b"order"}])
    repeated = pa.concat_arrays([entries]).take(pa.array(np.arange(2 * count) % 2))
    return pa.ListArray.from_arrays(pa.array(np.arange(count + 1, dtype=np.int32) * 2), repeated)


def ending_offsets(topic: str, ends: dict[str, int]) -> str:
    return json.dumps({topic: ends})
