"""A copy without Spark between: what arrives is what stood there, once, wherever it was stopped before."""

import itertools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from oncelog.client.admin import Admin
from oncelog.client.saving.errors import CannotResume
from oncelog.client.types import NewPartitions
from oncelog.clock import wall_s
from oncelog.records import passing_columns
from oncelog.records.build import build_batch
from oncelog.records.header import headers
from oncelog.spark.copying import copy_planning, moving
from oncelog.spark.copying.copy_planning import Plan
from oncelog.spark.copying.job import Copied, CopyRefused, Task
from oncelog.spark.copying.moving import run
from oncelog.spark.sink.milestones import ACKNOWLEDGED, BEGUN, FIRST_SEND, RESUMED, RETURNING, SENT, STATE_READ
from tests.peers.apache import quick_kafka
from tests.peers.server_process import ServerProcess
from tests.raw import CODECS, RawConnection
from tests.spark.conftest import SETTINGS
from tests.spark.copying.support import LONG_AGO_MS, Copy, records, some, stored, written

PARTITIONS = 3
NOW_MS = int(wall_s() * 1000)


class Crash(BaseException):
    """The process is gone."""


@pytest.fixture(params=["as they are", "put together"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Batches travel as they are, or, being small, are put together."""
    if request.param == "as they are":
        monkeypatch.setattr(passing_columns, "SMALL_BYTES", 0)
        monkeypatch.setattr(passing_columns, "SMALL_COMPRESSED_BYTES", 0)
    return str(request.param)


@pytest.fixture
def source(raw: RawConnection, topic: str) -> str:
    assert raw.create_topic(topic, PARTITIONS, {"retention.ms": "-1"}) == 0
    return topic


def crash_at(monkeypatch: pytest.MonkeyPatch, step: str, times: int = 1) -> Callable[[], None]:
    """The process ends when this step is reached for the n-th time."""
    left = itertools.count(times, -1)

    def reached(now: str, **facts: Any) -> None:
        if now == step and next(left) == 1:
            raise Crash

    monkeypatch.setattr(moving, "reached", reached)
    return lambda: monkeypatch.setattr(moving, "reached", lambda step, **facts: None)


def test_every_record_arrives_as_it_was(server: ServerProcess, raw: RawConnection, topic: str, way: str) -> None:
    """A partition for each codec."""
    assert raw.create_topic(topic, len(CODECS), {"retention.ms": "-1"}) == 0
    for codec in CODECS.values():
        written(raw, topic, codec, some(codec * 1000, codec * 1000 + 200), codec=codec)
    Copy(server.bootstrap_servers, topic, f"{topic}-copy").run()
    for codec in CODECS.values():
        assert records(server.bootstrap_servers, f"{topic}-copy", codec) == some(codec * 1000, codec * 1000 + 200)
        codecs = {header.codec for _, header in headers(raw.fetch(f"{topic}-copy", codec, 0).records)}
        assert codecs == {codec}


def test_a_second_run_copies_what_came_since(server: ServerProcess, raw: RawConnection, source: str) -> None:
    copy = Copy(server.bootstrap_servers, source, f"{source}-copy")
    written(raw, source, 0, some(0, 100))
    assert [(each.partition, each.records) for each in copy.run()] == [(0, 100)]
    assert copy.run() == []
    written(raw, source, 0, some(100, 150))
    written(raw, source, 2, some(0, 10))
    assert sorted((each.partition, each.records, each.found) for each in copy.run()) == [(0, 50, 0), (2, 10, 0)]
    assert records(server.bootstrap_servers, f"{source}-copy", 0) == some(0, 150)


@pytest.mark.thorough
def test_a_late_batch_of_a_copy_that_slept_is_not_taken_for_the_last_one(
    tmp_path: Path, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Kafka that starts has forgotten who wrote such old records, takes any slot again, and then remembers that."""
    with quick_kafka(tmp_path, SETTINGS) as server:
        with RawConnection(server.bootstrap_servers) as raw:
            assert raw.create_topic(topic, 1, {"retention.ms": "-1"}) == 0
            written(raw, topic, 0, some(0, 40))
            copy = Copy(server.bootstrap_servers, topic, f"{topic}-copy")
            copy.run("first")
            written(raw, topic, 0, some(40, 100))
        end = crash_at(monkeypatch, ACKNOWLEDGED)
        with pytest.raises(Crash):
            copy.run("second")
        end()
        (task,) = copy.tasks()
        lane = task.register.lanes[0]
        assert lane.done == 40
        server.stop()
        server.start()
        late = build_batch(
            [(*record[:2], list(record[2]), record[3]) for record in some(20, 40)],
            producer_id=lane.pid,
            producer_epoch=lane.epoch,
            base_sequence=20,
        )
        with RawConnection(server.bootstrap_servers) as raw:
            assert raw.produce(f"{topic}-copy", 0, bytes(late)).error_code == 0
        with pytest.raises(CannotResume, match=r"goes on at sequence 100, and the broker knows it only up to 39"):
            copy.run("third")
        assert records(server.bootstrap_servers, f"{topic}-copy") == [*some(0, 100), *some(20, 40)]


@pytest.mark.parametrize(
    ("step", "times"),
    [*((step, 1) for step in (BEGUN, STATE_READ, RESUMED, FIRST_SEND, SENT, ACKNOWLEDGED, RETURNING)), (SENT, 12)],
)
def test_wherever_it_is_killed_the_next_run_makes_it_whole(
    server: ServerProcess, raw: RawConnection, source: str, monkeypatch: pytest.MonkeyPatch, step: str, times: int
) -> None:
    """One partition's records are so old that a stock Kafka forgets who wrote them, the other's are new."""
    monkeypatch.setattr(passing_columns, "SMALL_BYTES", 0)
    monkeypatch.setattr(moving, "NOTE_BYTES", 4_000)
    wanted = [some(0, 400), some(0, 400, time_ms=NOW_MS)]
    for partition in range(2):
        written(raw, source, partition, wanted[partition])
    copy = Copy(server.bootstrap_servers, source, f"{source}-copy", fetch_bytes=2_000)
    end = crash_at(monkeypatch, step, times)
    with pytest.raises(Crash):
        copy.run("first")
    end()
    copy.run("second")
    for partition in range(2):
        assert records(server.bootstrap_servers, f"{source}-copy", partition) == wanted[partition]


def test_a_chain_of_kills_stays_exact(
    server: ServerProcess, raw: RawConnection, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passing_columns, "SMALL_BYTES", 0)
    monkeypatch.setattr(moving, "NOTE_BYTES", 3_000)
    wanted = some(0, 1_600)
    written(raw, source, 0, wanted)
    found = 0
    for number in range(6):
        copy = Copy(server.bootstrap_servers, source, f"{source}-copy", fetch_bytes=2_000, batch_size=1_000)
        end = crash_at(monkeypatch, SENT, 2 + number % 3)
        with pytest.raises(Crash):
            copy.run(f"run {number}")
        end()
        now = records(server.bootstrap_servers, f"{source}-copy")
        assert now == wanted[: len(now)]
        found = len(now)
    assert 0 < found < 1_600
    Copy(server.bootstrap_servers, source, f"{source}-copy").run("last")
    assert records(server.bootstrap_servers, f"{source}-copy") == wanted


def test_what_stands_there_is_compared_before_anything_is_written(
    server: ServerProcess, raw: RawConnection, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody has filled the copy's slots with something else."""
    written(raw, source, 0, some(0, 100))
    copy = Copy(server.bootstrap_servers, source, f"{source}-copy")
    end = crash_at(monkeypatch, FIRST_SEND)
    with pytest.raises(Crash):
        copy.run("first")
    end()
    (task,) = copy.tasks()
    lane = task.register.lanes[0]
    other = some(0, 30)
    other[17] = (b"key", b"another value", (), LONG_AGO_MS)
    data = build_batch(
        [(*record[:2], list(record[2]), record[3]) for record in other],
        producer_id=lane.pid,
        producer_epoch=lane.epoch,
        base_sequence=0,
    )
    assert raw.produce(f"{source}-copy", 0, bytes(data)).error_code == 0
    with pytest.raises(CopyRefused, match=r"offset 17 is to be .* and is not: the key is"):
        copy.run("second")
    assert len(stored(server.bootstrap_servers, f"{source}-copy")) == 30


def test_two_at_once_by_mistake_write_every_record_once(
    server: ServerProcess, raw: RawConnection, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both fill the same slots, with batches that are cut elsewhere."""
    wanted = some(0, 700)
    written(raw, source, 0, wanted, each=7)
    copies = [Copy(server.bootstrap_servers, source, f"{source}-copy", fetch_bytes=size) for size in (1_500, 3_100)]
    tasks = [copy.tasks()[0] for copy in copies]
    assert tasks[0].register.lanes == tasks[1].register.lanes
    together = threading.Barrier(2)
    monkeypatch.setattr(moving, "reached", lambda step, **facts: step == FIRST_SEND and together.wait(30))
    with ThreadPoolExecutor(2) as threads:
        done = [threads.submit(run, task, f"attempt {number}") for number, task in enumerate(tasks)]
        assert [each.result()[0].records for each in done] == [700, 700]
    assert records(server.bootstrap_servers, f"{source}-copy") == wanted


@pytest.mark.thorough
def test_two_at_once_copy_64_partitions_once_and_then_those_that_came_meanwhile(
    server: ServerProcess, raw: RawConnection, topic: str
) -> None:
    assert raw.create_topic(topic, 64, {"retention.ms": "-1"}) == 0
    for partition in range(64):
        written(raw, topic, partition, some(partition, partition + 30))
    copies = [Copy(server.bootstrap_servers, topic, f"{topic}-copy", fetch_bytes=size) for size in (900, 4_000)]
    tasks = [task for copy in copies for task in copy.tasks(most=2)]
    with Admin({"bootstrap.servers": server.bootstrap_servers}) as admin:
        for name in (topic, f"{topic}-copy"):
            admin.create_partitions([NewPartitions(name, 70)])[name].result()
    raw.await_leaders(topic, range(70))
    written(raw, topic, 69, some(0, 30))
    with ThreadPoolExecutor(len(tasks)) as threads:
        done = [threads.submit(run, task, f"attempt {number}") for number, task in enumerate(tasks)]
        assert sum(len(each.result()) for each in done) == 2 * 64
    copies[0].run("last")
    for partition in range(70):
        wanted = some(partition, partition + 30) if partition < 64 else some(0, 30) if partition == 69 else []
        assert records(server.bootstrap_servers, f"{topic}-copy", partition) == wanted


def test_a_copy_that_follows_leaves_no_more_records_than_some_in_its_topic(
    server: ServerProcess, raw: RawConnection, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks are told of all of them, five times a second, for as long as it goes on."""
    monkeypatch.setattr(copy_planning, "MOST_OUTLIVED", 3)
    with Plan(Copy(server.bootstrap_servers, source, f"{source}-copy").spec) as plan:
        job = plan.job()
        register = plan.register(job)
        for number in range(9):
            written(raw, source, 0, some(number, number + 1))
            run(Task(job, tuple(plan.orders(job, register)), register), f"attempt {number}")
            plan.read_again(register)
            assert sum(key.startswith(b"lane/0/") for key in register.keys) <= 4
        again = plan.register(job)
    assert again.lanes == register.lanes
    assert records(server.bootstrap_servers, f"{source}-copy") == some(0, 9)


def test_a_second_copy_that_begins_late_goes_on_where_the_first_one_is(
    server: ServerProcess, raw: RawConnection, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = some(0, 700)
    written(raw, source, 0, wanted)
    copy = Copy(server.bootstrap_servers, source, f"{source}-copy", fetch_bytes=2_000)
    (task,) = copy.tasks()
    found: list[list[Copied]] = []

    def reached(step: str, **facts: Any) -> None:
        if step == SENT and not found:
            monkeypatch.setattr(moving, "reached", lambda step, **facts: None)
            found.append(run(task, "second"))

    monkeypatch.setattr(moving, "reached", reached)
    run(task, "first")
    ((only,),) = found
    assert only.records + only.found == 700
    assert only.found > 0
    assert records(server.bootstrap_servers, f"{source}-copy") == wanted
