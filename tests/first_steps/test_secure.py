"""`oncelog.secure`: a server that is safe on every interface, and whose files let its user in."""

import logging
import os
import re
import shlex
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from cryptography.hazmat.primitives import serialization

import oncelog
from oncelog.cli import main
from oncelog.client import Producer
from oncelog.client.admin import AdminClient
from oncelog.clock import DAY_MS
from oncelog.cluster.stored_documents import change_in_folder
from oncelog.embedded import open_broker
from oncelog.first_steps import files
from oncelog.first_steps.certificates import ends_ms, make_authority, names_in, sign_server
from oncelog.first_steps.files import RENEW_MS, SecureFolder, names_of, write_private
from oncelog.first_steps.secured import SecuredService
from oncelog.security.documents import Kind
from oncelog.server.endpoints import Endpoint
from oncelog.server.secure import AUTHORIZER
from oncelog.server.settings_reading import read_settings
from oncelog.server.users import adding, new_credentials
from oncelog.settings import SettingsError
from tests.logged import messages
from tests.raw import RawConnection, ServerClosed

NOW_MS = 1_800_000_000_000


def produce(config: dict[str, str]) -> list[object]:
    told: list[object] = []
    producer = Producer({**config, "delivery.timeout.ms": "10000"})
    producer.produce("t", b"1", on_delivery=lambda error, message: told.append(error))
    producer.flush(10)
    return told


def test_the_user_gets_in_and_may_do_everything() -> None:
    with oncelog.Server(secure=True) as server:
        assert produce(server.client_config) == [None]


def test_librdkafka_gets_in_by_the_same_file() -> None:
    from confluent_kafka import Producer as Librdkafka

    told: list[object] = []
    with oncelog.Server(secure=True) as server:
        producer = Librdkafka(server.client_config)
        producer.produce("t", b"1", on_delivery=lambda error, message: told.append(error))
        producer.flush(10)
    assert told == [None]


def test_one_line_of_settings_is_enough() -> None:
    with oncelog.Server(settings={"oncelog.secure": "true"}) as server:
        assert server.client_config["security.protocol"] == "sasl_ssl"
        assert produce(server.client_config) == [None]


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_nobody_else_does(host: str) -> None:
    with oncelog.Server(secure=True, listeners=f"SASL_SSL://{host}:0") as server:
        config = server.client_config
        with pytest.raises((ServerClosed, OSError)), RawConnection(server.bootstrap_servers) as raw:
            raw.call("metadata", 9, topics=[])
        with pytest.raises(oncelog.client.KafkaException):
            AdminClient({**config, "sasl.password": "guessed"}).list_topics(timeout=5)
        with pytest.raises(oncelog.client.KafkaException):
            AdminClient({**config, "security.protocol": "ssl"}).list_topics(timeout=5)


def told_by(server: oncelog.Server) -> str:
    return SecuredService(server.broker).for_people


def test_people_are_told_of_the_only_user_and_of_several(tmp_path: Path) -> None:
    with oncelog.Server(secure=True, data_dir=str(tmp_path)) as server:
        assert "Only the user admin gets in, by password, and may do everything. " in told_by(server)
    change_in_folder(str(tmp_path), Kind.USERS, adding("ann", new_credentials("s3cret")))
    with oncelog.Server(secure=True, data_dir=str(tmp_path)) as server:
        assert "2 users get in by password. These files have that of admin, " in told_by(server)


def test_a_second_start_uses_what_is_there(tmp_path: Path) -> None:
    with oncelog.Server(secure=True, data_dir=str(tmp_path)) as server:
        first = server.client_config
        produce(first)
    with oncelog.Server(secure=True, data_dir=str(tmp_path)) as server:
        assert server.client_config["sasl.password"] == first["sasl.password"]
        assert produce({**first, "bootstrap.servers": server.bootstrap_servers}) == [None]
        said = (tmp_path / "secure" / "client.properties").read_text()
        assert f"bootstrap.servers={server.bootstrap_servers}\n" in said


