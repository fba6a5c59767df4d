"""`oncelog doctor` as a command: what it prints, and its exit code."""

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from oncelog.chaos.life import free_ports
from oncelog.cli import main
from oncelog.cli.doctor import show
from oncelog.cluster.stored_documents import change_in_folder
from oncelog.doctor.finding import ok
from oncelog.embedded import Server
from oncelog.security.documents import Kind
from oncelog.server.secure import AUTHORIZER
from tests.cli.running import Said


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def free_port() -> int:
    return free_ports(1)[0]


def worked_s() -> float:
    """Seconds of a processor, with those of the programs that were asked: others may keep it busy meanwhile."""
    return sum(os.times()[:4])


def test_a_certificate_cannot_speak_to_the_terminal_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    show([ok("listener", "certificate of CN=x\x1b]0;title\x07")])
    assert "CN=x\\x1b]0;title\\x07" in capsys.readouterr().out


def doctor(port: int, *arguments: str) -> Said:
    done = CliRunner().invoke(main, ["doctor", "--listen", f"127.0.0.1:{port}", *arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return Said(done.exit_code, done.stdout_bytes, done.stderr)


def test_where_all_is_there_it_says_so_in_little_time_and_leaves_nothing(free_port: int, tmp_path: Path) -> None:
    before_s = worked_s()
    said = doctor(free_port, "--data", "data")
    assert said.code == 0, said
    assert worked_s() - before_s < 2
    assert said.lines[-1] == "All that is needed is there."
    assert not list(tmp_path.iterdir())


def test_what_is_missing_is_a_line_and_its_remedy_another(free_port: int, tmp_path: Path) -> None:
    (tmp_path / "data").touch()
    said = doctor(free_port, "--data", "data")
    assert said.code == 1
    at = next(at for at, line in enumerate(said.lines) if line.startswith("missing"))
    assert said.lines[at].split(maxsplit=3)[1:3] == ["data", "folder"]
    assert said.lines[at + 1].strip() == "-> name another folder: oncelog serve --data DIR"
    assert said.lines[-1] == "1 missing."


def test_programs_are_told_the_same_as_people(free_port: int) -> None:
    said = doctor(free_port, "--json", "-b", "127.0.0.1:1", "--data", "data")
    told = json.loads(said.out)
    assert said.code == 1
    assert told["is_ready"] is False
    missing = {each["name"]: each for each in told["findings"] if each["verdict"] == "missing"}
    assert list(missing) == ["brokers"]
    assert missing["brokers"]["facts"] == {"address": "127.0.0.1:1"}
    assert {"python", "core", "[spark]", "java", "data folder", f"port {free_port}", "open files"} <= {
        each["name"] for each in told["findings"]
    }


def test_a_cluster_is_looked_at_where_one_is_named_and_only_there(free_port: int) -> None:
    def names(*arguments: str) -> set[str]:
        return {each["name"] for each in doctor(free_port, "--json", *arguments).json["findings"]}

    with Server() as server:
        assert {"server", "broker 1"} <= names("-b", server.bootstrap_servers)
        assert {"server", "broker 1"} <= names("-X", f"bootstrap.servers={server.bootstrap_servers}")
    assert not {"server", "brokers"} & names()


def test_settings_that_stop_the_server_are_told(free_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONCELOG_NUM_PARTITIONS", "many")
    said = doctor(free_port, "--data", "data")
    assert said.code == 1
    assert any("num.partitions=many" in line for line in said.lines if line.startswith("missing"))


def test_a_property_that_nobody_knows_is_wrong_usage(free_port: int) -> None:
    said = doctor(free_port, "-b", "127.0.0.1:1", "-X", "bootstrp=1")
    assert said.code == 2
    assert "bootstrp" in said.err


def test_settings_of_rights_that_nobody_asks_for_are_told(free_port: int, tmp_path: Path) -> None:
    (tmp_path / "server.properties").write_text("super.users=User:root\n")
    said = doctor(free_port, "--config", "server.properties")
    assert said.code == 0
    assert [line for line in said.lines if line.startswith("note") and "super.users counts for nothing" in line]


def test_a_folder_that_was_secured_and_is_to_be_served_plainly_is_told(free_port: int, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    change_in_folder(str(folder), Kind.USERS, lambda users: {**users, "ann": {}})
    change_in_folder(str(folder), Kind.ACLS, lambda rules: {**rules, "a rule": {}})
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    def told(*settings: str) -> list[str]:
        (tmp_path / "server.properties").write_text("".join(f"{each}\n" for each in settings))
        said = doctor(free_port, "--data", "data", "--config", "server.properties")
        return [line for line in said.lines if line.startswith("note") and " rights " in line]

    plain = [line for line in doctor(free_port, "--data", "data").lines if " rights " in line]
    assert ["access rules: 1. They count for nothing" in plain[0], "users with a password: 1." in plain[1]] == [
        True
    ] * 2
    assert told("oncelog.secure=true") == []
    assert told(f"authorizer.class.name={AUTHORIZER}") == []
    assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}, "nothing is changed"
