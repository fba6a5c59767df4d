"""A sink driven as Spark drives it, without Spark: tasks and commits are plain calls."""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import pyarrow as pa

from oncelog.client import Admin, Consumer, TopicPartition
from oncelog.client.types import OFFSET_BEGINNING, NewPartitions, NewTopic
from oncelog.spark.options import sink_options
from oncelog.spark.sink.driver import commit_batch
from oncelog.spark.sink.lane import LaneMessage, LaneTask
from oncelog.spark.sink.lane_writer import write_lane

Rows = Sequence[Any]


def numbers(first: int, last: int) -> list[tuple[bytes, bytes]]:
    """(key, value) of the integers from `first` to before `last`."""
    return [(f"k{number % 10}".encode(), str(number).encode()) for number in range(first, last)]


def table(rows: Iterable[Any], **more: Any) -> pa.RecordBatch:
    pairs = list(rows)
    columns = {
        "key": pa.array([key for key, _ in pairs], pa.binary()),
        "value": pa.array([value for _, value in pairs], pa.binary()),
        **more,
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def cut(rows: Rows, size: int) -> list[pa.RecordBatch]:
    return [table(rows[at : at + size]) for at in range(0, len(rows), size)]


class Reachable(Protocol):
    """A server in a process of its own, or in this one."""

    @property
    def bootstrap_servers(self) -> str: ...


class Sink:
    def __init__(self, server: Reachable, topic: str, *, query: str | None = None, **options: str) -> None:
        self.query = query or f"query-of-{topic}"
        given = {"kafka.bootstrap.servers": server.bootstrap_servers, "topic": topic}
        given |= {name.replace("_", "."): value for name, value in options.items()}
        self.options = sink_options({name: value for name, value in given.items() if value})

    def lane(self, batch: int, lane: int, batches: Iterable[pa.RecordBatch], attempt: int = 0) -> LaneMessage:
        return write_lane(self.options, LaneTask(self.query, batch, lane, attempt), batches)

    def commit(self, batch: int, messages: Sequence[LaneMessage | None]) -> None:
        commit_batch(self.options, messages, batch)

    def run(self, batch: int, lanes: Sequence[Rows], size: int = 1000) -> list[LaneMessage]:
        """A batch as it should be."""
        messages = [self.lane(batch, number, cut(rows, size)) for number, rows in enumerate(lanes)]
        self.commit(batch, messages)
        return messages


def make_topic(server: Reachable, topic: str, partitions: int = 4, **config: str) -> None:
    with Admin({"bootstrap.servers": server.bootstrap_servers}) as admin:
        made = NewTopic(topic, partitions, 1, config={name.replace("_", "."): value for name, value in config.items()})
        for future in admin.create_topics([made]).values():
            future.result()


def remove_topic(server: Reachable, topic: str) -> None:
    with Admin({"bootstrap.servers": server.bootstrap_servers}) as admin:
        for future in admin.delete_topics([topic]).values():
            future.result()


def grow_topic(server: Reachable, topic: str, partitions: int) -> None:
    with Admin({"bootstrap.servers": server.bootstrap_servers}) as admin:
        for future in admin.create_partitions([NewPartitions(topic, partitions)]).values():
            future.result()


def stored(server: Reachable, topic: str) -> dict[int, list[tuple[bytes | None, bytes | None]]]:
    """What stands in each partition, in its order."""
    return {
        partition: [(message.key(), message.value()) for message in messages]
        for partition, messages in messages_of(server, topic).items()
    }


def messages_of(server: Reachable, topic: str) -> dict[int, list[Any]]:
    consumer = Consumer({"bootstrap.servers": server.bootstrap_servers, "group.id": "reader"})
    try:
        partitions = consumer.list_topics(topic).topics[topic].partitions
        left = 0
        for partition in partitions:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition)) or (0, 0)
            left += high - low
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
        found: dict[int, list[Any]] = {partition: [] for partition in partitions}
        while left:
            messages = consumer.consume(min(left, 10_000), timeout=60)
            assert messages, f"{left} records of {topic} do not come"
            left -= len(messages)
            for message in messages:
                found[message.partition()].append(message)
        return found
    finally:
        consumer.close()


def values(server: Reachable, topic: str) -> list[bytes | None]:
    """Of all partitions, sorted."""
    return sorted(
        (value for rows in stored(server, topic).values() for _, value in rows), key=lambda value: value or b""
    )


def values_of(*lanes: Rows) -> list[bytes]:
    return sorted(value for rows in lanes for _, value in rows)
