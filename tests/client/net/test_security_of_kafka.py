"""Every way to prove who one is, against a real Apache Kafka: one process with a listener for each protocol."""

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from time import time
from typing import Any

import pytest

from oncelog.client.errors import KafkaError, KafkaException
from oncelog.client.net.brokers import Brokers
from oncelog.client.net.sasl.tokens import unsecured_config, unsecured_token
from oncelog.client.properties import admin_settings
from oncelog.wire.requests import RequestSchema
from tests.client.net.certificates import Authority, Certificate
from tests.client.net.fake_broker import dotted
from tests.client.net.secured_kafka import LISTENERS, MECHANISMS, REAUTH_MS, SECRET, USER, SecuredKafka
from tests.peers.jars import MissingPeer, kafka_jars, need_or_skip

pytestmark = pytest.mark.peers


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def own(authority: Authority) -> Certificate:
    return authority.signs("client")


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[SecuredKafka]:
    try:
        kafka_jars()
    except MissingPeer as missing:
        need_or_skip(missing)
    with SecuredKafka(tmp_path_factory.mktemp("kafka"), authority) as server:
        yield server


def brokers_of(kafka: SecuredKafka, listener: str, **more: Any) -> Brokers:
    given = {
        "bootstrap_servers": kafka.addresses[listener],
        "security_protocol": LISTENERS[listener].lower(),
        "reconnect_backoff_ms": 1,
        **more,
    }
    return Brokers(admin_settings(dotted(given)))


async def let_in(kafka: SecuredKafka, listener: str, **more: Any) -> None:
    brokers = brokers_of(kafka, listener, **more)
    try:
        known = await brokers.refresh([])
        (address,) = known.brokers.values()
        assert f"{address.host}:{address.port}" == kafka.addresses[listener]
        await brokers.connection(address.node_id)
    finally:
        await brokers.close()


async def refused(kafka: SecuredKafka, listener: str, **more: Any) -> KafkaError:
    with pytest.raises(KafkaException) as caught:
        await let_in(kafka, listener, **more)
    return caught.value.error


def proof(mechanism: str, password: str = SECRET) -> dict[str, Any]:
    if mechanism == "OAUTHBEARER":
        words = {"sasl_oauthbearer_config": f"principal={USER}", "enable_sasl_oauthbearer_unsecure_jwt": True}
        return {"sasl_mechanism": mechanism, **words}
    return {"sasl_mechanism": mechanism, "sasl_username": USER, "sasl_password": password}


# --- TLS


async def test_tls(kafka: SecuredKafka, authority: Authority) -> None:
    await let_in(kafka, "SSL", ssl_ca_location=authority.certificate)


async def test_a_certificate_of_the_client(kafka: SecuredKafka, authority: Authority, own: Certificate) -> None:
    trusted = {"ssl_ca_location": authority.certificate}
    await let_in(kafka, "MUTUAL", **trusted, ssl_certificate_location=own.certificate, ssl_key_location=own.key)
    error = await refused(kafka, "MUTUAL", **trusted)
    assert "does it want `ssl.certificate.location`" in error.str()


async def test_a_broker_of_an_unknown_authority(kafka: SecuredKafka) -> None:
    error = await refused(kafka, "SSL")
    assert error == KafkaError._SSL
    assert "`ssl.ca.location`" in error.str()


async def test_plaintext_to_a_tls_listener(kafka: SecuredKafka) -> None:
    error = await refused(kafka, "SSL", security_protocol="plaintext")
    assert "TLS" in error.str()
    assert "`security.protocol`" in error.str()


async def test_tls_to_a_plaintext_listener(kafka: SecuredKafka, authority: Authority) -> None:
    error = await refused(kafka, "PLAINTEXT", security_protocol="ssl", ssl_ca_location=authority.certificate)
    assert "without TLS" in error.str()


# --- SASL


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_sasl(kafka: SecuredKafka, mechanism: str) -> None:
    await let_in(kafka, "SASL_PLAINTEXT", **proof(mechanism))


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_sasl_within_tls(kafka: SecuredKafka, authority: Authority, mechanism: str) -> None:
    await let_in(kafka, "SASL_SSL", ssl_ca_location=authority.certificate, **proof(mechanism))


