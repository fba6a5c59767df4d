"""What the tests of topics share: topics on a disk, a record in one of them, and what there is."""

from collections.abc import Callable
from pathlib import Path

import pytest

from oncelog.clock import ManualClock
from oncelog.log.disk import Disk, RealDisk
from oncelog.log.work_steps import at_once
from oncelog.producers import ProducerMap
from oncelog.records.build import build_batch
from oncelog.records.header import read_header
from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.local_topics import LocalTopics
from oncelog.server.settings import Settings
from oncelog.server.topics import Partition, Topic, Topics
from oncelog.server.turns import Turns

NOW = ManualClock().now()


class AlwaysOver(Turns):
    """Others have their turn after each step."""

    def is_over(self) -> bool:
        return True


EVERY_TURN_IS_OVER = AlwaysOver(lambda: 0)


def open_topics(folder: Path, disk: Disk | None = None, **settings: object) -> Topics:
    return LocalTopics(Settings(log_dir=str(folder), **settings), disk or RealDisk(), ProducerMap, NOW)  # type: ignore[arg-type]


def append(partition: Partition, value: bytes = b"value") -> None:
    batch = build_batch([(None, value, (), NOW.wall_ms)], timestamp_ms=NOW.wall_ms)
    partition.log.append(batch, read_header(batch), NOW)


def state(topics: Topics) -> dict[str, object]:
    return {
        topic.name: (topic.id, [partition.log.next_offset for partition in topic.partitions], topic.configs)
        for topic in topics.all()
    }


def grow_to(topics: Topics, topic: Topic, count: int) -> None:
    at_once(topics.adding_partitions(topic, count, NOW))


def delete_at_once(topics: Topics, topic: Topic) -> None:
    at_once(topics.deleting(topic, NOW))


def refusal(work: Callable[[], object]) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        work()
    return caught.value.code
