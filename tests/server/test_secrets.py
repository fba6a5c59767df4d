"""Secrets are in no line that a server prints, in no answer, in no `repr`, and in no command line."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from oncelog.chaos.life import free_ports
from oncelog.cluster.parent import Parent
from oncelog.server.setting_names import setting_named
from oncelog.server.settings import SETTINGS
from oncelog.server.settings_reading import read_settings
from oncelog.settings import HIDDEN, SettingsError
from tests.client.net.certificates import PASSWORD
from tests.raw import RawConnection
from tests.server.tls_support import World, new_world
from tests.waiting import until

SECRETS = [name for name, setting in SETTINGS.items() if setting.is_secret]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return new_world(tmp_path_factory.mktemp("certificates"))


def one_line(path: str) -> str:
    return Path(path).read_text().replace("\n", " ")


def test_there_are_some() -> None:
    assert {"ssl.keystore.key", "ssl.key.password"} <= set(SECRETS)


@pytest.mark.parametrize("name", SECRETS)
def test_settings_are_printed_without_them(name: str) -> None:
    own = f"listener.name.plaintext.{name}" if name.startswith("ssl.") else name
    settings = read_settings({name: "hunter2", own: "hunter3"})
    for text in (repr(settings), str(settings), repr(settings.given), str(settings.given), f"{settings.given}"):
        assert "hunter" not in text
    assert HIDDEN in repr(settings.given)


@pytest.mark.parametrize("name", SECRETS)
def test_what_is_wrong_is_told_without_them(name: str, tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"{name}=hunter1\n{name}=hunter2\n")
    for given in ([f"{name}=hunter1", f"{name}=hunter2"], [f"{name}=hunter1", "num.partitions=x"]):
        with pytest.raises(SettingsError) as refused:
            read_settings(given, file=file)
        assert "hunter" not in str(refused.value)


def test_nothing_that_a_server_says_or_answers_has_them(world: World, tmp_path: Path) -> None:
    """From its start to its end: what it prints, what it answers about its settings, and what the machine shows."""
    (port,) = free_ports(1)
    secrets = [PASSWORD, *(line for line in one_line(world.server.locked_key).split() if len(line) > 40)]
    command = [sys.executable, "-m", "oncelog", "serve", "--data", str(tmp_path / "data")]
    command += ["--set", f"listeners=SSL://127.0.0.1:{port}", "--set", "ssl.key.password=${env:KEY_PASSWORD}"]
    command += ["--set", f"ssl.keystore.key=${{dir:{world.folder}:{Path(world.server.locked_key).name}}}"]
    command += ["--set", f"ssl.keystore.certificate.chain={one_line(world.server.certificate)}"]
    environment = os.environ | {"KEY_PASSWORD": PASSWORD}
    log = tmp_path / "log"
    with open(log, "wb") as out:
        server = subprocess.Popen(command, env=environment, stdout=out, stderr=subprocess.STDOUT)
    try:
        until(lambda: "listens on" in log.read_text() or server.poll() is not None, "the server to start")
        seen = [Path(f"/proc/{server.pid}/cmdline").read_text()] if Path("/proc/self/cmdline").exists() else []
        with RawConnection(port, tls=world.context()) as raw:
            resource = {"resource_type": 4, "resource_name": "1", "configuration_keys": None}
            answer = raw.call(
                "describe_configs", 4, resources=[resource], include_synonyms=True, include_documentation=True
            )
            seen.append(repr(answer))
            told = {each.name: each for each in answer.results[0].configs}
            for name in SECRETS:
                assert told[name].is_sensitive
                assert told[name].value is None
            assert not told["num.partitions"].is_sensitive
    finally:
        server.terminate()
        server.wait(30)
    seen.append(log.read_text())
    assert not [secret for secret in secrets for text in seen if secret in text]


def test_no_command_line_of_a_clusters_brokers_has_them(tmp_path: Path) -> None:
    settings = {"ssl.key.password": "hunter2", "num.partitions": "3"}
    with Parent(str(tmp_path), 1, settings) as cluster:
        if Path("/proc/self/cmdline").exists():
            shown = Path(f"/proc/{cluster.pid(1)}/cmdline").read_text()
            shown += Path(f"/proc/{cluster.pid(1)}/environ").read_text()
            assert "hunter2" not in shown
        with RawConnection(cluster.bootstrap_servers) as raw:
            resource = {"resource_type": 4, "resource_name": "1", "configuration_keys": ["num.partitions"]}
            answer = raw.call("describe_configs", 4, resources=[resource], include_synonyms=False)
            assert answer.results[0].configs[0].value == "3"  # it was told all the same
    assert "hunter2" not in cluster.output(1)


def test_every_listener_setting_is_known_by_its_own_name() -> None:
    assert setting_named("listener.name.internal.ssl.key.password") is SETTINGS["ssl.key.password"]
    assert setting_named("listener.name.internal.num.partitions") is None