def test_a_password_that_is_gone_is_not_made_up(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with oncelog.Server(secure=True, data_dir=str(tmp_path)) as server:
        first = server.client_config
    (tmp_path / "secure" / "client.properties").unlink()
    with oncelog.Server(secure=True, data_dir=str(tmp_path)) as server:
        assert produce({**first, "bootstrap.servers": server.bootstrap_servers}) == [None]
        (remedy,) = re.findall(r"is gone: .* run `oncelog (users remove admin --data \S+)`", caplog.text)
        assert "client.properties" not in (told := told_by(server)) and f"start again after\n  oncelog {remedy}" in told
    assert CliRunner().invoke(main, shlex.split(remedy)).exit_code == 0
    with oncelog.Server(secure=True, data_dir=str(tmp_path)) as server:
        assert server.client_config["sasl.password"] != first["sasl.password"]
        assert produce(server.client_config) == [None]


def test_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with oncelog.Server(secure=True, data_dir=str(tmp_path / "data")):
            pass
    finally:
        os.umask(before)
    for path in (tmp_path / "data", tmp_path / "data" / "secure"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    for path in (tmp_path / "data" / "secure").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


def test_what_it_means_for_settings() -> None:
    settings = read_settings({"oncelog.secure": "true", "log.dir": "data", "super.users": "User:root"})
    assert settings.listeners == ("SASL_SSL://127.0.0.1:9092",)
    assert settings.ssl_keystore_location == "data/secure/server.pem"
    assert settings.authorizer_class_name == AUTHORIZER
    assert settings.super_users == "User:root;User:admin"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"listeners": "PLAINTEXT://127.0.0.1:0"}, "the listener PLAINTEXT is PLAINTEXT"),
        ({"listeners": "SASL_PLAINTEXT://127.0.0.1:0"}, "make it SASL_SSL or SSL"),
        ({"authorizer.class.name": ""}, "would let every user do everything"),
        ({"oncelog.cluster": "zk://a:1/b"}, "a server that stands alone"),
    ],
)
def test_what_contradicts_it_is_said(given: dict[str, str], told: str) -> None:
    with pytest.raises(SettingsError, match=told):
        read_settings({"oncelog.secure": "true", **given})


