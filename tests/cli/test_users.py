"""`oncelog users`: before a server's first start, while it runs, and between two starts."""

import subprocess
import sys
from pathlib import Path

import pytest
from click import termui

from oncelog.cli import main, users
from oncelog.embedded import Server
from oncelog.security.scram import is_password
from tests.cli.running import Oncelog
from tests.server.sasl_support import ANN, PASSWORD, guarded
from tests.waiting import until

BOTH = [("SCRAM-SHA-256", 8192), ("SCRAM-SHA-512", 8192)]


def listed(oncelog: Oncelog, *options: str) -> list[tuple[str, str, int]]:
    rows = oncelog("users list", "-J", *options).json
    return [(row["user"], row["mechanism"], row["iterations"]) for row in rows]


def stored(folder: Path) -> dict[str, dict[str, int]]:
    """What a server finds there when it starts."""
    with Server(data_dir=str(folder)) as server:
        now = server.broker.users.now
        return {name: now.mechanisms(name) for name in now.names}


def test_users_come_get_other_passwords_and_go(oncelog: Oncelog, server: Server) -> None:
    assert oncelog("users").lines == ["USER  MECHANISM  ITERATIONS"]
    oncelog("users add", "ann", "--password-file", "-", stdin=b"one\nnot this\n")
    oncelog("users add", "bob", "--password-file", "-", "--mechanism", "SCRAM-SHA-512", stdin=b"two")
    assert listed(oncelog) == [*(("ann", *each) for each in BOTH), ("bob", "SCRAM-SHA-512", 8192)]
    oncelog("users add", "ann", "--password-file", "-", "--iterations", "5000", stdin=b"three\r\n")
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        found = server.broker.users.now.find(mechanism, "ann")
        assert is_password(mechanism, "three", found) and not is_password(mechanism, "one", found)
    assert listed(oncelog, "bob") == [("bob", "SCRAM-SHA-512", 8192)]
    assert "there is no user bop; the nearest known one is bob" in oncelog.run("users list", "bop").refusal
    oncelog("users remove", "ann", "--mechanism", "scram-sha-256")
    assert listed(oncelog) == [("ann", "SCRAM-SHA-512", 5000), ("bob", "SCRAM-SHA-512", 8192)]
    assert oncelog.run("users remove", "ann", "--mechanism", "SCRAM-SHA-256").refusal == "ann has only SCRAM-SHA-512"
    oncelog("users remove", "ann")
    oncelog("users remove", "bob")
    assert oncelog.run("users remove", "bob").refusal == "there is no user bob: `oncelog users` lists all"


def test_the_first_user_comes_to_be_before_the_first_start(oncelog: Oncelog, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    oncelog("users add", "ann", "--data", str(folder), "--password-file", "-", stdin=b"one\n")
    assert stored(folder) == {"ann": dict(BOTH)}
    oncelog("users add", "bob", "--data", str(folder), "--password-file", "-", stdin=b"two\n")
    assert stored(folder) == {"ann": dict(BOTH), "bob": dict(BOTH)}
    oncelog("users remove", "ann", "--data", str(folder), "--mechanism", "SCRAM-SHA-256")
    oncelog("users remove", "bob", "--data", str(folder))
    assert stored(folder) == {"ann": {"SCRAM-SHA-512": 8192}}
    assert oncelog.run("users remove", "bob", "--data", str(folder)).refusal == "there is no user bob"


def test_users_are_listed_where_no_server_runs(oncelog: Oncelog, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    words = ("--data", str(folder))
    assert "is no server's data folder: `oncelog users add NAME --data" in oncelog.run("users list", *words).refusal
    assert not folder.exists()
    for name in ("bob", "ann"):
        oncelog("users add", name, *words, "--password-file", "-", stdin=b"one\n")
    assert listed(oncelog, *words) == [(name, *each) for name in ("ann", "bob") for each in BOTH]
    assert listed(oncelog, "bob", *words) == [("bob", *each) for each in BOTH]
    refusal = oncelog.run("users list", "bop", *words).refusal
    assert refusal.startswith("there is no user bop; the nearest known one is bob")
    assert "name one of them" in oncelog.run("users list", *words, "--cluster", "zk://127.0.0.1:1/x").refusal


def test_any_node_may_begin_in_a_folder_that_has_only_users(oncelog: Oncelog, tmp_path: Path) -> None:
    oncelog("users add", "ann", "--data", str(tmp_path), "--password-file", "-", stdin=b"one\n")
    with Server(data_dir=str(tmp_path), settings={"node.id": 7}) as server:
        assert server.broker.users.now.names == ["ann"]


def test_a_folder_that_a_server_runs_in_is_left_alone(oncelog: Oncelog, server: Server) -> None:
    refused = oncelog.run("users add", "ann", "--data", server.data_dir, "--password-file", "-", stdin=b"one\n")
    assert "is in use by process" in refused.refusal
    assert "is in use by process" in oncelog.run("users list", "--data", server.data_dir).refusal


def test_what_is_stored_while_nobody_runs_survives_with_the_topics(oncelog: Oncelog, tmp_path: Path) -> None:
    folder = str(tmp_path)
    with Server(data_dir=folder) as server:
        Oncelog(server.bootstrap_servers)("topics create", "orders")
        start = server.broker.cluster.cluster_id
    oncelog("users add", "ann", "--data", folder, "--password-file", "-", stdin=b"one\n")
    with Server(data_dir=folder) as server:
        assert server.broker.topics.get("orders") is not None and server.broker.cluster.cluster_id == start
        assert server.broker.users.now.names == ["ann"]


def test_a_cluster_on_one_machine_has_users_too(oncelog: Oncelog, tmp_path: Path) -> None:
    with Server(brokers=3, data_dir=str(tmp_path)):
        pass
    oncelog("users add", "ann", "--data", str(tmp_path), "--password-file", "-", stdin=b"one\n")
    assert listed(oncelog, "--data", str(tmp_path)) == [("ann", *each) for each in BOTH]
    with Server(brokers=3, data_dir=str(tmp_path)) as server:
        there = Oncelog(server.bootstrap_servers)
        assert listed(there) == [("ann", *each) for each in BOTH]
        there("users add", "bob", "--password-file", "-", stdin=b"two")
        until(lambda: len(listed(there)) == 4, "the broker that is asked to hear of it")
        there("users remove", "ann")
        until(lambda: listed(there) == [("bob", *each) for each in BOTH], "the broker that is asked to hear of it")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--password-file", "-"], "the first line of --password-file is empty"),
        (["--password-env", "NOT_SET_ANYWHERE"], "the variable NOT_SET_ANYWHERE is empty"),
        (["--password-env", "X", "--password-file", "-"], "name one of them"),
        (["--iterations", "4095"], "4095 is not in the range"),
    ],
)
def test_what_is_no_password(oncelog: Oncelog, options: list[str], words: str) -> None:
    assert words in oncelog.run("users add", "ann", *options).refusal


