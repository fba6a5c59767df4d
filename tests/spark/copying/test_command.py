"""`oncelog copy` as users call it, on Spark."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest

from oncelog.client.admin import Admin
from oncelog.client.types import NewPartitions
from oncelog.spark.copying.copy_planning import Plan
from oncelog.spark.copying.copy_running import Copying
from oncelog.spark.copying.job import CopyFailed
from oncelog.spark.jobs import words_of
from oncelog.spark.sink.milestones import SENT
from tests.cli.running import START, Oncelog, ended
from tests.peers.server_process import ServerProcess
from tests.raw import RawConnection
from tests.spark.copying.support import Copy, records, some, written
from tests.spark.kills.control import SITE, Controller
from tests.waiting import until

PARTITIONS = 3
KEEP = {"retention.ms": "-1"}
ROOT = os.getcwd()


@pytest.fixture
def source(raw: RawConnection, topic: str) -> str:
    assert raw.create_topic(topic, PARTITIONS, KEEP) == 0
    return topic


@pytest.mark.usefixtures("spark")
def test_a_topic_is_copied_and_a_second_run_finds_nothing_to_do(
    server: ServerProcess, raw: RawConnection, source: str
) -> None:
    oncelog = Oncelog(server.bootstrap_servers)
    for partition in range(PARTITIONS):
        written(raw, source, partition, some(0, 100))
    said = oncelog("copy", source, f"{source}-copy")
    assert said.lines[0].startswith(f"copied 300 records (0.0 MB) of {source} to {source}-copy, 3 partitions, in ")
    assert oncelog("copy", source, f"{source}-copy").lines == [f"nothing to copy: {source}-copy has all of {source}"]
    written(raw, source, 1, some(100, 120))
    assert oncelog("copy", source, f"{source}-copy").lines[0].startswith("copied 20 records")
    for partition in range(PARTITIONS):
        wanted = some(0, 120 if partition == 1 else 100)
        assert records(server.bootstrap_servers, f"{source}-copy", partition) == wanted


@pytest.mark.usefixtures("spark")
def test_from_one_cluster_to_another_and_back(kafka: ServerProcess, oncelog_server: ServerProcess, topic: str) -> None:
    with RawConnection(kafka.port) as raw:
        raw.create_topic(topic, 1, KEEP)
        written(raw, topic, 0, some(0, 100))
    there = ("--from-servers", kafka.bootstrap_servers, "--to-servers", oncelog_server.bootstrap_servers)
    back = ("--from-servers", oncelog_server.bootstrap_servers, "--to-servers", kafka.bootstrap_servers)
    oncelog = Oncelog("127.0.0.1:1")  # nobody is there
    oncelog("copy", topic, topic, *there)
    oncelog("copy", topic, f"{topic}-back", *back)
    assert records(oncelog_server.bootstrap_servers, topic) == some(0, 100)
    assert records(kafka.bootstrap_servers, f"{topic}-back") == some(0, 100)


def test_what_cannot_be_is_said_in_one_line(server: ServerProcess, source: str) -> None:
    oncelog = Oncelog(server.bootstrap_servers)
    assert "there is no topic nowhere" in oncelog.run("copy", "nowhere", "x").refusal
    assert "onto itself" in oncelog.run("copy", source, source).refusal
    assert "expected NAME=VALUE" in oncelog.run("copy", source, "x", "--conf", "spark").refusal
    assert "No such configuration property" in oncelog.run("copy", source, "x", "-X", "acks.all=1").refusal
    assert "'a/b' cannot be a copy's name" in oncelog.run("copy", source, "x", "--name", "a/b").refusal


def test_it_follows_what_comes_and_new_partitions_until_it_is_told_to_stop(
    server: ServerProcess, raw: RawConnection, source: str, spark: Any
) -> None:
    copy = Copy(server.bootstrap_servers, source, f"{source}-copy")
    stop, said = Event(), list[str]()
    wanted = {partition: some(0, 30) for partition in range(PARTITIONS)}

    def arrived() -> bool:
        return all(len(records(server.bootstrap_servers, f"{source}-copy", at)) == len(wanted[at]) for at in wanted)

    with Plan(copy.spec) as plan, ThreadPoolExecutor(1) as thread:
        copying = Copying(lambda: spark, plan)
        following = thread.submit(copying.follow, stop, said.append)
        try:
            for partition in range(PARTITIONS):
                written(raw, source, partition, some(0, 30))
            until(arrived, "the first records")
            with Admin({"bootstrap.servers": server.bootstrap_servers}) as admin:
                for name in (f"{source}-copy", source):
                    grown = admin.create_partitions([NewPartitions(name, PARTITIONS + 1)])
                    grown[name].result()
            raw.await_leaders(source, range(PARTITIONS + 1))
            written(raw, source, PARTITIONS, some(0, 5))
            written(raw, source, 0, some(30, 40))
            wanted |= {PARTITIONS: some(0, 5), 0: some(0, 40)}
            until(arrived, "what came later")
        finally:
            stop.set()
        assert following.result(60).records == 30 * PARTITIONS + 15
    assert said == []
    assert all(records(server.bootstrap_servers, f"{source}-copy", at) == wanted[at] for at in wanted)


@pytest.mark.parametrize(
    ("server", "who"),
    [
        ("oncelog", "the JVM"),
        pytest.param("kafka", "the worker", marks=pytest.mark.thorough),
        pytest.param("kafka", "the command", marks=pytest.mark.thorough),
    ],
    indirect=["server"],
)
@pytest.mark.usefixtures("spark")
def test_whoever_is_killed_the_same_command_makes_it_whole(
    server: ServerProcess, raw: RawConnection, source: str, who: str
) -> None:
    for partition in range(2):
        written(raw, source, partition, some(0, 2_000), each=100)
    with Controller() as controller:
        stop = controller.at(SENT, skip=4)
        process = start(server, source, controller)
        visit = stop.reached()
        if who == "the JVM":
            visit.kill_jvm()
        elif who == "the worker":
            visit.kill()
        else:
            process.kill()
            visit.release()
        said = ended(process)
        if who != "the command":
            assert said.code == 1
            assert "; the same command goes on where this one was\n" in said.err  # between lines of Spark's own
    first = Oncelog(server.bootstrap_servers)("copy", source, f"{source}-copy").lines[0]
    # What the command leaves behind when it is killed goes on, and may have come to its end by now.
    assert first.startswith("copied ") or (who == "the command" and first.startswith("nothing to copy: "))
    for partition in range(2):
        assert records(server.bootstrap_servers, f"{source}-copy", partition) == some(0, 2_000)


def start(server: ServerProcess, source: str, controller: Controller) -> "subprocess.Popen[bytes]":
    words = ["copy", source, f"{source}-copy", "-b", server.bootstrap_servers, "-q", "--master", "local[2]"]
    words += ["-X", "fetch.message.max.bytes=5000"]
    for each in ("spark.driver.memory=512m", "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1"):
        words += ["--conf", each]
    environ = (
        os.environ
        | controller.variables
        | {"PYTHONPATH": os.pathsep.join([str(SITE), os.path.join(ROOT, "src"), ROOT])}
    )
    return subprocess.Popen(
        [sys.executable, "-c", START, *words], env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def test_a_copy_that_follows_and_fails_before_its_first_record_does_not_say_that_nothing_was_left(
    server: ServerProcess, raw: RawConnection, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise CopyFailed("Spark did not start")

    monkeypatch.setattr(Copying, "follow", fail)
    written(raw, source, 0, some(0, 3))
    said = Oncelog(server.bootstrap_servers).run("copy", source, f"{source}-copy", "--follow", "-q")
    assert said.lines == []
    assert said.refusal == "Spark did not start; the same command goes on where this one was"


def test_of_pages_about_a_failure_the_line_that_says_why_is_told() -> None:
    pages = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "x.py", line 3, in run
    fail()
ValueError: what went wrong

\tat org.apache.spark.Something
"""
    assert words_of(pages) == "ValueError: what went wrong"
    assert words_of("Job aborted due to stage failure\nmore") == "Job aborted due to stage failure"
