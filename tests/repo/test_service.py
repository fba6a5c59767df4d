"""The systemd unit: systemd itself reads it, and it says what our command understands."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from oncelog.cli import main
from oncelog.cli.serve import command as serve
from tests.peers.jars import MissingPeer, need_or_skip
from tests.repo.tree import ROOT, read

UNIT = "deploy/oncelog.service"
MOST_EXPOSED = 15  # of 100, by systemd's own count; a unit that says nothing has 96


@pytest.fixture
def analyze() -> str:
    found = shutil.which("systemd-analyze")
    if found is None:
        need_or_skip(MissingPeer("there is no `systemd-analyze` on the path; install systemd"))
    return str(found)


def value(key: str) -> str:
    (found,) = re.findall(rf"^{key}=(.*)$", read(UNIT), re.MULTILINE)
    return str(found)


def verify(analyze: str, text: str, folder: Path) -> str:
    """What systemd says against a unit; the program that is to be started is one that is there."""
    unit = folder / "oncelog.service"
    unit.write_text(text.replace("/opt/oncelog/bin/oncelog", sys.executable))
    command = [analyze, "verify", "--man=no", "--recursive-errors=no", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_systemd_has_nothing_against_it(analyze: str, tmp_path: Path) -> None:
    assert verify(analyze, read(UNIT), tmp_path) == ""


def test_systemd_would_tell_of_a_wrong_key(analyze: str, tmp_path: Path) -> None:
    assert "Unknown key" in verify(analyze, read(UNIT).replace("LockPersonality", "LockPersonalty"), tmp_path)


def test_it_is_left_with_little_that_it_could_harm(analyze: str) -> None:
    command = [analyze, "security", "--offline=true", "--no-pager", f"--threshold={MOST_EXPOSED}", str(ROOT / UNIT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-1000:]


def test_it_may_read_which_start_of_the_machine_this_is() -> None:
    """It stands in /proc/sys, of which ProcSubset=pid leaves nothing: each crash would pass for a power failure."""
    assert "ProcSubset" not in read(UNIT)


def test_what_it_starts_is_understood() -> None:
    program, name, *arguments = value("ExecStart").split()
    assert program.endswith("/bin/oncelog")
    context = main.make_context("oncelog", [name, *arguments], resilient_parsing=True)
    assert main.get_command(context, name) is serve
    assert serve.make_context("serve", arguments).params["data"] == f"/var/lib/{value('StateDirectory')}"
