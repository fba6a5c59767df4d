"""What was tried against the sealed sink beside kills: retention in the middle of a batch, another topic under the same
name, many partitions and more of them, an older copy of a checkpoint."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from oncelog.client import Admin, Producer, TopicPartition
from oncelog.spark.sealed import milestones as sealed_milestones
from oncelog.spark.sink import milestones
from tests.peers.server_process import ServerProcess
from tests.spark.sealed.queries import Crashes, SealedQuery, crashes
from tests.spark.sink.support import grow_topic, make_topic, remove_topic, stored, values

__all__ = ["crashes"]
pytestmark = pytest.mark.thorough


def with_chance(rows: Any) -> Any:
    """Never the same again."""
    return rows.selectExpr("concat_ws(' ', value, uuid()) AS value")


def new_query(spark: Any, server: ServerProcess, folder: Path, topic: str) -> SealedQuery:
    job = SealedQuery(spark, server, folder, topic=topic)
    job.frame = with_chance
    return job


def first_words(server: ServerProcess, topic: str) -> list[str]:
    return [(value or b"").decode().split()[0] for value in values(server, topic)]


def test_a_half_sent_batch_goes_on_though_retention_has_passed_what_was_saved(
    spark: Any, server: ServerProcess, topic: str, tmp_path: Path, crashes: Crashes
) -> None:
    make_topic(server, topic, 2)
    job = new_query(spark, server, tmp_path / "query", topic)
    job.add("a", "b", "c")
    job.run()
    with Producer({"bootstrap.servers": server.bootstrap_servers}) as others:
        for number in range(50):
            others.produce(topic, value=b"%d" % number)
    with Admin({"bootstrap.servers": server.bootstrap_servers}) as admin:
        for future in admin.delete_records([TopicPartition(topic, at, -1) for at in range(2)]).values():
            future.result()
    job.add("d", "e", "f")
    crashes.wanted = [(milestones.BEFORE_SAVE, 1)]
    assert "at 'before save' of batch 1" in job.crash()
    job.run()
    assert first_words(server, topic) == ["d", "e", "f"]


def test_a_topic_that_was_made_again_gets_no_row_until_the_query_is_told_so(
    spark: Any, server: ServerProcess, topic: str, tmp_path: Path
) -> None:
    make_topic(server, topic, 2)
    job = new_query(spark, server, tmp_path / "query", topic)
    job.add("a", "b", "c")
    job.run()
    remove_topic(server, topic)
    make_topic(server, topic, 2)
    job.add("d", "e", "f")
    words = job.crash()
    assert f"topic '{topic}' was deleted and made again" in words
    assert "a new `sink.name` and `sink.first.batch` = 1" in words
    assert values(server, topic) == []
    job.options |= {"sink.name": f"again-{topic}", "sink.first.batch": "1"}
    job.path += "-again"
    job.run()
    assert first_words(server, topic) == ["d", "e", "f"]


def test_partitions_that_come_between_sealing_and_sending_change_nothing_of_a_batch(
    spark: Any, server: ServerProcess, topic: str, tmp_path: Path, crashes: Crashes
) -> None:
    """64 of them, and then 70; the driver dies before the batch is sent, in the middle, and before it is saved."""
    make_topic(server, topic, 64)
    job = new_query(spark, server, tmp_path / "query", topic)
    job.frame = lambda rows: rows.repartition(3).selectExpr("uuid() AS key", "value")
    job.add(*range(1000, 1400))
    job.run()
    job.add(*range(1400, 1800))
    for step in (sealed_milestones.PUBLISHED, milestones.SENT, milestones.BEFORE_SAVE):
        crashes.wanted = [(step, 1)]
        assert f"at {step!r} of batch 1" in job.crash()
        if step == sealed_milestones.PUBLISHED:
            grow_topic(server, topic, 70)
    job.add(*range(1800, 2200))
    job.run()
    found = stored(server, topic)
    assert sorted(value for rows in found.values() for _, value in rows if value) == [
        b"%d" % number for number in range(1000, 2200)
    ]
    assert any(found[at] for at in range(64, 70)), "the batch after that writes to them"


def test_a_checkpoint_from_an_older_backup_is_refused_where_its_batch_is_planned_anew(
    spark: Any, server: ServerProcess, topic: str, tmp_path: Path
) -> None:
    """What came since the backup would be lost, as the files of the batch are sent whatever the query yields now."""
    make_topic(server, topic, 2)
    job = new_query(spark, server, tmp_path / "query", topic)
    job.add("a", "b")
    job.run()
    shutil.copytree(job.checkpoint, tmp_path / "backup")
    job.add("c")
    job.run()
    job.forget_commit(1)  # which is no other plan
    job.run()
    job.forget()
    shutil.copytree(tmp_path / "backup", job.checkpoint)
    (job.input / "0001.txt").write_text("c\nd\n")
    assert "batch 1 was sealed, and Spark has planned it anew since" in job.crash()
    assert first_words(server, topic) == ["a", "b", "c"]
