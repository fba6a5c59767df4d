"""Ctrl-C at any moment, and even kill -9, ends whatever the experiment has started, and leaves nothing listening."""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from oncelog.chaos.guard import VARIABLE, Guard, marked
from tests.waiting import until

ORDER = ("--messages", "10000000", "--rate", "5000", "--kill", "connections,server,producer", "--every", "2000")
SEED = 20261121
STARTS_S = 120.0  # four Pythons one after the other, each of which imports for a second where nobody else is at work


@pytest.fixture
def experiment(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    with open(tmp_path / "said", "wb") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "oncelog", "chaos", *ORDER],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            env={**os.environ, "TMPDIR": str(tmp_path)},
            start_new_session=True,
        )
    yield process
    process.kill()
    process.wait()


def children(tmp_path: Path) -> list[int]:
    """All processes below the experiment that know its temporary folder by their arguments, and the guard."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                variables = (entry / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if any(each.startswith(f"TMPDIR={tmp_path}".encode()) for each in variables):
                found.append(int(entry.name))
    return found


def opened(pid: int) -> set[str]:
    """What its file descriptors lead to. Others open and close meanwhile, and so does it."""
    found = set()
    with suppress(OSError):
        for each in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                found.add(os.readlink(each))
    return found


def listening() -> set[str]:
    """The sockets of this machine that listen, by what tells them from a later one on the same port."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    return {f"socket:[{columns[9]}]" for line in lines if (columns := line.split())[3] == "0A"}


def listening_below(tmp_path: Path) -> set[str]:
    return listening() & {each for pid in children(tmp_path) for each in opened(pid)}


@pytest.mark.parametrize("moment", [0, 2, 4, *(pytest.param(each, marks=pytest.mark.thorough) for each in (1, 3, 5))])
def test_ctrl_c_ends_everything(experiment: subprocess.Popen[bytes], tmp_path: Path, moment: int) -> None:
    """From before anything was started on."""
    chance = random.Random(f"{SEED} {moment}")
    if moment:
        until(lambda: len(children(tmp_path)) > min(moment, 3), "as many processes", give_up_seconds=STARTS_S)
    try:
        experiment.wait(chance.uniform(0.0, 0.4))  # somewhere in what comes next
    except subprocess.TimeoutExpired:
        pass
    sockets = listening_below(tmp_path)
    if moment >= 3:
        sockets = until(lambda: listening_below(tmp_path), "the proxy at least", give_up_seconds=STARTS_S)
    experiment.send_signal(signal.SIGINT)
    code, said = experiment.wait(30), (tmp_path / "said").read_text()
    # A Python that is interrupted while it starts tells of that itself, and of nothing of ours.
    is_starting = moment == 0 and code == 1 and "src/oncelog" not in said
    assert code in (130, -signal.SIGINT) or is_starting, said
    until(lambda: not children(tmp_path), "the end of all processes")
    assert not sockets & listening()
    if experiment.returncode == 130:
        assert list(tmp_path.glob("oncelog-chaos-*")) == [], "its folder is gone, too"


def test_kill_9_of_the_experiment_ends_what_it_has_started(experiment: subprocess.Popen[bytes], tmp_path: Path) -> None:
    until(lambda: len(children(tmp_path)) > 3, "the guard, the server and the producer", give_up_seconds=STARTS_S)
    experiment.kill()
    experiment.wait()
    until(lambda: not children(tmp_path), "the end of all processes")
    assert list(tmp_path.glob("oncelog-chaos-*")) == [], "its folder is gone, too"


def test_only_processes_with_its_mark_are_found() -> None:
    command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    ours, other, within = (
        subprocess.Popen(command, stdin=subprocess.PIPE, env={**os.environ, VARIABLE: mark})
        for mark in ("a1", "a12", "a1.b")
    )
    try:
        wanted = {"a1": {ours.pid, within.pid}, "a12": {other.pid}, "a1.b": {within.pid}, "": set()}
        until(lambda: {mark: set(marked(mark)) for mark in wanted} == wanted, "the environment of each to be there")
    finally:
        for each in (ours, other, within):
            assert each.stdin is not None
            each.stdin.close()
            each.wait()


def test_the_mark_of_an_experiment_within_another_begins_with_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "a1")
    assert Guard().mark.startswith("a1.")
    monkeypatch.delenv(VARIABLE)
    assert "." not in Guard().mark
