"""Sealed batches on a file system that only the JVM reaches: here Hadoop's own view of a local folder."""

import itertools
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import oncelog.spark
from oncelog.spark.sealed import milestones
from oncelog.spark.sealed.hadoop import HadoopStorage
from oncelog.spark.sealed.manifest import Manifest, SealedError
from oncelog.spark.sealed.parquet_files import ParquetFiles
from oncelog.spark.sealed.surroundings import storage_of
from oncelog.spark.sink import milestones as sink_milestones
from tests.peers.server_process import ServerProcess
from tests.spark import milestones as here
from tests.spark.sealed.queries import Crashes, SealedQuery, batch_of, crashes
from tests.spark.sink.support import make_topic, stored, values

__all__ = ["crashes"]
# Hadoop keeps a file system for each name that it has met, so each test has one of its own.
_names = itertools.count()


@pytest.fixture
def mounted(spark: Any, tmp_path: Path) -> Iterator[str]:
    """A path without a local name, and the folder behind it."""
    (tmp_path / "mounted").mkdir()
    name = f"sealed-{next(_names)}"
    mount = f"fs.viewfs.mounttable.{name}.link./mounted"
    spark.conf.set(mount, (tmp_path / "mounted").as_uri())
    yield f"viewfs://{name}/mounted"
    spark.conf.unset(mount)


@pytest.fixture
def storage(spark: Any, mounted: str) -> HadoopStorage:
    made, rows = storage_of(spark.range(1), f"{mounted}/path")
    assert isinstance(made, HadoopStorage) and isinstance(rows, ParquetFiles)
    return made


def test_a_file_is_created_by_whoever_comes_first(storage: HadoopStorage, mounted: str) -> None:
    assert storage.names() == [] and storage.read("0.json") is None
    assert storage.create("0.json", b"first\0\xff")
    assert not storage.create("0.json", b"second")
    assert storage.read("0.json") == b"first\0\xff"
    assert storage.names() == ["0.json"], "nothing unfinished is left"
    assert storage.where("0.json") == f"{mounted}/path/0.json"


def test_who_comes_second_at_the_last_moment_is_told(storage: HadoopStorage) -> None:
    """Both have looked and found nothing; Spark's file manager finds it out when it renames."""
    storage.create("query.json", b"x")
    late = storage.manager.createAtomic(storage.path("0.json"), False)
    assert storage.create("0.json", b"first")
    with pytest.raises(Exception, match="already exists"):
        late.close()
    assert storage.read("0.json") == b"first"


def test_files_and_folders_are_removed_once_or_twice(storage: HadoopStorage, tmp_path: Path) -> None:
    storage.create("1.json", b"x")
    folder = tmp_path / "mounted" / "path" / "1-a" / "deep"
    folder.mkdir(parents=True)
    (folder / "file").write_text("x")
    assert storage.sizes("1-a/deep") == {"file": 1}
    for _ in range(2):
        storage.remove("1-a")
        storage.remove("1.json")
    assert storage.names() == [] and storage.sizes("1-a") == {}


@pytest.mark.thorough
def test_a_query_without_repeats_is_written_once(
    spark: Any, server: ServerProcess, topic: str, tmp_path: Path, mounted: str, crashes: Crashes
) -> None:
    make_topic(server, topic)
    job = SealedQuery(spark, server, tmp_path / "query", topic=topic)
    job.path = f"{mounted}/path"
    job.frame = lambda rows: rows.selectExpr(
        "NULL AS key", "concat(value, ' ', uuid()) AS value", "CAST(value % 4 AS INT) AS partition"
    ).repartition(3)
    job.add(*range(30))
    job.add()
    job.add(*range(30, 50))
    wanted = [(milestones.WRITTEN, 0), (milestones.SENDING, 0), (milestones.SAVED, 2)]
    crashes.wanted = list(wanted)
    for step, batch in wanted:
        assert f"at '{step}' of batch {batch}" in job.crash()
    assert (sink_milestones.SENT, 0) not in crashes.seen, "the driver sent nothing itself"
    job.run()
    found = stored(server, topic)
    numbers = {at: [int((value or b"").split()[0]) for _, value in rows] for at, rows in found.items()}
    assert sorted(number for rows in numbers.values() for number in rows) == list(range(50))
    assert all(number % 4 == at for at, rows in numbers.items() for number in rows)
    names = {path.name.partition("-")[0] for path in (tmp_path / "mounted" / "path").iterdir()}
    assert names >= {"1", "1.json", "2", "2.json", "query.json"} and not names & {"0", "0.json"}
    manifest = Manifest.from_bytes((tmp_path / "mounted" / "path" / "2.json").read_bytes(), "2.json")
    assert manifest.layout == "parquet" and manifest.rows == 20
    assert spark.conf.get("spark.sql.files.maxPartitionBytes") != str(1 << 40)


