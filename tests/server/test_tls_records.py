"""Records of TLS as no library sends them: very small ones, and new keys again and again."""

import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oncelog.embedded import Server
from oncelog.server.receiver import HELD_BYTES, LEAST_RECEIVED_BYTES
from oncelog.server.tls_transport import NEW_KEYS, TlsTransport
from oncelog.server.turns import Turns
from tests.raw import RawConnection, batch
from tests.raw.topics import new_topic
from tests.server.sasl_support import framed
from tests.server.tls_keys import KeysByHand
from tests.server.tls_support import World, address, new_world
from tests.waiting import until


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return new_world(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def server(world: World) -> Iterator[Server]:
    with world.serve() as server:
        yield server


@pytest.fixture
def raw(world: World, server: Server) -> Iterator[RawConnection]:
    with RawConnection(server.bootstrap_servers, tls=world.context()) as raw:
        yield raw


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("offers_tickets", [True, False])
def test_nothing_is_kept_of_who_has_said_goodbye(
    version: ssl.TLSVersion, offers_tickets: bool, world: World, server: Server
) -> None:
    """With a client's certificates a session may take as much as all the rest of a connection."""
    context = world.context(world.client)
    context.maximum_version = version
    context.options |= 0 if offers_tickets else ssl.OP_NO_TICKET
    (tls,) = server.broker.tls.values()
    for _ in range(3):
        with RawConnection(server.bootstrap_servers, tls=context) as raw, contextlib.suppress(ssl.SSLError):
            assert isinstance(raw.socket, ssl.SSLSocket)
            assert raw.call("api_versions", 2).error_code == 0 and not raw.socket.session_reused
            raw.socket.unwrap()
    until(lambda: not tls.context.session_stats()["number"], "all sessions to be forgotten")


@pytest.mark.parametrize("asks", [True, False])
def test_new_keys_count(asks: bool, tmp_path: Path, world: World, server: Server) -> None:
    client = KeysByHand(address(server), world.context(), tmp_path / "secrets")
    for number in range(3):
        client.socket.sendall(client.new_keys(asks=asks) + client.record(framed("api_versions", 0, number)))
        size, correlation_id = struct.unpack(">ii", client.receive(8))
        assert correlation_id == number
        client.receive(size - 4)
    client.socket.close()


@pytest.mark.parametrize("asks", [True, False])
def test_who_asks_for_them_again_and_again_is_closed(
    asks: bool, tmp_path: Path, world: World, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """Each takes as long as a small request, before anybody has proven who it is."""
    client = KeysByHand(address(server), world.context(), tmp_path / "secrets")
    many = b"".join(client.new_keys(asks=asks) for _ in range(2000))
    with contextlib.suppress(OSError):
        client.socket.sendall(many + client.record(framed("api_versions", 0, 1)))
        assert client.receive(8) == b""
    client.socket.close()
    until(lambda: NEW_KEYS in caplog.text, "it to be closed")


def test_their_answers_do_not_pile_up(
    tmp_path: Path, world: World, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where there is a byte of something else now and then."""
    client = KeysByHand(address(server), world.context(), tmp_path / "secrets")
    sent = [client.record(struct.pack(">i", 30_000))]  # a large request that goes on and on
    for _ in range(6):
        sent += [client.new_keys(asks=True) for _ in range(500)]
        sent.append(client.record(b"x"))
    with contextlib.suppress(OSError):
        client.socket.sendall(b"".join(sent))
        client.receive(1)
    client.socket.close()
    until(lambda: NEW_KEYS in caplog.text, "it to be closed")


@pytest.mark.parametrize("record_bytes", [1, 3, 100, 1 << 14])
def test_large_requests_come_in_records_of_any_size(
    record_bytes: int, tmp_path: Path, world: World, server: Server, raw: RawConnection
) -> None:
    client = KeysByHand(address(server), world.context(), tmp_path / "secrets")
    produced = {"name": new_topic(raw), "partition_data": [{"index": 0, "records": batch([b"x" * 300_000])}]}
    frame = framed("produce", 9, 1, transactional_id=None, acks=-1, timeout=1000, topic_data=[produced])
    pieces = (frame[at : at + record_bytes] for at in range(0, len(frame), record_bytes))
    client.socket.sendall(b"".join(map(client.record, pieces)))
    assert struct.unpack(">ii", client.receive(8))[1] == 1
    client.socket.close()


def test_of_many_connections_each_takes_its_turn_with_what_may_be_many_records(
    world: World, server: Server, raw: RawConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(raw)
    waits: list[object] = []
    wait = Turns.wait

    def noted(self: Turns, callback: Any) -> None:
        waits.append(getattr(callback, "__self__", None))
        wait(self, callback)

    monkeypatch.setattr(Turns, "is_over", lambda self: True)
    monkeypatch.setattr(Turns, "wait", noted)
    for size, takes_turn in ((10, False), (2_000, True), (10, False)):
        waits.clear()
        assert raw.produce(topic, 0, batch([b"x" * size])).error_code.name == "none"
        assert any(isinstance(each, TlsTransport) for each in waits) is takes_turn


def test_what_is_kept_until_it_may_be_read_is_counted(
    world: World, server: Server, raw: RawConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that waits for a Fetch sends much more behind it."""
    received, get_buffer = list[int](), TlsTransport.get_buffer

    def noted(self: TlsTransport, sizehint: int) -> memoryview:
        buffer = get_buffer(self, sizehint)
        received.append(len(buffer))
        return buffer

    monkeypatch.setattr(TlsTransport, "get_buffer", noted)
    topics = [{"topic": new_topic(raw), "partitions": [{"partition": 0, "partition_max_bytes": 1000}]}]
    with RawConnection(server.bootstrap_servers, tls=world.context()) as client:
        client.ask("fetch", 11, max_wait=60_000, min_bytes=1, max_bytes=1000, topics=topics)
        until(lambda: server.call(lambda: server.broker.looks.awaited) == 1, "it to wait")
        (held,) = (each for each in server.service.connections.each() if each.is_waiting)
        received.clear()
        assert server.call(lambda: held.kept_bytes) == 0
        is_held_up, go_on = threading.Event(), threading.Event()

        def hold_up() -> None:
            is_held_up.set()
            go_on.wait(30)

        held_up = threading.Thread(target=server.call, args=(hold_up,))
        held_up.start()  # so that what is sent meanwhile is read at once
        assert is_held_up.wait(30)
        client.socket.setblocking(False)
        with contextlib.suppress(ssl.SSLWantWriteError):
            for _ in range(20):
                client.socket.sendall(framed("api_versions", 0, 1) * 1000)
        go_on.set()
        held_up.join()
        until(lambda: server.call(lambda: held.kept_bytes) > HELD_BYTES + LEAST_RECEIVED_BYTES, "it to be counted")
        assert server.call(lambda: held.kept_bytes) <= HELD_BYTES + LEAST_RECEIVED_BYTES + HELD_BYTES
        assert set(received) == {HELD_BYTES}, "at a time, at most"


def test_what_comes_in_very_small_records_takes_turns(
    world: World, server: Server, raw: RawConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(raw)
    waits: list[object] = []
    wait = Turns.wait

    def noted(self: Turns, callback: Any) -> None:
        waits.append(callback)
        wait(self, callback)

    monkeypatch.setattr(Turns, "is_over", lambda self: True)
    monkeypatch.setattr(Turns, "wait", noted)
    produced = {"name": topic, "partition_data": [{"index": 0, "records": batch([b"x" * 20_000])}]}
    frame = framed("produce", 9, 1, transactional_id=None, acks=-1, timeout=1000, topic_data=[produced])
    with socket.create_connection(address(server)) as client:
        client.settimeout(10)
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = world.context().wrap_bio(incoming, outgoing, server_hostname="localhost")
        while True:
            try:
                tls.do_handshake()
            except ssl.SSLWantReadError:
                client.sendall(outgoing.read())
                incoming.write(client.recv(65_536))
            else:
                break
        for at in range(len(frame)):
            tls.write(frame[at : at + 1])
        client.sendall(outgoing.read())
        answer = b""
        while len(answer) < 8:
            incoming.write(client.recv(65_536))
            with contextlib.suppress(ssl.SSLWantReadError):
                answer += tls.read(100)
    assert struct.unpack_from(">i", answer, 4)[0] == 1
    assert any(getattr(each, "__name__", "") == "begin_turn" for each in waits)