@pytest.mark.parametrize("letter", ["p", "\u00e9", "\u20ac"])
def test_a_password_is_never_cut_to_its_beginning(oncelog: Oncelog, letter: str) -> None:
    """Whoever shows all of it would not get in."""
    longest = letter.encode() * (4096 // len(letter.encode()))
    assert oncelog.run("users add", "ann", "--password-file", "-", stdin=longest + b"\r\n").code == 0
    refused = oncelog.run("users add", "ann", "--password-file", "-", stdin=longest + letter.encode() * 9 + b"\n")
    assert "longer than a password may be: 4,096 bytes" in refused.refusal
    oncelog("users remove", "ann")


def test_a_name_or_a_password_that_is_no_text_is_refused(
    oncelog: Oncelog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_PASSWORD", "\udcff")
    refused = oncelog.run("users add", "ann", "--password-env", "SOME_PASSWORD")
    assert "the variable SOME_PASSWORD is no UTF-8" in refused.refusal
    monkeypatch.setenv("SOME_PASSWORD", "one")
    refused = oncelog.run("users add", "\udcff", "--data", str(tmp_path), "--password-env", "SOME_PASSWORD")
    assert "A user's name must be UTF-8" in refused.refusal


def test_a_password_comes_from_the_environment_or_is_asked_for(
    oncelog: Oncelog, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_PASSWORD", "one")
    monkeypatch.setattr(users, "can_ask", lambda: True)
    oncelog("users add", "ann", "--password-env", "SOME_PASSWORD")
    said = oncelog("users add", "bob", stdin=b"two\ntwo\n")
    assert said.out == b"" and "two" not in said.err
    for name, password in (("ann", "one"), ("bob", "two")):
        found = server.broker.users.now.find("SCRAM-SHA-256", name)
        assert is_password("SCRAM-SHA-256", password, found)
        oncelog("users remove", name)


@pytest.mark.parametrize(("pressed", "code"), [(KeyboardInterrupt, 130), (EOFError, 1)])
def test_ctrl_c_where_a_password_is_asked_for_ends_as_it_does_elsewhere(
    pressed: type[BaseException], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hidden(words: str) -> str:
        raise pressed

    monkeypatch.setattr(users, "can_ask", lambda: True)
    monkeypatch.setattr(termui, "hidden_prompt_func", hidden)
    with pytest.raises(SystemExit) as end:
        main(["users", "add", "ann", "--data", str(tmp_path / "data")], prog_name="oncelog")
    assert end.value.code == code


def test_without_a_terminal_one_is_told_how_else_to_give_the_password(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "oncelog", "users", "add", "ann", "--data", str(tmp_path / "data")]
    done = subprocess.run(command, input=b"one\none\n", capture_output=True, start_new_session=True, timeout=60)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    assert b"--password-file FILE" in done.stderr and b"--password-env NAME" in done.stderr


def test_a_command_proves_who_it_is_by_a_file_or_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with guarded() as at:
        file = tmp_path / "client.properties"
        file.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\nsasl.username={ANN}\n")
        monkeypatch.setenv("ONCELOG_CLIENT_SASL_PASSWORD", PASSWORD)
        assert len(listed(Oncelog(at.address), "-F", str(file))) == 2
        monkeypatch.setenv("ONCELOG_CLIENT_SASL_PASSWORD", "wrong one")
        refusal = Oncelog(at.address).run("users", "-F", str(file)).refusal
        assert "are `sasl.username` and `sasl.password` right" in refusal and "wrong one" not in refusal