@pytest.mark.parametrize("mechanism", MECHANISMS[:3])
async def test_a_wrong_password(kafka: SecuredKafka, mechanism: str) -> None:
    error = await refused(kafka, "SASL_PLAINTEXT", **proof(mechanism, "wrong"))
    assert error == KafkaError._AUTHENTICATION
    assert "are `sasl.username` and `sasl.password` right" in error.str()


async def test_a_token_that_kafka_does_not_accept(kafka: SecuredKafka) -> None:
    error = await refused(
        kafka, "SASL_PLAINTEXT", sasl_mechanism="OAUTHBEARER", oauth_cb=lambda config: ("no.jwt.at-all", time() + 60)
    )
    assert error == KafkaError._AUTHENTICATION
    assert "does the broker accept tokens of this issuer?" in error.str()


async def test_a_token_of_a_callback(kafka: SecuredKafka) -> None:
    def callback(config: str) -> tuple[str, float]:
        token = unsecured_token(unsecured_config(f"principal={USER}"), time())
        return token.value, token.expires_s

    await let_in(kafka, "SASL_PLAINTEXT", sasl_mechanism="OAUTHBEARER", oauth_cb=callback)


async def test_a_token_of_a_provider(kafka: SecuredKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    provider = HTTPServer(("127.0.0.1", 0), Provider)
    thread = threading.Thread(target=provider.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        asked = {
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauthbearer_method": "oidc",
            "sasl_oauthbearer_client_id": USER,
            "sasl_oauthbearer_client_secret": SECRET,
            "sasl_oauthbearer_token_endpoint_url": f"http://127.0.0.1:{provider.server_port}/token",
        }
        await let_in(kafka, "SASL_PLAINTEXT", **asked)
    finally:
        provider.shutdown()
        thread.join()
        provider.server_close()


class Provider(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        token = unsecured_token(unsecured_config(f"principal={USER}"), time())
        answer = json.dumps({"access_token": token.value}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: Any) -> None:
        """Nothing: the test's output is the test's."""


async def test_sasl_to_a_listener_without_it(kafka: SecuredKafka) -> None:
    error = await refused(kafka, "PLAINTEXT", security_protocol="sasl_plaintext", **proof("PLAIN"))
    assert error == KafkaError._AUTHENTICATION
    assert "set `security.protocol` to plaintext or ssl" in error.str()


@pytest.mark.asyncio(loop_factories=["uvloop"])  # two and a half seconds of waiting for Kafka
async def test_no_sasl_to_a_listener_with_it(kafka: SecuredKafka) -> None:
    error = await refused(kafka, "SASL_PLAINTEXT", security_protocol="plaintext")
    assert "does this listener want SASL?" in error.str()


@pytest.mark.asyncio(loop_factories=["uvloop"])
async def test_a_session_outlives_the_brokers_patience(kafka: SecuredKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka cuts a connection whose proof is older than REAUTH_MS at its next request. It is renewed early here: a
    busy machine may be late by the last part of a time that is so short."""
    monkeypatch.setattr("oncelog.client.net.sasl.exchange.RENEWED_FROM", 0.55)
    await asyncio.gather(*(stays_connected(kafka, mechanism) for mechanism in MECHANISMS))


async def stays_connected(kafka: SecuredKafka, mechanism: str) -> None:
    brokers = brokers_of(kafka, "BRIEF", **proof(mechanism))
    (node_id,) = (await brokers.refresh([])).brokers
    connection = await brokers.connection(node_id)
    loop = asyncio.get_running_loop()
    end_s = loop.time() + 2.5 * REAUTH_MS / 1000
    while loop.time() < end_s:
        await asyncio.gather(*(connection.request("describe_cluster", describe_cluster) for _ in range(3)))
    assert await brokers.connection(node_id) is connection
    await brokers.close()


def describe_cluster(spoken: RequestSchema) -> Any:
    return spoken.new(
        "DescribeClusterRequest",
        include_cluster_authorized_operations=False,
        endpoint_type=1,
        include_fenced_brokers=False,
    )
