"""What is wrong with the settings of TLS is said at the start, in words, and never with a key or a password."""

import errno
import logging
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oncelog.clock import ManualClock
from oncelog.first_steps.certificates import make_authority, sign_server
from oncelog.server import tls_context
from oncelog.server.endpoints import Endpoint
from oncelog.server.settings_reading import read_settings
from oncelog.server.tls import AGAIN_MS, REMIND_MS, Tls
from oncelog.settings import SettingsError
from tests.client.net.certificates import PASSWORD
from tests.logged import messages
from tests.server.tls_support import World, keystore, new_world

DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return new_world(tmp_path_factory.mktemp("certificates"))


def read(*given: str) -> Any:
    return read_settings(["listeners=SSL://127.0.0.1:0", *given])


def tls(*given: str, protocol: str = "SSL", clock: ManualClock | None = None) -> Tls:
    return Tls(Endpoint("SSL", protocol, "127.0.0.1", 0), read(*given), clock or ManualClock())


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ([], "a listener with TLS needs a certificate: ssl.keystore.location"),
        (["ssl.keystore.certificate.chain=x"], "ssl.keystore.certificate.chain needs ssl.keystore.key"),
        (["ssl.keystore.location=a", "ssl.keystore.key=secret"], "give one of them"),
        (["ssl.keystore.location=a", "ssl.client.auth=required"], "ssl.truststore.location or"),
        (["ssl.keystore.location=a", "ssl.truststore.location=a", "ssl.truststore.certificates=b"], "give one of them"),
        (["ssl.keystore.location=a", "ssl.enabled.protocols="], "ssl.enabled.protocols is empty"),
        (["ssl.keystore.location=a", "ssl.principal.mapping.rules=RULE:x"], "ssl.principal.mapping.rules: RULE:x"),
        (["ssl.keystore.location=a", "ssl.keystore.type=JKS"], "ssl.keystore.type=JKS: expected PEM"),
        (["ssl.keystore.location=a", "ssl.enabled.protocols=TLSv1.1"], "expected a list, separated by commas, of TLS"),
        (["ssl.keystore.location=a", "ssl.client.auth=Secret"], "ssl.client.auth=Secret: expected one of none"),
        (["ssl.keystore.password=changeit"], "PEM has no password of its own"),
        (["super.users=alice"], "super.users: alice: expected User:NAME"),
        (["super.users=user:a"], "super.users: user:a: expected User:NAME"),
        (["super.users=User:a,User:b"], "semicolons between several"),
        (["authorizer.class.name=StandardAuthorizer"], "expected one of (empty), org.apache.kafka.metadata"),
        (["listener.name.other.ssl.client.auth=none"], "listeners names no OTHER, but SSL"),
        (["listener.name.ssl.num.partitions=1"], "expected listener.name., the listener's name in small letters"),
        (["listener.security.protocol.map=SSL:TLS"], "expected NAME:PROTOCOL, of PLAINTEXT, SSL"),
    ],
)
def test_settings_that_cannot_be_meant(given: list[str], told: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(told)) as refused:
        read(*given)
    assert "secret" not in str(refused.value)


def test_a_listener_needs_a_protocol() -> None:
    with pytest.raises(SettingsError, match=r"INTERNAL is no protocol.*listener.security.protocol.map=INTERNAL:SASL"):
        read_settings(["listeners=INTERNAL://127.0.0.1:0"])


def test_listeners_of_every_protocol_stand_side_by_side(world: World) -> None:
    settings = read_settings(
        [
            "listeners=IN://127.0.0.1:1,OUT_SIDE://127.0.0.1:2,PLAINTEXT://127.0.0.1:3",
            "listener.security.protocol.map=IN:SASL_PLAINTEXT,OUT_SIDE:SSL,PLAINTEXT:PLAINTEXT",
            f"ssl.keystore.location={world.keystore}",
            "listener.name.out_side.ssl.client.auth=requested",
            f"listener.name.out_side.ssl.truststore.location={world.authority.certificate}",
            "listener.name.in.sasl.enabled.mechanisms=SCRAM-SHA-512",
        ]
    )
    assert settings.of_listener("OUT_SIDE").ssl_client_auth == "requested"
    assert settings.of_listener("IN").ssl_client_auth == "none"
    assert settings.of_listener("IN").sasl_enabled_mechanisms == ("SCRAM-SHA-512",)


def test_a_listeners_setting_may_stand_in_the_environment(world: World) -> None:
    environment = {"ONCELOG_LISTENER_NAME_SASL_SSL_SSL_CLIENT_AUTH": "none"}
    given = ["listeners=SASL_SSL://127.0.0.1:0", f"ssl.keystore.location={world.keystore}"]
    assert read_settings(given, environment).by_listener == {"SASL_SSL": {"ssl_client_auth": "none"}}


