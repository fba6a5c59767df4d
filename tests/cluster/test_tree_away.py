"""What a broker does, and says, while ZooKeeper is away for long."""

import asyncio
import logging
import struct
from collections.abc import Callable

import pytest
from kazoo.client import KazooState
from kazoo.retry import ForceRetryError, KazooRetry

from oncelog.clock import BoottimeClock
from oncelog.cluster.tree_zookeeper import AGAIN_S, CONNECTED, MOST_SAID, RETRY, ZooKeeperTree, kazoo_logger
from tests.logged import messages

TRIES = 2_000
TIMEOUT_MS = 60_000


class BackAgain(Exception):
    pass


def test_it_tries_again_at_an_even_pace() -> None:
    """Kazoo's own pauses are multiplied by chance each time, and come to next to nothing."""
    pauses: list[float] = []

    def connect() -> None:
        raise BackAgain if len(pauses) == TRIES else ForceRetryError

    with pytest.raises(BackAgain):
        KazooRetry(**RETRY, sleep_func=pauses.append)(connect)
    assert set(pauses) == {AGAIN_S}


def test_each_thing_about_it_is_said_once_until_there_is_a_connection(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    for _ in range(2):
        for _ in range(10):
            for host in ("zoo1", "zoo2"):
                kazoo_logger.info("Connecting to %s", host)
                kazoo_logger.warning("Connection dropped: Connection refused")
        kazoo_logger.info("Zookeeper connection established, state: CONNECTED")
    once = ["Connecting to zoo1", "Connection dropped: Connection refused", "Connecting to zoo2"]
    assert messages(caplog, "oncelog.cluster") == [*once, "Zookeeper connection established, state: CONNECTED"] * 2
    for number in range(3 * MOST_SAID):
        kazoo_logger.info("%d", number)
    assert len(messages(caplog, "oncelog.cluster")) == 8 + 3 * MOST_SAID, "what is remembered has a bound"


class Answer:
    exception = None

    def __init__(self, value: object, then: Callable[[], None]) -> None:
        self.value = value
        self._then = then

    def rawlink(self, link: Callable[["Answer"], None]) -> None:
        link(self)
        self._then()


class Client:
    """The first one loses its session with the answer to the last folder that it makes."""

    def __init__(self, made: list["Client"]) -> None:
        made.append(self)
        self.client_id = len(made), b""

    def add_listener(self, told: Callable[[str], None]) -> None:
        self._told = told

    def start_async(self) -> None:
        self._told(KazooState.CONNECTED)

    def create_async(self, path: str) -> Answer:
        is_last = path.endswith("/topics") and self.client_id[0] == 1
        return Answer(path, lambda: self._told(KazooState.LOST) if is_last else None)

    def exists_async(self, path: str, watch: object = None) -> Answer:
        return Answer(None, lambda: None)

    def get_children_async(self, path: str, watch: object = None) -> Answer:
        return Answer([], lambda: None)

    def stop(self) -> None: ...

    def close(self) -> None: ...


async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    (size_bytes,) = struct.unpack(">i", await reader.readexactly(4))
    await reader.readexactly(size_bytes)
    greeting = CONNECTED.pack(0, TIMEOUT_MS, 1)
    writer.write(struct.pack(">i", len(greeting)) + greeting)
    await reader.read()
    writer.close()


async def test_a_session_that_is_over_as_it_begins_is_begun_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Client] = []
    monkeypatch.setattr("oncelog.cluster.tree_zookeeper.KazooClient", lambda **options: Client(made))
    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    hosts = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    tree = ZooKeeperTree(hosts, "/tests", BoottimeClock(), session_timeout_ms=TIMEOUT_MS)
    async with asyncio.timeout(30):
        await tree.begin_session()
    assert (tree.is_connected, len(made)) == (True, 2)
    await tree.close()
    server.close()
    await server.wait_closed()