def test_without_the_library_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("cryptography", "oncelog.first_steps.secured", "oncelog.first_steps.certificates"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    monkeypatch.delattr("oncelog.first_steps.secured", raising=False)
    monkeypatch.delitem(sys.modules, "oncelog.first_steps.files", raising=False)
    with pytest.raises(SettingsError, match=r"pip install 'oncelog\[secure\]'"):
        oncelog.Server(secure=True, data_dir=str(tmp_path))


# Certificates


def test_a_certificate_is_for_every_name_of_the_machine() -> None:
    wildcard = names_of([Endpoint("SASL_SSL", "SASL_SSL", "0.0.0.0", 9092, None, None)])
    assert {"localhost", "127.0.0.1", "::1"} <= wildcard
    assert "0.0.0.0" not in wildcard
    told = names_of([Endpoint("SASL_SSL", "SASL_SSL", "10.1.2.3", 9092, "log.example", None)])
    assert {"10.1.2.3", "log.example"} <= told


@pytest.mark.parametrize("host", ["0:0:0:0:0:0:0:1", "2001:DB8::1", "::ffff:10.1.2.3", "fe80::1%eth0"])
def test_an_address_is_found_in_it_again_however_it_is_written(host: str, tmp_path: Path) -> None:
    """Otherwise each look makes another certificate."""
    names = names_of([Endpoint("SASL_SSL", "SASL_SSL", host, 9092, None, None)])
    folder = SecureFolder(str(tmp_path))
    assert folder.make_certificates(names, NOW_MS)
    assert not folder.make_certificates(names, NOW_MS)


def test_openssl_takes_it_for_good(tmp_path: Path) -> None:
    folder = SecureFolder(str(tmp_path))
    folder.make_certificates(frozenset({"localhost", "::1"}), int(time.time() * 1000))
    order = ["openssl", "verify", "-x509_strict", "-purpose", "sslserver", "-verify_hostname", "localhost"]
    order += ["-CAfile", str(tmp_path / "authority.pem"), str(tmp_path / "server.pem")]
    assert subprocess.run(order, capture_output=True, text=True, timeout=60, check=True).stdout.endswith("OK\n")


@pytest.mark.parametrize(("later_days", "is_new"), [(0, False), (200, False), (310, True), (1000, True)])
def test_it_is_renewed_when_it_nears_its_end(later_days: int, is_new: bool, tmp_path: Path) -> None:
    folder, names = SecureFolder(str(tmp_path)), frozenset({"localhost"})
    assert folder.make_certificates(names, NOW_MS)
    authority = (tmp_path / "authority.pem").read_bytes()
    later_ms = NOW_MS + later_days * DAY_MS
    assert folder.make_certificates(names, later_ms) is is_new
    assert ends_ms((tmp_path / "server.pem").read_bytes()) - later_ms > RENEW_MS
    assert (tmp_path / "authority.pem").read_bytes() == authority


def test_it_follows_names_and_keeps_those_it_had(tmp_path: Path) -> None:
    folder = SecureFolder(str(tmp_path))
    folder.make_certificates(frozenset({"localhost", "10.0.0.1"}), NOW_MS)
    assert folder.make_certificates(frozenset({"localhost", "10.0.0.2"}), NOW_MS)
    assert names_in((tmp_path / "server.pem").read_bytes()) == {"localhost", "10.0.0.1", "10.0.0.2"}


def is_trusted(folder: Path) -> bool:
    order = ["openssl", "verify", "-CAfile", str(folder / "authority.pem"), str(folder / "server.pem")]
    return subprocess.run(order, capture_output=True, timeout=60).returncode == 0


def test_the_key_of_the_authority_may_be_kept_elsewhere_until_it_has_to_sign(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, names, now_ms = SecureFolder(str(tmp_path)), frozenset({"localhost"}), int(time.time() * 1000)
    folder.make_certificates(names, now_ms)
    authority = (tmp_path / "authority.pem").read_bytes()
    (tmp_path / "authority.key").unlink()
    assert not folder.make_certificates(names, now_ms)
    assert (tmp_path / "authority.pem").read_bytes() == authority and is_trusted(tmp_path)
    assert not messages(caplog, "oncelog.first_steps")
    assert not folder.make_certificates(names | {"log.example"}, now_ms)
    assert (tmp_path / "authority.pem").read_bytes() == authority, "for those who trust it"
    (told,) = messages(caplog, "oncelog.first_steps")
    assert re.search(r"authority\.key, and ends in 36\d days; it lacks .*log\.example\. Bring the key back", told)
    assert folder.make_certificates(names, now_ms + 366 * DAY_MS)
    assert "clients on other machines need the new" in messages(caplog, "oncelog.first_steps")[-1]


def test_whom_clients_trust_has_signed_it_also_where_its_file_was_gone(tmp_path: Path) -> None:
    folder, names, now_ms = SecureFolder(str(tmp_path)), frozenset({"localhost"}), int(time.time() * 1000)
    folder.make_certificates(names, now_ms)
    (tmp_path / "authority.pem").unlink()
    assert folder.make_certificates(names, now_ms)
    assert is_trusted(tmp_path) and not folder.make_certificates(names, now_ms)


def encrypted(key: bytes) -> bytes:
    read = serialization.load_pem_private_key(key, None)
    kind = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return read.private_bytes(*kind, serialization.BestAvailableEncryption(b"x"))


@pytest.mark.parametrize(
    ("name", "harm", "told"),
    [
        ("server.pem", lambda data: b"", "server.pem is not, or no longer, the certificate"),
        ("server.pem", lambda data: data[:300], "server.pem is not, or no longer, the certificate"),
        ("server.pem", lambda data: data[300:], "server.pem is not, or no longer, the certificate"),
        ("server.pem", lambda data: make_authority(NOW_MS).certificate, "server.pem is not, or no longer, the certifi"),
        ("authority.pem", lambda data: b"", "restore them, or take both away"),
        ("authority.pem", lambda data: data[:300], "restore them, or take both away"),
        ("authority.pem", lambda data: make_authority(NOW_MS).certificate, "restore them, or take both away"),
        ("authority.key", lambda data: b"", "restore them, or take both away"),
        ("authority.key", encrypted, "restore them, or take both away"),
        ("authority.key", lambda data: make_authority(NOW_MS).key, "restore them, or take both away"),
    ],
)
def test_a_file_that_is_damaged_is_named_and_left_alone(
    name: str, harm: Callable[[bytes], bytes], told: str, tmp_path: Path
) -> None:
    folder, names, now_ms = SecureFolder(str(tmp_path)), frozenset({"localhost"}), int(time.time() * 1000)
    folder.make_certificates(names, now_ms)
    path = tmp_path / name
    harmed = harm(path.read_bytes())
    path.write_bytes(harmed)
    more = names | {"log.example"} if name == "authority.key" else names  # it is read where something is to be signed
    with pytest.raises(SettingsError, match=told):
        folder.make_certificates(more, now_ms)
    assert path.read_bytes() == harmed
    for gone in tmp_path.glob(f"{name.partition('.')[0]}.*"):  # as it is told
        gone.unlink()
    assert folder.make_certificates(more, now_ms) and is_trusted(tmp_path)


@pytest.mark.parametrize("lost", ["authority.pem", "authority.key"])
@pytest.mark.parametrize("written", [0, 1, 2])
def test_a_crash_between_two_files_leaves_no_key_beside_another_authority(
    lost: str, written: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, names, now_ms = SecureFolder(str(tmp_path)), frozenset({"localhost"}), int(time.time() * 1000)
    folder.make_certificates(names, now_ms)
    (tmp_path / lost).unlink()
    (tmp_path / "server.pem").unlink()
    done: list[Path] = []

    def write(path: Path, data: bytes) -> None:
        if len(done) == written:
            raise KeyboardInterrupt
        done.append(path)
        write_private(path, data)

    with monkeypatch.context() as crashing:
        crashing.setattr(files, "write_private", write)
        with pytest.raises(KeyboardInterrupt):
            folder.make_certificates(names | {"log.example"}, now_ms)
    folder.make_certificates(names | {"log.example"}, now_ms)
    assert is_trusted(tmp_path)


def test_a_file_for_clients_that_is_no_text_is_named(tmp_path: Path) -> None:
    folder = SecureFolder(str(tmp_path))
    folder.client_file.write_bytes(b"# \xe4\nsasl.password=x\n")
    with pytest.raises(SettingsError, match=r"client.properties is no UTF-8"):
        folder.password()


def test_keys_are_not_shown() -> None:
    authority = make_authority(NOW_MS)
    assert "BEGIN" not in repr(authority)
    assert "BEGIN" not in repr(sign_server(authority, ["localhost"], NOW_MS))


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.with_name("file.tmp").write_text("what a crash has left")
    write_private(path, b"1")
    write_private(path, b"2")
    assert path.read_bytes() == b"2"
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_it_is_renewed_while_the_server_runs(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with oncelog.Server(secure=True, data_dir=str(tmp_path)) as server, caplog.at_level(logging.INFO):
        store = tmp_path / "secure" / "server.pem"
        authority = SecureFolder(str(tmp_path / "secure")).authority(0)
        nearly = sign_server(authority, ["localhost"], int(time.time() * 1000) - 350 * DAY_MS)
        write_private(store, nearly.key + nearly.certificate + authority.certificate)
        server.call(server.broker.look_at_certificates)
        before_ms = server.broker.tls["SASL_SSL"].ends_ms
        server.call(server.service.renew)  # type: ignore[attr-defined]
        assert server.broker.tls["SASL_SSL"].ends_ms > before_ms + 300 * DAY_MS
        assert produce(server.client_config) == [None]


def test_without_what_makes_certificates_a_start_is_refused_before_anything_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "oncelog.first_steps.secured")
    monkeypatch.delattr(oncelog.first_steps, "secured")
    monkeypatch.setitem(sys.modules, "cryptography", None)
    for name in [name for name in sys.modules if name.startswith(("cryptography.", "oncelog.first_steps."))]:
        monkeypatch.delitem(sys.modules, name)
    data = tmp_path / "data"
    with pytest.raises(SettingsError, match=r"oncelog\[secure\]"):
        open_broker(read_settings({"log.dir": str(data), "oncelog.secure": "true"}))
    assert not data.exists()
