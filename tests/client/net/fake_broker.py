"""A broker that says what a test wants, on the test's own loop.

An answer is a dictionary of the response's fields (`tests.raw.entities.make`), bytes that are sent as they are, or one
of SILENT (say nothing) and CLOSE (end the connection).
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from io import BytesIO
from typing import Any, NamedTuple, Self

from kio.schema.index import api_key_map
from kio.serial import entity_reader, entity_writer

from oncelog.client.properties import AdminSettings, admin_settings
from oncelog.wire.own import LEASE_PID_KEY
from oncelog.wire.requests import known_versions
from tests.raw.entities import make, message

SILENT = object()
CLOSE = object()
PATIENCE_S = 20
MOST_FRAME_BYTES = 100 << 20

Answer = Any
Answers = Callable[["Asked"], Answer | Awaitable[Answer]]
SPOKEN = {0: (7, 13), 1: (10, 16), 3: (0, 13), 10: (0, 6), 17: (0, 1), 18: (0, 4), 22: (0, 4), 36: (0, 2)}


class Asked(NamedTuple):
    name: str
    version: int
    request: Any
    correlation_id: int
    writer: asyncio.StreamWriter


class FakeBroker:
    def __init__(self, node_id: int = 0, *, tls: ssl.SSLContext | None = None) -> None:
        self.node_id = node_id
        self.host, self.port = "127.0.0.1", 0
        self.versions = dict(SPOKEN)
        self.answers: dict[str, Answers] = {"api_versions": self._api_versions, "metadata": self._metadata}
        self.neighbours: list[FakeBroker] = [self]
        self.asked: list[Asked] = []
        self.writers: list[asyncio.StreamWriter] = []
        self.connected_count = 0
        self._news = asyncio.Condition()
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self, port: int = 0) -> None:
        self._server = await asyncio.start_server(self._serve, self.host, port, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        self.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """End every connection."""
        for writer in self.writers:
            writer.transport.abort()
        self.writers = []

    def settings(self, **more: Any) -> AdminSettings:
        given = {"bootstrap.servers": f"{self.host}:{self.port}", **dotted(more)}
        return admin_settings(given)

    def asked_for(self, name: str) -> list[Asked]:
        return [each for each in self.asked if each.name == name]

    async def until(self, what: Callable[[], bool]) -> None:
        """Until this is true; looked at whenever something was asked, or a connection came or went."""
        async with asyncio.timeout(PATIENCE_S), self._news:
            await self._news.wait_for(what)

    # --- what it says by itself

    def _api_versions(self, asked: Asked) -> Answer:
        keys = [{"api_key": key, "min_version": low, "max_version": high} for key, (low, high) in self.versions.items()]
        return {"api_keys": keys}

    def _metadata(self, asked: Asked) -> Answer:
        return self.metadata_of([topic.name for topic in asked.request.topics or ()])

    def metadata_of(self, names: list[str], **changes: Any) -> Answer:
        partition = {"leader_id": self.node_id, "leader_epoch": 1, "replica_nodes": [0], "isr_nodes": [0]}
        topics = [{"name": name, "partitions": [partition]} for name in names]
        brokers = [{"node_id": each.node_id, "host": each.host, "port": each.port} for each in self.neighbours]
        return {"brokers": brokers, "cluster_id": "fake", "controller_id": self.node_id, "topics": topics, **changes}

    # --- its connections

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.writers.append(writer)
        self.connected_count += 1
        try:
            await self._tell()
            while await self._answer_one(reader, writer):
                pass
        except (OSError, EOFError):
            pass
        finally:
            writer.transport.abort()
            if writer in self.writers:
                self.writers.remove(writer)
            self._tasks.discard(task)
            await self._tell()

    async def _tell(self) -> None:
        async with self._news:
            self._news.notify_all()

    async def _answer_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        size = int.from_bytes(await reader.readexactly(4), "big")
        if size > MOST_FRAME_BYTES:  # as Kafka does, for example to TLS on a plaintext listener
            return False
        asked = read_request(await reader.readexactly(size), writer)
        self.asked.append(asked)
        await self._tell()
        answer = self.answers[asked.name](asked)
        if isinstance(answer, Awaitable):
            answer = await answer
        if answer is CLOSE:
            return False
        if answer is not SILENT:
            writer.write(answer if isinstance(answer, bytes) else frame_of(asked, answer))
        return True


def read_request(data: bytes, writer: asyncio.StreamWriter) -> Asked:
    key, version = int.from_bytes(data[:2], "big"), int.from_bytes(data[2:4], "big")
    name = "lease_pid" if key == LEASE_PID_KEY else api_key_map[key]
    kind = message(name, version)
    header, at = entity_reader(kind.request.__header_schema__)(data, 0)
    request, _ = entity_reader(kind.request)(data, at)
    return Asked(name, version, request, int(header.correlation_id), writer)


def frame_of(asked: Asked, fields: dict[str, Any], *, version: int | None = None) -> bytes:
    """The whole frame of an answer, its length included."""
    response = message(asked.name, asked.version if version is None else version).response
    out = BytesIO()
    header = response.__header_schema__
    entity_writer(header)(out, header(correlation_id=asked.correlation_id))
    entity_writer(response)(out, make(response, known_only(response, fields)))
    return len(out.getvalue()).to_bytes(4, "big") + out.getvalue()


def known_only(response: Any, fields: dict[str, Any]) -> dict[str, Any]:
    """What this version has of them; one that no version has is a slip of the test."""
    newest = message(response.__module__.split(".")[2], known_versions(response.__module__.split(".")[2])[1]).response
    slips = fields.keys() - newest.__dataclass_fields__.keys() - response.__dataclass_fields__.keys()
    assert not slips, f"{response.__name__} has no {slips}"
    return {name: value for name, value in fields.items() if name in response.__dataclass_fields__}


def dotted(given: dict[str, Any]) -> dict[str, Any]:
    """Properties by their names in Python; callbacks are called that by librdkafka's clients, too."""
    return {name if name.endswith("_cb") else name.replace("_", "."): value for name, value in given.items()}
