"""A listener with TLS, over the wire: who gets in, what passes through it, and what it costs the others."""

import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oncelog.embedded import Server
from oncelog.server import strangers, tls_transport
from oncelog.server.connection import Connection
from oncelog.server.tls_transport import TlsTransport
from oncelog.server.turns import Turns
from tests.client.net.certificates import Authority
from tests.logged import logged
from tests.raw import RawConnection, ServerClosed, batch
from tests.raw.topics import new_topic
from tests.server.tls_support import World, address, keystore, new_world
from tests.waiting import until

MEGABYTE = 1 << 20


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return new_world(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def server(world: World) -> Iterator[Server]:
    with world.serve(ssl_client_auth="requested") as server:
        yield server


@pytest.fixture
def raw(world: World, server: Server) -> Iterator[RawConnection]:
    with RawConnection(server.bootstrap_servers, tls=world.context()) as raw:
        yield raw


def principals(server: Server) -> list[str]:
    return sorted(each.principal for each in server.service.connections.each() if isinstance(each, Connection))


def gets_in(servers: str | int, context: ssl.SSLContext) -> bool:
    try:
        with RawConnection(servers, tls=context) as raw:
            return bool(raw.call("api_versions", 2).error_code == 0)
    except (OSError, ServerClosed):
        return False


@pytest.mark.parametrize("count", [20, 200])
def test_a_client_shows_so_many_certificates_at_the_most(
    count: int, world: World, server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """OpenSSL looks through all of them, in one step, before anybody has proven who it is."""
    chain = tmp_path / "chain.pem"
    chain.write_text(Path(world.client.certificate).read_text() + Path(world.authority.certificate).read_text() * count)
    context = ssl.create_default_context(cafile=world.authority.certificate)
    context.load_cert_chain(chain, world.client.key)
    assert gets_in(server.bootstrap_servers, context) is (count == 20)
    if count > 20:
        until(lambda: "bytes in its TLS handshake" in caplog.text, "it to be said")


# Who gets in


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_both_versions_of_tls_are_spoken(version: ssl.TLSVersion, world: World, server: Server) -> None:
    context = world.context(world.client)
    context.minimum_version = context.maximum_version = version
    with RawConnection(server.bootstrap_servers, tls=context) as raw:
        assert raw.call("api_versions", 2).error_code == 0
        assert principals(server) == ["User:CN=client"]


def test_older_ones_are_not(world: World, server: Server) -> None:
    context = world.context()
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionResetError)):
        RawConnection(server.bootstrap_servers, tls=context)


def test_one_version_may_be_enough(world: World) -> None:
    context = world.context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with world.serve(ssl_enabled_protocols="TLSv1.3") as server, pytest.raises((ssl.SSLError, ConnectionResetError)):
        RawConnection(server.bootstrap_servers, tls=context)


def test_without_a_certificate_one_is_anonymous(server: Server, raw: RawConnection) -> None:
    raw.call("api_versions", 2)
    assert principals(server) == ["User:ANONYMOUS"]


def test_rules_make_a_user_of_a_certificate(world: World) -> None:
    rules = "RULE:^CN=(.*)$/$1/U"
    with (
        world.serve(ssl_client_auth="required", ssl_principal_mapping_rules=rules) as server,
        RawConnection(server.bootstrap_servers, tls=world.context(world.client)) as raw,
    ):
        raw.call("api_versions", 2)
        assert principals(server) == ["User:CLIENT"]


@pytest.mark.parametrize("who", ["nobody", "stranger", "no rule"])
def test_others_stay_outside_and_the_log_says_why(who: str, world: World, caplog: pytest.LogCaptureFixture) -> None:
    told = {"nobody": "shown no certificate", "stranger": "its certificate is refused", "no rule": "no rule is about"}
    certificate = {"nobody": None, "stranger": world.stranger.signs("stranger"), "no rule": world.client}[who]
    rules = "RULE:CN=other/other/"
    with world.serve(ssl_client_auth="required", ssl_principal_mapping_rules=rules) as server:
        assert not gets_in(server.bootstrap_servers, world.context(certificate))
        until(lambda: told[who] in caplog.text, "the refusal to be told")
        assert not server.call(lambda: server.service.connections.shaking_hands)


