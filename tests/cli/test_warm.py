"""`oncelog warm` as far as it goes without Spark: its rehearsal is in tests/spark/session/test_class_archive.py."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from oncelog import machine_code
from oncelog.cli import warm


def test_where_the_machine_code_is_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = tmp_path / "loops-1.so"
    made.write_bytes(bytes(250_000))
    monkeypatch.setattr(machine_code, "make", lambda: made)
    done = CliRunner().invoke(warm.command, ["--loops"])
    assert (done.exit_code, done.output) == (0, f"{made}: 0.2 MB\n")


def test_without_spark_the_loops_are_all_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "loops-1.so").touch()
    monkeypatch.setattr(machine_code, "make", lambda: tmp_path / "loops-1.so")
    monkeypatch.setattr(warm, "find_spec", lambda name: None)
    assert CliRunner().invoke(warm.command).exit_code == 0


def test_why_there_is_none_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def make() -> Path:
        raise machine_code.NoMachineCode("none of cc is on the path")

    monkeypatch.setattr(machine_code, "make", make)
    done = CliRunner().invoke(warm.command, ["--loops"])
    assert done.exit_code == 1 and "no machine code was made: none of cc is on the path" in done.output


def test_without_loops_sparks_classes_are_archived_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    archived: list[bool] = []

    def make() -> Path:
        raise machine_code.NoMachineCode("no numba")

    monkeypatch.setattr(machine_code, "make", make)
    monkeypatch.setattr(warm, "find_spec", lambda name: object())
    monkeypatch.setattr(warm, "archive_classes", lambda: archived.append(True))
    done = CliRunner().invoke(warm.command)
    assert (done.exit_code, archived) == (0, [True]) and "numba compiles the loops: no numba" in done.output
