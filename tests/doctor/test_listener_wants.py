"""`oncelog doctor -b` says what a listener wants of its clients, also where the client does not fit it."""

import asyncio
import socket
from collections.abc import Iterator

import pytest

from oncelog.doctor.cluster import check_cluster
from oncelog.doctor.finding import Finding, Verdict
from oncelog.doctor.listener_wants import Wants, findings_of, listener_wants
from oncelog.embedded import Server
from oncelog.security.certificates import Certificate
from tests.logged import messages
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
    properties = {"bootstrap.servers": f"127.0.0.1:{server.broker.ports[listener]}", "security.protocol": protocol}
    if protocol == "sasl_plaintext":
        properties |= {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "nobody", "sasl.password": "none"}
    return asyncio.run(check_cluster(properties, 10))


@pytest.mark.parametrize(
    ("listener", "words"),
    [
        ("SASL_SSL", "speaks TLSv1.3, certificate of CN=server, signed by CN=authority"),
        ("SASL_PLAINTEXT", "asks who one is, by SCRAM-SHA-256 or SCRAM-SHA-512"),
        ("SSL", "speaks TLSv1.3"),
    ],
)
def test_a_client_that_does_not_fit_is_told_what_to_say(
    listener: str, words: str, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """And not to start a server. In the log of one without TLS stands nothing: it was spoken to as it wants to be."""
    wants, brokers = findings(server, listener, "plaintext")
    assert wants.verdict is Verdict.NOTE and words in wants.words
    assert brokers.verdict is Verdict.MISSING and "does not let this client in" in brokers.words
    assert wants.remedy == "" and brokers.remedy.startswith(f"-X security.protocol={listener.lower()} -X s")
    assert ("-X sasl.mechanism=SCRAM-SHA-512 -X sasl.username=" in brokers.remedy) is ("SASL" in listener)
    assert (" -X ssl.ca.location=.../authority.pem" in brokers.remedy) is listener.endswith("SSL")
    made = ", or -F DATA/secure/client.properties, where --secure made it"
    assert brokers.remedy.endswith(made) is (listener == "SASL_SSL")
    assert bool(caplog.text) is listener.endswith("SSL")


def test_who_fits_leaves_nothing_in_the_log_but_its_own_failure(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    wants, brokers = findings(server, "SASL_PLAINTEXT", "sasl_plaintext")
    assert wants.verdict is Verdict.OK
    assert "sasl.username" in brokers.words
    assert len(messages(caplog, "oncelog.server.connections")) == 1


def test_one_that_fits_is_told_what_it_has(server: Server) -> None:
    assert findings(server, "SSL", "ssl")[0].verdict is Verdict.OK
    assert [each.name for each in findings(server, "PLAINTEXT", "plaintext") if each.name == "listener"] == []


def test_who_asks_for_a_certificate_first_may_want_a_name_as_well(server: Server) -> None:
    found = wants(server, "CERTAIN")
    assert found.fit("ssl") and found.fit("sasl_ssl") and not found.fit("plaintext")
    assert "ssl.certificate.location" in found.remedy


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