@pytest.mark.parametrize("spoken", [b"\0\0\0\x10\0\x12\0\0\0\0\0\1\0\3abc\0\0", b"GET / HTTP/1.1\r\n\r\n", bytes(64)])
def test_who_speaks_without_tls_is_one_line_in_the_log(
    spoken: bytes, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_connection(address(server)) as plain:
        plain.sendall(spoken)
        while plain.recv(100):  # an alert, where there is one
            pass
    until(lambda: "127.0.0.1" in caplog.text, "the refusal to be told")
    (told,) = logged(caplog, "oncelog.server.connections")
    assert told.exc_info is None


def test_a_crowd_of_them_is_a_few_lines(world: World, caplog: pytest.LogCaptureFixture) -> None:
    with world.serve() as server:
        for _ in range(100):
            with socket.create_connection(address(server)) as plain:
                plain.sendall(bytes(64))
                plain.recv(100)
        refused = server.broker.metrics
        until(lambda: refused.connections_refused == 100, "all of them to be refused")
        assert len(logged(caplog, "oncelog.server.connections")) < 60


def test_who_speaks_tls_where_there_is_none_is_told_so(caplog: pytest.LogCaptureFixture, world: World) -> None:
    with Server() as server, pytest.raises((ssl.SSLError, OSError)):
        RawConnection(server.bootstrap_servers, tls=world.context())
    assert "it speaks TLS to a listener without" in caplog.text


# What passes through


def test_large_requests_and_answers_pass_whole(server: Server, raw: RawConnection) -> None:
    topic = new_topic(raw, max_message_bytes=str(64 * MEGABYTE))
    value = bytes(range(256)) * (20 * MEGABYTE // 256)
    assert raw.produce(topic, 0, batch([value])).error_code == 0
    assert value in raw.fetch(topic, 0, 0).records


def test_many_small_ones_pass_in_their_order(raw: RawConnection) -> None:
    topic = new_topic(raw)
    with raw.in_one_piece():
        for number in range(3000):
            raw.ask_produce(topic, 0, batch([b"%d" % number]))
    assert [raw.produce_answer().base_offset for _ in range(3000)] == list(range(3000))


def test_bytes_arrive_one_by_one(world: World, server: Server) -> None:
    """Of the handshake and of what follows: nothing depends on how they are cut."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = world.context(world.client).wrap_bio(incoming, outgoing, server_hostname="localhost")
    with socket.create_connection(address(server)) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def drop_by_drop() -> None:
            for byte in outgoing.read():
                sock.sendall(bytes([byte]))

        while True:
            try:
                client.do_handshake()
                break
            except ssl.SSLWantReadError:
                drop_by_drop()
                incoming.write(sock.recv(65536))
        client.write(b"\0\0\0\x0d\0\x12\0\0\0\0\0\x07\0\3abc")
        drop_by_drop()
        answer = b""
        while len(answer) < 8:
            try:
                answer += client.read(65536)
            except ssl.SSLWantReadError:
                incoming.write(sock.recv(65536))
    assert struct.unpack_from(">i", answer, 4) == (7,)


def test_what_comes_with_the_end_of_the_handshake_is_served(world: World, server: Server) -> None:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = world.context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with socket.create_connection(address(server)) as sock:
        with pytest.raises(ssl.SSLWantReadError):
            client.do_handshake()
        sock.sendall(outgoing.read())
        while True:
            incoming.write(sock.recv(65536))
            try:
                client.do_handshake()
                break
            except ssl.SSLWantReadError:
                pass
        client.write(b"\0\0\0\x0d\0\x12\0\0\0\0\0\x07\0\3abc")
        sock.sendall(outgoing.read())
        while True:
            incoming.write(sock.recv(65536))
            try:
                assert struct.unpack_from(">i", client.read(100), 4) == (7,)
                break
            except ssl.SSLWantReadError:
                pass


def test_a_client_that_takes_its_answers_late_gets_all_of_them(
    world: World, server: Server, raw: RawConnection
) -> None:
    """And until then the server holds one of them, of which it tells."""
    topic = new_topic(raw, max_message_bytes=str(64 * MEGABYTE))
    value = b"x" * (24 * MEGABYTE)
    raw.produce(topic, 0, batch([value]))
    unsent = server.broker.memory.unsent
    with RawConnection(server.bootstrap_servers, tls=world.context()) as slow:
        slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        asked = 4
        for _ in range(asked):
            _ask_fetch(slow, topic)
        until(lambda: unsent.held_bytes > 8 * MEGABYTE, "the server to hold what is not taken")
        held = server.call(lambda: max(each.write_buffer_bytes for each in server.service.connections.each()))
        assert 8 * MEGABYTE < held < 25 * MEGABYTE
        for _ in range(asked):
            assert len(slow.answer().responses[0].partitions[0].records) > len(value)
    until(lambda: unsent.held_bytes == 0, "the memory to be given back")


def _ask_fetch(raw: RawConnection, topic: str, *, offset: int = 0, max_wait: int = 0) -> None:
    wanted = {"partition": 0, "current_leader_epoch": -1, "fetch_offset": offset, "partition_max_bytes": 64 << 20}
    values: dict[str, Any] = {
        "replica_id": -1,
        "max_wait": max_wait,
        "min_bytes": 1,
        "max_bytes": 64 << 20,
        "session_epoch": -1,
    }
    raw.ask("fetch", 11, **values, topics=[{"topic": topic, "partitions": [wanted]}], forgotten_topics_data=[])


def test_a_large_answer_is_encrypted_in_steps(
    world: World, server: Server, raw: RawConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others must not wait until all of it is."""
    topic = new_topic(raw, max_message_bytes=str(64 * MEGABYTE))
    raw.produce(topic, 0, batch([b"x" * (16 * MEGABYTE)]))
    steps: list[int] = []
    encrypt = TlsTransport.encrypt_some

    def counted(self: TlsTransport) -> None:
        before = self._backlog_bytes
        encrypt(self)
        steps.append(before - self._backlog_bytes)

    monkeypatch.setattr(TlsTransport, "encrypt_some", counted)
    raw.fetch(topic, 0, 0)
    assert sum(steps) > 16 * MEGABYTE
    assert max(steps) <= tls_transport.MOST_AT_ONCE_BYTES + tls_transport.PIECE_BYTES


def test_a_record_that_was_tampered_with_ends_the_connection(
    world: World, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    with RawConnection(server.bootstrap_servers, tls=world.context()) as raw:
        raw.call("api_versions", 2)
        below = socket.socket(fileno=socket.dup(raw.socket.fileno()))
        with below:
            below.sendall(b"\x17\x03\x03\x00\x40" + bytes(64))
        with pytest.raises((ServerClosed, ssl.SSLError)):
            raw.receive_bytes()
    until(lambda: "TLS failed" in caplog.text, "it to be told")
    assert all(record.exc_info is None for record in caplog.records)


def test_a_client_may_say_goodbye(server: Server, raw: RawConnection) -> None:
    raw.call("api_versions", 2)
    assert isinstance(raw.socket, ssl.SSLSocket)
    raw.socket.unwrap().close()  # returns when the server has said it, too
    until(lambda: not principals(server), "the connection to be gone")


def test_what_is_answered_behind_the_goodbye_is_no_accident(
    world: World, server: Server, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request may have waited when the client said it."""
    made: list[TlsTransport] = []
    begin = TlsTransport.set_write_buffer_limits

    def note(self: TlsTransport, high: int | None = None, low: int | None = None) -> None:
        made.append(self)
        begin(self, high, low)

    def say_it_and_more() -> None:
        made[0].close()
        made[0].write(b"late")
        made[0].writelines([b"later", b"still"])

    monkeypatch.setattr(TlsTransport, "set_write_buffer_limits", note)
    with RawConnection(server.bootstrap_servers, tls=world.context()) as raw:
        raw.call("api_versions", 2)
        server.call(say_it_and_more)
        with pytest.raises(ServerClosed):
            raw.receive_bytes()
    assert "TLS failed" not in caplog.text


def test_a_stop_closes_it_in_an_orderly_way(world: World) -> None:
    with world.serve() as server, RawConnection(server.bootstrap_servers, tls=world.context()) as raw:
        topic = new_topic(raw)
        raw.produce(topic, 0, batch([b"1"]))
        _ask_fetch(raw, topic, offset=1, max_wait=60_000)  # waits for what never comes
        until(lambda: any(each.is_waiting for each in server.service.connections.each()), "it to wait")
        stopping = threading.Thread(target=server.close)
        stopping.start()
        with pytest.raises(ServerClosed):
            raw.receive_bytes()
        stopping.join()


# What it costs the others


def test_handshakes_that_never_end_do(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(strangers, "STRANGER_MS", 0)
    monkeypatch.setattr(strangers, "LOOK_S", 0.01)
    with world.serve() as server, socket.create_connection(address(server)) as silent:
        assert silent.recv(1) == b""
        assert "has not proven" in caplog.text


def test_who_only_connects_shuts_nobody_out(world: World) -> None:
    with world.serve(max_connections=20) as server:
        crowd = [socket.create_connection(address(server)) for _ in range(30)]
        for _ in range(3):
            with RawConnection(server.bootstrap_servers, tls=world.context()) as raw:
                assert raw.call("api_versions", 2).error_code == 0
        for each in crowd:
            each.close()


def test_handshakes_take_turns(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many that arrive together only so many go on in one round of the loop."""
    with world.serve() as server:
        is_over = Turns.is_over
        asked: list[bool] = []

        def always(self: Turns) -> bool:
            asked.append(is_over(self))
            return True

        monkeypatch.setattr(Turns, "is_over", always)
        waited = server.broker.turns
        with socket.create_connection(address(server)) as client:
            client.settimeout(10)
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            tls = world.context().wrap_bio(incoming, outgoing, server_hostname="localhost")
            with pytest.raises(ssl.SSLWantReadError):
                tls.do_handshake()
            client.sendall(outgoing.read())
            assert client.recv(100)
        assert asked
        assert waited


def test_a_connection_that_is_refused_makes_no_tls(world: World, caplog: pytest.LogCaptureFixture) -> None:
    with world.serve(max_connections=1) as server:
        with RawConnection(server.bootstrap_servers, tls=world.context()) as raw:
            raw.call("api_versions", 2)
            with pytest.raises((ssl.SSLError, OSError)):
                RawConnection(server.bootstrap_servers, tls=world.context())
            assert raw.call("api_versions", 2).error_code == 0
        assert "max.connections is 1" in caplog.text


def test_a_stop_waits_for_no_handshake(world: World) -> None:
    with world.serve() as server:
        silent = socket.create_connection(address(server))
        until(lambda: server.service.connections.shaking_hands, "it to be there")
    assert silent.recv(1) == b""
    silent.close()


def test_an_idle_connection_takes_little_memory(world: World) -> None:
    """What OpenSSL and the transport hold for each; some 10,000 connections are allowed."""
    count = 200
    with world.serve() as server:
        with RawConnection(server.bootstrap_servers, tls=world.context()) as first:
            first.call("api_versions", 2)
        context = world.context()
        before = _resident_bytes()
        crowd = [RawConnection(server.bootstrap_servers, tls=context) for _ in range(count)]
        for each in crowd:
            each.call("api_versions", 2)
        taken = (_resident_bytes() - before) / count
        for each in crowd:
            each.close()
    assert taken < 160_000  # of client and server together, which share this process


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


# Renewal


def test_a_new_certificate_counts_without_a_restart_and_old_connections_stay(tmp_path: Path, world: World) -> None:
    store = tmp_path / "keystore.pem"
    store.write_text(Path(world.keystore).read_text())
    with (
        world.serve(ssl_keystore_location=str(store)) as server,
        RawConnection(server.bootstrap_servers, tls=world.context()) as before,
    ):
        before.call("api_versions", 2)
        store.write_text(Path(keystore(world.authority.signs("renewed"))).read_text())
        server.call(server.broker.look_at_certificates)
        with RawConnection(server.bootstrap_servers, tls=world.context()) as after:
            after.call("api_versions", 2)
            assert _common_name(after) == "renewed"
        assert before.call("api_versions", 2).error_code == 0
        assert _common_name(before) == "server"


def _common_name(raw: RawConnection) -> str:
    assert isinstance(raw.socket, ssl.SSLSocket)
    found = raw.socket.getpeercert()
    assert found is not None
    return str(dict(each[0] for each in found["subject"])["commonName"])  # type: ignore[misc]


def test_who_is_no_longer_trusted_gets_in_no_more_and_who_is_now_does(tmp_path: Path, world: World) -> None:
    store = tmp_path / "truststore.pem"
    store.write_text(Path(world.authority.certificate).read_text())
    other = Authority(tmp_path, "other")
    newcomer = other.signs("newcomer")
    with world.serve(ssl_truststore_location=str(store), ssl_client_auth="required") as server:
        servers = server.bootstrap_servers
        old, new = world.context(world.client), world.context(newcomer)
        assert (gets_in(servers, old), gets_in(servers, new)) == (True, False)
        store.write_text(Path(other.certificate).read_text())
        server.call(server.broker.look_at_certificates)
        assert (gets_in(servers, old), gets_in(servers, new)) == (False, True)


def test_the_server_looks_by_itself(tmp_path: Path, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from oncelog.server import service

    monkeypatch.setattr(service, "LOOK_MS", 10)
    store = tmp_path / "keystore.pem"
    store.write_text(Path(world.keystore).read_text())
    with world.serve(ssl_keystore_location=str(store)) as server:
        before = server.broker.tls["SSL"].context
        store.write_text(Path(keystore(world.client)).read_text())
        until(lambda: server.broker.tls["SSL"].context is not before, "the new certificate to be found")


def test_several_listeners_have_each_its_own(world: World) -> None:
    listeners = "IN://127.0.0.1:0,OUT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0"
    more = {
        "listener.security.protocol.map": "IN:SSL,OUT:SSL,PLAINTEXT:PLAINTEXT",
        "listener.name.out.ssl.client.auth": "required",
        "listener.name.in.ssl.keystore.location": keystore(world.client),
    }
    with world.serve(listeners=listeners, settings=more) as server:
        ports = server.broker.ports
        with RawConnection(ports["IN"], tls=world.context()) as raw:
            (broker,) = raw.call("metadata", 9, topics=[]).brokers
            assert broker.port == ports["IN"]
            assert _common_name(raw) == "client"
        with RawConnection(ports["OUT"], tls=world.context(world.client)) as raw:
            (broker,) = raw.call("metadata", 9, topics=[]).brokers
            assert (broker.port, _common_name(raw)) == (ports["OUT"], "server")
        assert not gets_in(ports["OUT"], world.context())
        with RawConnection(ports["PLAINTEXT"]) as raw:
            (broker,) = raw.call("metadata", 9, topics=[]).brokers
            assert broker.port == ports["PLAINTEXT"]
