"""Nobody fills the log: a scraper that is gone before it is answered is nothing to log, and guesses are a few lines."""

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import uvloop

from oncelog.clock import ManualClock
from oncelog.metrics.http import BAD_REQUEST, MAX_OPEN, MetricsServer, Refused, Text
from oncelog.server.connections import LINES_PER_SECOND, LineLimit
from tests.client.net.certificates import Authority
from tests.logged import messages
from tests.server.test_metrics_port import SIGNS_IN, ask, basic, scraped, with_users
from tests.server.tls_support import keystore

GUESSES = 2 * LINES_PER_SECOND
ASKED = b"GET /metrics HTTP/1.1\r\n\r\n"
RESET = (1).to_bytes(4, "little") + bytes(4)  # of SO_LINGER: a close is a reset


class Gone:
    """Tells when the server has noticed that a client is gone."""

    def __init__(self) -> None:
        self.event = asyncio.Event()

    def enter(self, connection: asyncio.Protocol) -> asyncio.BaseProtocol:
        lost: Callable[[Exception | None], None] = connection.connection_lost

        def notice(error: Exception | None) -> None:
            lost(error)
            self.event.set()

        setattr(connection, "connection_lost", notice)  # noqa: B010
        return connection


async def knocked(port: int, sent: bytes) -> socket.socket:
    sock = socket.socket()
    sock.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(sock, ("127.0.0.1", port))
    await loop.sock_sendall(sock, sent)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    return sock


@pytest.mark.parametrize("is_let_in", [True, False])
def test_while_it_is_looked_at_who_it_is(caplog: pytest.LogCaptureFixture, is_let_in: bool) -> None:
    uvloop.run(hang_up_meanwhile(is_let_in))
    assert messages(caplog, "oncelog.metrics", "asyncio") == []


async def hang_up_meanwhile(is_let_in: bool) -> None:
    is_asked, gone = asyncio.Event(), Gone()

    async def late(host: str, authorization: str | None) -> Text:
        is_asked.set()
        await gone.event.wait()
        if not is_let_in:
            raise Refused(BAD_REQUEST)
        return lambda: iter(("text\n",))

    server = MetricsServer(lambda: (), admit=late, enter=gone.enter)
    sock = await knocked(await server.start("127.0.0.1", 0), ASKED)
    await is_asked.wait()
    sock.close()
    await gone.event.wait()
    await server.stop()


async def test_who_is_told_late_that_they_are_not_let_in_is_not_waited_for_at_the_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    is_asked = asyncio.Event()

    async def late(host: str, authorization: str | None) -> Text:
        is_asked.set()
        await asyncio.Event().wait()
        return lambda: ()

    server = MetricsServer(lambda: (), timeout_s=3_600, admit=late)
    reader, writer = await asyncio.open_connection("127.0.0.1", await server.start("127.0.0.1", 0))
    writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
    await is_asked.wait()
    async with asyncio.timeout(60):
        await server.stop()
    with suppress(ConnectionError):
        assert await reader.read() == b""
    writer.close()
    assert messages(caplog, "oncelog.metrics", "asyncio") == []


def test_to_make_room_for_others(caplog: pytest.LogCaptureFixture) -> None:
    uvloop.run(make_room())
    assert messages(caplog, "oncelog.metrics", "asyncio") == []


async def make_room() -> None:
    gone = Gone()
    server = MetricsServer(lambda: (), enter=gone.enter)
    port = await server.start("127.0.0.1", 0)
    silent = [await knocked(port, b"GET") for _ in range(MAX_OPEN + 1)]
    await gone.event.wait()
    await server.stop()
    for each in silent:
        each.close()


def test_in_the_middle_of_a_request_by_tls(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    authority = Authority(tmp_path)
    settings = {"ssl.keystore.location": keystore(authority.signs("server")), "oncelog.metrics.tls": "always"}
    with scraped({**SIGNS_IN, **settings}) as server:
        with_users(server, "alice")
        context = ssl.create_default_context(cafile=authority.certificate)
        plain = socket.create_connection(("127.0.0.1", server.service.metrics_port or 0), 30)
        with context.wrap_socket(plain, server_hostname="127.0.0.1") as sock:
            sock.sendall(ASKED[:-2])
            sock.shutdown(socket.SHUT_WR)  # without TLS's goodbye
            with suppress(ConnectionError):
                while sock.recv(1 << 16):
                    pass  # until the server lets go, too
        assert ask(server, basic("alice"), context)[0] == 200
    assert "could not be told" not in caplog.text


def test_guesses_are_a_few_lines(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oncelog.server.web_proofs.LineLimit", lambda _: LineLimit(ManualClock()))
    with scraped({**SIGNS_IN, "oncelog.max.failed.authentications.per.minute": "0"}) as server:
        with_users(server, "alice")
        for _ in range(GUESSES):
            assert ask(server, basic("alice", "a guess"))[0] == 401
    assert caplog.text.count("did not prove to /metrics") == LINES_PER_SECOND