def test_two_drivers_that_run_one_batch_at_once_send_the_rows_of_one(
    spark: Any, oncelog_server: ServerProcess, topic: str, mounted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_topic(oncelog_server, topic)
    barrier = threading.Barrier(2)
    won: list[bool] = []

    def reached(step: str, facts: dict[str, Any]) -> None:
        if step == milestones.WRITTEN:
            barrier.wait(60)
        elif step == milestones.PUBLISHED:
            won.append(bool(facts["won"]))

    monkeypatch.setattr(here, "reached", reached)
    # HDFS decides one rename after the other. A local folder that Hadoop sees does not: two at once leave the file of
    # the one beside the checksum of the other. So they take turns here, as they do there.
    turns, create = threading.Lock(), HadoopStorage.create

    def create_in_turn(storage: HadoopStorage, name: str, data: bytes) -> bool:
        with turns:
            return create(storage, name, data)

    monkeypatch.setattr(HadoopStorage, "create", create_in_turn)
    failures: list[BaseException] = []

    def drive() -> None:
        servers = {"kafka.bootstrap.servers": oncelog_server.bootstrap_servers}
        sink = oncelog.spark.sealed(path=f"{mounted}/raced", topic=topic, **servers)
        try:
            with batch_of(spark, f"query-of-{topic}") as call:
                call(sink, spark.range(0, 20, 1, 2).selectExpr("concat(id, ' ', uuid()) AS value"), 0)
        except BaseException as failure:
            failures.append(failure)

    drivers = [threading.Thread(target=drive) for _ in range(2)]
    for driver in drivers:
        driver.start()
    for driver in drivers:
        driver.join()
    assert failures == [], "\n".join(map(str, failures))
    assert sorted(won) == [False, True]
    found = sorted(int((each or b"").split()[0]) for each in values(oncelog_server, topic))
    assert found == list(range(20))


def test_files_that_are_gone_are_found_before_they_are_sent(
    spark: Any, oncelog_server: ServerProcess, topic: str, tmp_path: Path, mounted: str, crashes: Crashes
) -> None:
    make_topic(oncelog_server, topic)
    job = SealedQuery(spark, oncelog_server, tmp_path / "query", topic=topic)
    job.path = f"{mounted}/path"
    job.add(1, 2, 3)
    crashes.wanted = [(milestones.SENDING, 0)]
    job.crash()
    for path in (tmp_path / "mounted" / "path").glob("0-*/part-*.parquet"):
        path.unlink()
    assert "has no bytes, and the manifest of batch 0 says" in job.crash()
    assert values(oncelog_server, topic) == []


def test_a_path_that_was_sealed_in_another_way_is_refused(
    spark: Any, oncelog_server: ServerProcess, topic: str, tmp_path: Path, mounted: str, crashes: Crashes
) -> None:
    make_topic(oncelog_server, topic)
    servers = {"kafka.bootstrap.servers": oncelog_server.bootstrap_servers}
    frame = spark.range(3).selectExpr("CAST(id AS STRING) AS value")
    with batch_of(spark, "q") as call:
        call(oncelog.spark.sealed(path=f"{mounted}/p", topic=topic, **servers), frame, 0)
        local = oncelog.spark.sealed(path=tmp_path / "mounted" / "p", topic=topic, **servers)
        with pytest.raises(SealedError, match="sealed as parquet files and cannot be read as arrow files"):
            call(local, frame, 0)
