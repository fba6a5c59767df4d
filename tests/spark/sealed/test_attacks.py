"""What was tried against the sealed sink beside kills: retention in the middle of a batch, and another topic under the
same name."""

from pathlib import Path
from typing import Any

import pytest

from oncelog.client import Admin, Producer, TopicPartition
from oncelog.spark.sink import milestones
from tests.peers.server_process import ServerProcess
from tests.spark.sealed.queries import Crashes, SealedQuery, crashes
from tests.spark.sink.support import make_topic, remove_topic, values

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
