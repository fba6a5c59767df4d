"""`./dev run`: what it is told is handed on, its verdict is the exit code, and Ctrl-C ends all of it.

Here without Spark; with it, and from a fresh copy, it runs with the README.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from oncelog.cli.chaos import command
from tests.repo.test_dev import load_dev
from tests.repo.tree import ROOT

# `./dev run` in the environment of these tests, with nothing to install.
RUN = """
import sys
from pathlib import Path
from tests.repo.test_dev import load_dev
dev = load_dev()
dev.BIN = Path(sys.executable).parent
dev.install = lambda *groups: None
sys.exit(dev.run(sys.argv[1:]))
"""
SMALL = ("--no-spark", "--messages", "24000", "--every", "2000")


@pytest.fixture(scope="module")
def dev() -> ModuleType:
    return load_dev()


def understood(dev: ModuleType, *arguments: str) -> dict[str, Any]:
    """By `oncelog chaos`."""
    (chaos, *told), *_ = dev.shown_by_run(list(arguments))
    assert chaos == "chaos"
    return command.make_context("chaos", told).params


def run(tmp_path: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", RUN, *SMALL, "--report", str(tmp_path / "report"), *arguments],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def test_it_sends_through_spark_and_kills_everything_unless_it_is_told_otherwise(dev: ModuleType) -> None:
    told = understood(dev)
    assert (told["is_spark"], told["kills"]) == (True, "all")
    told = understood(dev, "--messages", "5", "--kill", "responses", "--no-spark", "--report", "elsewhere")
    assert (told["is_spark"], told["kills"], told["messages"], told["report"]) == (
        False,
        "responses",
        5,
        Path("elsewhere"),
    )


def test_then_a_flow_is_shown_where_nothing_else_was_asked_for(dev: ModuleType) -> None:
    _, (chaos, *told) = dev.shown_by_run([])
    assert chaos == "chaos"
    assert command.make_context("chaos", told).params["is_flow"]
    assert len(dev.shown_by_run(["--no-spark"])) == 1


@pytest.mark.parametrize("minutes", [("--minutes", "3"), ("--minutes=3",)])
def test_it_can_be_told_how_long_in_the_place_of_how_many(dev: ModuleType, minutes: tuple[str, ...]) -> None:
    told = understood(dev, *minutes)
    assert (told["messages"], told["minutes"]) == (None, 3)


@pytest.mark.thorough
def test_it_ends_with_the_verdict_the_place_of_the_report_and_how_to_go_on(tmp_path: Path) -> None:
    with run(tmp_path) as demonstration:
        assert demonstration.stdout is not None
        printed = demonstration.stdout.read()
    assert demonstration.returncode == 0, printed
    assert "exact: every confirmed message stands there once, in its order" in printed
    assert f"report: {tmp_path / 'report' / 'report.html'}" in printed
    assert ".venv/bin/oncelog chaos --servers" in printed
    assert printed.startswith("dev: oncelog chaos --spark --kill all "), "what it runs is said"
    said = json.loads((tmp_path / "report" / "report.json").read_text())
    assert said["options"]["kill"] == ["connections", "producer", "responses", "server"]
    assert {each["target"] for each in said["happened"]} == set(said["options"]["kill"])


@pytest.mark.thorough
def test_without_idempotence_the_same_run_finds_duplicates_and_fails(tmp_path: Path) -> None:
    with run(tmp_path, "--kill", "responses", "--idempotence", "off") as demonstration:
        assert demonstration.stdout is not None
        printed = demonstration.stdout.read()
    assert demonstration.returncode == 1, printed
    assert "JUMP BACK" in printed
    assert "Go on" not in printed


@pytest.mark.thorough
def test_ctrl_c_ends_everything_and_leaves_no_folder_behind(tmp_path: Path) -> None:
    with run(tmp_path) as demonstration:
        assert demonstration.stdout is not None
        while "sending" not in demonstration.stdout.readline():
            assert demonstration.poll() is None
        os.killpg(demonstration.pid, signal.SIGINT)  # as a terminal does
        printed = demonstration.stdout.read()
    assert demonstration.returncode == 130, printed
    assert "Traceback" not in printed
    assert list(tmp_path.iterdir()) == []
