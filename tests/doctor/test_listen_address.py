"""Who is at the address where the server would listen."""

import asyncio
import socket
from collections.abc import Iterator

import pytest

from oncelog.doctor import listen_address
from oncelog.doctor.finding import Finding, Verdict
from oncelog.doctor.listen_address import check_listeners
from oncelog.embedded import Server
from oncelog.server.listeners import Listener


def look(host: str, port: int) -> Finding:
    (found,) = asyncio.run(check_listeners([Listener("PLAINTEXT", host, port)]))
    return found


@pytest.fixture
def taken() -> Iterator[socket.socket]:
    """By something that accepts connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


def test_a_free_port_is_free_also_behind_the_look() -> None:
    with socket.create_server(("127.0.0.1", 0)) as before:
        port = before.getsockname()[1]
    for _ in range(2):
        found = look("127.0.0.1", port)
        assert (found.verdict, found.facts["answers"]) == (Verdict.OK, None)


def test_an_oncelog_that_runs_there_is_named() -> None:
    with Server() as server:
        port = int(server.bootstrap_servers.rpartition(":")[2])
        for host in ("127.0.0.1", "", "0.0.0.0"):
            found = look(host, port)
            assert (found.verdict, found.facts["answers"]) == (Verdict.OK, "oncelog")


def test_something_else_that_listens_there_is_missing_a_port(
    taken: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listen_address, "ANSWER_S", 0.05)
    port = taken.getsockname()[1]
    found = look("127.0.0.1", port)
    assert (found.verdict, found.facts["answers"]) == (Verdict.MISSING, "unknown")
    assert f"--listen 127.0.0.1:{port + 1}" in found.remedy


@pytest.mark.parametrize("host", ["192.0.2.1", "nowhere.invalid"])
def test_an_address_that_is_not_of_this_machine_is_told(host: str) -> None:
    found = look(host, 9092)
    assert found.verdict is Verdict.MISSING
    assert "cannot be listened at" in found.words


def test_any_free_port_needs_no_look() -> None:
    assert asyncio.run(check_listeners([Listener("PLAINTEXT", "127.0.0.1", 0)])) == []