def broken(world: World, tmp_path: Path) -> dict[str, tuple[list[str], str]]:
    """By what is wrong: what is given, and what is told."""
    key, certificate = Path(world.server.key).read_text(), Path(world.server.certificate).read_text()
    other = Path(world.client.certificate).read_text()

    def file(name: str, text: str | bytes) -> str:
        path = tmp_path / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return f"ssl.keystore.location={path}"

    locked = Path(world.server.locked_key).read_text()
    trusted = f"ssl.truststore.location={tmp_path}/"
    good = f"ssl.keystore.location={world.keystore}"
    file("rubbish", "-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----")
    return {
        "missing": ([f"ssl.keystore.location={tmp_path}/none"], "it cannot be read: No such file"),
        "a folder": ([f"ssl.keystore.location={tmp_path}"], "it cannot be read: Is a directory"),
        "text": ([file("text", "hello")], "there is no PEM in it"),
        "p12": ([f"ssl.keystore.location={world.server.keystore}"], "openssl pkcs12 -in"),
        "no certificate": ([file("key", key)], "there is no certificate in it"),
        "no key": ([file("certificate", certificate)], "expected one key (-----BEGIN PRIVATE KEY-----), found 0"),
        "two keys": ([file("two", key + key + certificate)], "found 2"),
        "half": ([file("half", certificate + key[:80])], "a block PRIVATE KEY does not end"),
        "another key": ([file("other", key + other)], "the key does not belong to the first certificate"),
        "locked": ([file("locked", locked + certificate)], "give its password as ssl.key.password"),
        "wrong password": (
            [file("locked2", locked + certificate), "ssl.key.password=hunter2"],
            "the key cannot be decrypted: is ssl.key.password right?",
        ),
        "long password": (
            [file("locked3", locked + certificate), f"ssl.key.password=hunter2{'2' * 1024}"],
            "ssl.key.password is longer than OpenSSL takes",
        ),
        "letters": ([file("letters", key + certificate.replace("MII", "MI\u00cf", 1))], "has letters that no PEM has"),
        "truststore": ([good, f"{trusted}none"], "ssl.truststore.location="),
        "truststore of keys": ([good, f"{trusted}key"], "there is no certificate in it"),
        "truststore of rubbish": ([good, f"{trusted}rubbish"], "OpenSSL cannot use it"),
        "truststore of letters": ([good, f"{trusted}letters"], "has letters that no PEM has"),
        "ciphers": ([good, "ssl.cipher.suites=NONE"], "ssl.cipher.suites=NONE: OpenSSL knows none of them"),
    }


@pytest.mark.parametrize(
    "what",
    [
        "missing",
        "a folder",
        "text",
        "p12",
        "no certificate",
        "no key",
        "two keys",
        "half",
        "another key",
        "locked",
        "wrong password",
        "long password",
        "letters",
        "truststore",
        "truststore of keys",
        "truststore of rubbish",
        "truststore of letters",
        "ciphers",
    ],
)
def test_files_that_cannot_be_used(what: str, world: World, tmp_path: Path) -> None:
    given, told = broken(world, tmp_path)[what]
    with pytest.raises(SettingsError, match=re.escape(told)) as refused:
        tls(*given)
    secrets = ["hunter2", *Path(world.server.key).read_text().splitlines()[1:-1]]
    assert not [secret for secret in secrets if secret in str(refused.value)]


def test_a_key_may_be_encrypted(world: World, tmp_path: Path) -> None:
    path = tmp_path / "locked"
    path.write_text(Path(world.server.locked_key).read_text() + Path(world.server.certificate).read_text())
    tls(f"ssl.keystore.location={path}", f"ssl.key.password={PASSWORD}")


def test_certificates_may_stand_in_the_settings_in_one_line(world: World) -> None:
    def one_line(path: str) -> str:
        return Path(path).read_text().replace("\n", " ")

    tls(
        f"ssl.keystore.certificate.chain={one_line(world.server.certificate)}",
        f"ssl.keystore.key={one_line(world.server.key)}",
        f"ssl.truststore.certificates={one_line(world.authority.certificate)}",
        "ssl.client.auth=required",
    )


