"""`./dev run`: its verdict can be trusted, and Ctrl-C ends all of it. (That it succeeds is checked with the README.)"""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from bench.demo import Audit
from tests.repo.tree import ROOT


def _demo(tmp_path: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "bench.demo", *arguments]
    env = os.environ | {"TMPDIR": str(tmp_path)}
    return subprocess.Popen(command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)


def test_without_idempotence_the_same_run_finds_duplicates_and_fails(tmp_path: Path) -> None:
    with _demo(tmp_path, "--not-idempotent", "--records", "300000", "--seed", "3") as demo:
        assert demo.stdout is not None
        printed = demo.stdout.read()
    counts = dict(line.split() for line in printed.splitlines() if len(line.split()) == 2 and line.startswith("  "))
    assert demo.returncode == 1
    assert counts["missing"] == "0"
    assert int(counts["duplicates"].replace(",", "")) > 0
    assert "WRONG" in printed


def test_also_a_short_run_has_its_connections_cut(tmp_path: Path) -> None:
    with _demo(tmp_path, "--records", "1000") as demo:
        assert demo.stdout is not None
        printed = demo.stdout.read()
    assert demo.returncode == 0
    found = re.search(r"sending .* (\d+) connections cut", printed)
    assert found is not None
    assert int(found[1]) > 0


def test_a_run_too_short_for_a_cut_says_so(tmp_path: Path) -> None:
    with _demo(tmp_path, "--records", "1") as demo:
        assert demo.stdout is not None
        printed = demo.stdout.read()
    assert demo.returncode == 0
    assert "No connection was cut" in printed


def test_ctrl_c_ends_everything_and_leaves_no_folder_behind(tmp_path: Path) -> None:
    with _demo(tmp_path) as demo:
        assert demo.stdout is not None
        while "trouble" not in demo.stdout.readline():
            assert demo.poll() is None
        demo.send_signal(signal.SIGINT)
        printed = demo.stdout.read()
    assert demo.returncode == 130
    assert "Ended by hand." in printed
    assert list(tmp_path.iterdir()) == []


def test_the_audit_tells_missing_twice_and_foreign_records_apart() -> None:
    audit = Audit(expected=4, confirmed=4)
    for number in (0, 1, 1, 3, 9):
        audit.on_record(number.to_bytes(8, "big"))
    assert (audit.received, audit.unique, audit.duplicates, audit.missing, audit.foreign) == (5, 3, 1, 1, 1)
    assert not audit.is_right


def test_the_audit_is_content_with_every_record_once() -> None:
    audit = Audit(expected=2, confirmed=2)
    for number in (1, 0):
        audit.on_record(number.to_bytes(8, "big"))
    assert audit.is_right
