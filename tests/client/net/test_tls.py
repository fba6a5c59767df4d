"""TLS as the properties ask for it, and each failure with what to do."""

import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from oncelog.client.errors import KafkaError, KafkaException
from oncelog.client.net.brokers import Brokers
from tests.client.net.certificates import PASSWORD, Authority, Certificate
from tests.client.net.fake_broker import FakeBroker

Serving = Callable[..., AbstractAsyncContextManager[FakeBroker]]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("strangers"), "stranger")


@pytest.fixture(scope="module")
def own(authority: Authority) -> Certificate:
    return authority.signs("client")


@pytest.fixture(scope="module")
def serving(authority: Authority) -> Serving:
    @asynccontextmanager
    async def serve(*names: str, wants_certificate: bool = False) -> AsyncIterator[FakeBroker]:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        certificate = authority.signs("server-" + "".join(filter(str.isalnum, "".join(names))), *names)
        context.load_cert_chain(certificate.certificate, certificate.key)
        if wants_certificate:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(authority.certificate)
        async with FakeBroker(tls=context) as broker:
            yield broker

    return serve


async def outcome(broker: FakeBroker, **more: Any) -> KafkaError | None:
    """None where the broker was spoken to."""
    try:
        brokers = Brokers(broker.settings(**{"security_protocol": "ssl", **more}))
    except KafkaException as error:
        return error.error
    try:
        await brokers.refresh(["t"])
        return None
    except KafkaException as error:
        return error.error
    finally:
        await brokers.close()


def said(error: KafkaError | None) -> str:
    assert error is not None
    return error.str()


async def test_a_broker_whose_authority_is_named_is_trusted(serving: Serving, authority: Authority) -> None:
    async with serving() as broker:
        assert await outcome(broker, ssl_ca_location=authority.certificate) is None
        assert await outcome(broker, ssl_ca_pem=Path(authority.certificate).read_text()) is None


async def test_a_broker_of_another_authority_is_refused(serving: Serving, stranger: Authority) -> None:
    async with serving() as broker:
        for more in ({"ssl_ca_location": stranger.certificate}, {}):
            error = await outcome(broker, **more)
            assert error == KafkaError._SSL
            assert "is `ssl.ca.location` the authority that signed it?" in said(error)
            assert error is not None
            assert not error.retriable()


async def test_a_broker_under_another_name_is_refused_unless_the_check_is_given_up(
    serving: Serving, authority: Authority
) -> None:
    async with serving("DNS:elsewhere.example") as broker:
        error = await outcome(broker, ssl_ca_location=authority.certificate)
        assert "`ssl.endpoint.identification.algorithm=none`" in said(error)
        more = {"ssl_ca_location": authority.certificate, "ssl_endpoint_identification_algorithm": "none"}
        assert await outcome(broker, **more) is None


async def test_nothing_is_checked_where_verification_is_off(serving: Serving) -> None:
    async with serving("DNS:elsewhere.example") as broker:
        assert await outcome(broker, enable_ssl_certificate_verification=False) is None


async def test_a_client_proves_itself_by_a_certificate(
    serving: Serving, authority: Authority, own: Certificate
) -> None:
    async with serving(wants_certificate=True) as broker:
        trusted = {"ssl_ca_location": authority.certificate}
        error = await outcome(broker, **trusted)
        assert "does it want `ssl.certificate.location`" in said(error)
        files = {"ssl_certificate_location": own.certificate, "ssl_key_location": own.key}
        locked = {**files, "ssl_key_location": own.locked_key, "ssl_key_password": PASSWORD}
        texts = {
            "ssl_certificate_pem": Path(own.certificate).read_text(),
            "ssl_key_pem": Path(own.key).read_text(),
        }
        for more in (files, locked, texts):
            assert await outcome(broker, **trusted, **more) is None


async def test_a_certificate_of_another_authority_does_not_prove_anything(
    serving: Serving, authority: Authority, stranger: Authority
) -> None:
    other = stranger.signs("client")
    more = {"ssl_certificate_location": other.certificate, "ssl_key_location": other.key}
    async with serving(wants_certificate=True) as broker:
        assert "does it want `ssl.certificate.location`" in said(
            await outcome(broker, ssl_ca_location=authority.certificate, **more)
        )


async def test_tls_to_a_listener_without_it(broker: FakeBroker, authority: Authority) -> None:
    assert "without TLS" in said(await outcome(broker, ssl_ca_location=authority.certificate))


async def test_no_tls_to_a_listener_with_it(serving: Serving) -> None:
    async with serving() as broker:
        assert "TLS" in said(await outcome(broker, security_protocol="plaintext"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ssl_ca_location", "/nowhere.pem"),
        ("ssl_certificate_location", "/nowhere.pem"),
        ("ssl_crl_location", "/nowhere.pem"),
        ("ssl_cipher_suites", "NO-SUCH-CIPHER"),
        ("ssl_ca_pem", "no certificate"),
        ("ssl_key_location", "/nowhere.pem"),
        ("ssl_key_pem", "no key"),
    ],
)
async def test_what_cannot_be_used_is_named_before_anything_is_sent(broker: FakeBroker, name: str, value: str) -> None:
    error = await outcome(broker, **{name: value})
    assert error == KafkaError._INVALID_ARG
    assert f"`{name.replace('_', '.')}`" in said(error)
    assert broker.connected_count == 0


async def test_a_certificate_without_its_key_is_named(broker: FakeBroker, own: Certificate) -> None:
    error = await outcome(broker, ssl_certificate_location=own.certificate)
    assert "has no key in it; give one by `ssl.key.location`" in said(error)


async def test_a_wrong_passphrase_is_named(broker: FakeBroker, own: Certificate) -> None:
    more = {"ssl_certificate_location": own.certificate, "ssl_key_location": own.locked_key}
    for password in ({}, {"ssl_key_password": "wrong"}):
        assert "is `ssl.key.password` right?" in said(await outcome(broker, **more, **password))


async def test_texts_leave_no_files_behind(
    broker: FakeBroker, own: Certificate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    texts = {"ssl_certificate_pem": Path(own.certificate).read_text(), "ssl_key_pem": Path(own.key).read_text()}
    await outcome(broker, **texts)
    assert list(tmp_path.iterdir()) == []