@pytest.mark.parametrize(
    "suite", ["ECDHE-ECDSA-AES256-GCM-SHA384", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256"]
)
def test_ciphers_have_openssls_names_or_javas(suite: str, world: World) -> None:
    tls(f"ssl.keystore.location={world.keystore}", f"ssl.cipher.suites={suite}")


def test_where_sasl_says_who_somebody_is_only_the_listener_itself_asks_for_certificates(world: World) -> None:
    """As Kafka: KIP-684."""
    given = [
        "listeners=SASL_SSL://127.0.0.1:0,SSL://127.0.0.1:0",
        f"ssl.keystore.location={world.keystore}",
        f"ssl.truststore.location={world.authority.certificate}",
        "ssl.client.auth=required",
    ]
    endpoint = Endpoint("SASL_SSL", "SASL_SSL", "127.0.0.1", 0)
    own = "listener.name.sasl_ssl.ssl.client.auth=required"
    assert Tls(endpoint, read_settings(given), ManualClock()).context.verify_mode.name == "CERT_NONE"
    assert Tls(endpoint, read_settings([*given, own]), ManualClock()).context.verify_mode.name == "CERT_REQUIRED"


@pytest.mark.parametrize(
    ("days", "told"),
    [(-10, "begins in 9 days"), (20, "ends in 9 days: renew it"), (29, "ends in "), (40, "is over since")],
)
def test_a_certificates_time_is_a_warning(days: int, told: str, world: World, caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock(int(time.time() * 1000) + days * DAY_MS)
    with caplog.at_level(logging.WARNING):
        found = tls(f"ssl.keystore.location={world.keystore}", clock=clock)
    assert told in caplog.text
    caplog.clear()
    found.look()
    assert not messages(caplog, "oncelog.server")
    clock.advance(REMIND_MS)
    found.look()
    assert "the certificate of CN=server" in caplog.text or days == -10


Put = Callable[[str], None]


def test_what_is_put_in_the_place_of_the_files_counts_for_new_connections(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "keystore.pem"
    path.write_text(Path(world.keystore).read_text())
    found = tls(f"ssl.keystore.location={path}")
    before = found.context
    found.look()
    assert found.context is before
    with caplog.at_level(logging.INFO):
        path.write_text("half of it")
        found.look()
        assert found.context is before
        assert "the certificate of before stays in use" in caplog.text
        caplog.clear()
        found.look()
        assert not messages(caplog, "oncelog.server")  # once is enough
        path.unlink()
        found.look()
        path.write_text(Path(keystore(world.client)).read_text())
        found.look()
    assert found.context is not before
    assert "new connections get the certificate" in caplog.text


def test_a_file_that_gets_its_rights_behind_its_content_is_read_then(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "keystore.pem"
    path.write_text(Path(world.keystore).read_text())
    found = tls(f"ssl.keystore.location={path}")
    before = found.context
    path.write_text(Path(keystore(world.client)).read_text())
    with monkeypatch.context() as forbidden:
        forbidden.setattr(tls_context, "open", refusing(errno.EACCES), raising=False)
        found.look()
    assert found.context is before
    changed_ns = path.stat().st_ctime_ns
    while path.stat().st_ctime_ns == changed_ns:  # the kernel's clock has ticks
        path.chmod(0o640)
    found.look()
    assert found.context is not before


@pytest.mark.parametrize("what", ["open", *(each for each in ("memfd_create",) if hasattr(os, each))])
def test_what_could_not_be_read_for_want_of_files_is_read_again(
    what: str, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path, clock = tmp_path / "keystore.pem", ManualClock(int(time.time() * 1000))
    path.write_text(Path(world.keystore).read_text())
    found = tls(f"ssl.keystore.location={path}", clock=clock)
    before = found.context
    path.write_text(Path(keystore(world.client)).read_text())
    with monkeypatch.context() as full:
        full.setattr(tls_context if what == "open" else os, what, refusing(errno.EMFILE), raising=False)
        found.look()
    assert found.context is before
    assert "stays in use, since the new files cannot be used" in caplog.text and "Too many open files" in caplog.text
    found.look()
    assert found.context is before
    clock.advance(AGAIN_MS)
    found.look()
    assert found.context is not before


def refusing(number: int) -> Callable[..., Any]:
    def refuse(*arguments: object, **keywords: object) -> Any:
        raise OSError(number, os.strerror(number))

    return refuse


@pytest.mark.parametrize(("days", "told"), [(40, "is over since"), (-10, "begins in 9 days")])
def test_a_certificate_that_does_not_count_now_replaces_none_that_does(
    days: int, told: str, world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Those of the world are for 30 days. One that is to come counts from when it begins."""
    now_ms = int(time.time() * 1000)
    path, clock = tmp_path / "keystore.pem", ManualClock(now_ms + days * DAY_MS)
    there = sign_server(make_authority(clock.now().wall_ms), ["localhost"], clock.now().wall_ms)
    path.write_bytes(there.key + there.certificate)
    found = tls(f"ssl.keystore.location={path}", clock=clock)
    before = found.context
    with caplog.at_level(logging.INFO):
        path.write_text(Path(world.keystore).read_text())
        found.look()
        assert found.context is before
        assert f"stays in use, since the new files cannot be used: SSL: the certificate of CN=server {told}" in (
            caplog.text
        )
        caplog.clear()
        found.look()
        assert found.context is before and not messages(caplog, "oncelog.server")
        clock.set_wall(now_ms + DAY_MS)
        found.look()
    assert (found.context is not before) is (days < 0)


def test_where_both_are_over_the_new_one_counts(world: World, tmp_path: Path) -> None:
    path, clock = tmp_path / "keystore.pem", ManualClock(int(time.time() * 1000) + 40 * DAY_MS)
    path.write_text(Path(world.keystore).read_text())
    found = tls(f"ssl.keystore.location={path}", clock=clock)
    before = found.context
    path.write_text(Path(keystore(world.client)).read_text())
    found.look()
    assert found.context is not before
