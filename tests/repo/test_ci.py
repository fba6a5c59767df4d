"""The last line of CI says what both stages came to."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.repo.tree import ROOT, read

SUITE = '<testsuites><testsuite tests="{}" failures="{}" errors="{}" skipped="{}"/></testsuites>'


def totals(tmp_path: Path, *failed: str, **stages: tuple[int, int, int, int]) -> tuple[int, str]:
    """The exit code and what is printed, after stages with these counts."""
    results = tmp_path / "build" / "tests"
    results.mkdir(parents=True)
    for name, counts in stages.items():
        (results / f"{name}.xml").write_text(SUITE.format(*counts))
    command = [sys.executable, str(ROOT / ".ci" / "totals"), *failed]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    return done.returncode, done.stdout


def test_both_stages_are_summed_up(tmp_path: Path) -> None:
    assert totals(tmp_path, first=(100, 0, 0, 0), all=(20, 0, 0, 0)) == (0, "120 passed, 0 failed\n")


def test_what_failed_and_what_was_left_out_is_counted(tmp_path: Path) -> None:
    code, said = totals(tmp_path, "./dev test: 2", first=(100, 2, 1, 4), all=(20, 0, 0, 0))
    assert (code, said.splitlines()) == (1, ["failed: ./dev test: 2", "113 passed, 3 failed, 4 skipped"])


@pytest.mark.parametrize("failed", [(), ("./dev test --all: 124",)])
def test_a_stage_without_results_is_a_failure(tmp_path: Path, failed: tuple[str, ...]) -> None:
    code, said = totals(tmp_path, *failed, first=(100, 0, 0, 0))
    assert code == 1
    assert said.splitlines()[-1] == f"100 passed, {1 + len(failed)} failed"


def test_each_stage_has_an_end_well_before_cis_own() -> None:
    run = read(".ci/run")
    minutes = [int(word[:-1]) for word in run.split() if word[:-1].isdigit() and word.endswith("m")]
    assert len(minutes) == 3
    assert sum(minutes) <= 80
    assert os.access(ROOT / ".ci" / "totals", os.X_OK)
