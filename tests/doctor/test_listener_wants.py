"""`oncelog doctor -b` says what a listener wants of its clients, also where the client does not fit it."""

import asyncio
import socket
from collections.abc import Iterator

import pytest

from oncelog.client.net.connection import Endpoint
from oncelog.clock import SystemClock
from oncelog.doctor.finding import Finding, Verdict
from oncelog.doctor.listener_wants import Wants, check_wants, findings_of, listener_wants
from oncelog.embedded import Server
from oncelog.security.certificates import Certificate
from tests.server.tls_support import World, new_world

DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return new_world(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def server(world: World) -> Iterator[Server]:
    listeners = "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0,SASL_SSL://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0,"
    settings = {
        "listener.security.protocol.map": "CERTAIN:SSL",
        "listener.name.certain.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
    }
    with world.serve(listeners=listeners + "CERTAIN://127.0.0.1:0", settings=settings) as server:
        yield server


def wants(server: Server, listener: str) -> Wants:
    found = listener_wants("127.0.0.1", server.broker.ports[listener], 10)
    assert found is not None
    return found


@pytest.mark.parametrize("listener", ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_each_protocol_is_found_out(listener: str, server: Server) -> None:
    found = wants(server, listener)
    assert found.protocol == listener.lower()
    assert not found.wants_certificate
    if "SASL" in listener:
        assert found.mechanisms == ("SCRAM-SHA-256", "SCRAM-SHA-512")
    if "SSL" in listener:
        assert found.certificate is not None
        assert (found.tls, found.certificate.subject) == ("TLSv1.3", "CN=server")


def test_that_a_certificate_is_asked_for_is_found_out(server: Server) -> None:
    assert wants(server, "CERTAIN").wants_certificate


def findings(server: Server, listener: str, protocol: str) -> list[Finding]:
    endpoint = Endpoint("127.0.0.1", server.broker.ports[listener])
    return asyncio.run(check_wants([endpoint], 10, protocol, SystemClock()))


def test_a_client_that_does_not_fit_is_told_what_to_say(server: Server) -> None:
    (found,) = findings(server, "SASL_SSL", "plaintext")
    assert found.verdict is Verdict.NOTE
    assert "speaks TLSv1.3, certificate of CN=server, signed by CN=authority" in found.words
    assert "-X security.protocol=sasl_ssl -X sasl.mechanism=SCRAM-SHA-512" in found.remedy


def test_one_that_fits_is_told_what_it_has(server: Server) -> None:
    (found,) = findings(server, "SSL", "ssl")
    assert found.verdict is Verdict.OK
    assert findings(server, "PLAINTEXT", "plaintext") == []


def test_nothing_is_said_of_who_does_not_answer() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        assert listener_wants("127.0.0.1", silent.getsockname()[1], 1) is None
        silent.listen()
        assert listener_wants("127.0.0.1", silent.getsockname()[1], 0.1) is None


@pytest.mark.parametrize(("days", "told"), [(3, "ends in 3 days"), (-3, "is over since 3 days"), (20, "")])
def test_a_certificate_that_ends_is_told(days: int, told: str) -> None:
    certificate = Certificate("CN=server", "CN=server", 0, days * DAY_MS)
    of = Wants("TLSv1.3", certificate, wants_certificate=False, mechanisms=())
    said = [each.words for each in findings_of("a:1", of, "ssl", 0) if each.name == "certificate"]
    assert said == ([f"that of a:1 (CN=server) {told}"] if told else [])
