"""Sinks, a copy and a saved producer that end half-way, as the folder of a server: `python -m ... FOLDER.tar.gz`.

Run by an old commit, it leaves what a newer one must go on from (`test_resumed.py`). `values` of a sink's batch come
from its number and lane alone, so whoever goes on knows what the first run had.
"""

import sys
import tarfile
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

from oncelog.client import Admin, Consumer, Producer, TopicPartition
from oncelog.client.consumer import ranges
from oncelog.client.types import NewTopic
from oncelog.embedded import Server
from oncelog.spark.copying import moving
from tests.spark.copying.support import Copy
from tests.spark.sink.support import Sink, cut

# Nothing is to grow old while it lies in a repository.
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.retention.minutes": str(50 * 365 * 24 * 60),
    "log.retention.ms": "-1",
    "log.segment.bytes": str(1 << 20),
    "oncelog.lease.lifetime.ms": str(50 * 365 * 24 * 60 * 60_000),
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "1",
}
ROWS = 60
COPIED = 400
SAVED = 40
GROUP = "half-way"
SINKS = ("claimed", "sent", "next", "saved", "grown", "topics")


def rows(batch: int, lane: int, count: int = ROWS) -> list[tuple[bytes, bytes]]:
    return [(b"k%d" % (row % 7), b"%d.%d.%d" % (batch, lane, row)) for row in range(count)]


def topics_of(sink: str) -> list[str]:
    return ["topics-a", "topics-b"] if sink == "topics" else [f"{sink}-out"]


def a_sink(server: Server, sink: str) -> Sink:
    topic = "" if sink == "topics" else f"{sink}-out"
    return Sink(server, topic, query=f"query-{sink}", sink_name=sink)


def batches(sink: str, batch: int, lane: int, count: int = ROWS) -> list[Any]:
    import pyarrow as pa

    found = cut(rows(batch, lane, count), 10)
    if sink != "topics":
        return found
    names = [topics_of(sink)[at % (1 + (batch > 0))] for at in range(len(found))]
    return [
        each.append_column("topic", pa.array([name] * each.num_rows)) for each, name in zip(found, names, strict=True)
    ]


def whole(server: Server, sink: str, batch: int, lanes: int = 2) -> None:
    using = a_sink(server, sink)
    using.commit(batch, [using.lane(batch, lane, batches(sink, batch, lane)) for lane in range(lanes)])


def cut_short(server: Server, sink: str, batch: int, lane: int, count: int) -> None:
    """A task of a killed driver: it sees its input end early, and nobody commits what it sent."""
    a_sink(server, sink).lane(batch, lane, batches(sink, batch, lane, count))


def leave_sinks(server: Server) -> None:
    cut_short(server, "claimed", 0, 0, 0)  # whose the sink is, and no more
    a_sink(server, "claimed").lane(0, 0, [])
    cut_short(server, "sent", 0, 0, ROWS)  # lanes are claimed; one has sent everything, one a part
    cut_short(server, "sent", 0, 1, 20)
    whole(server, "next", 0)
    cut_short(server, "next", 1, 1, 30)  # behind a state: one mark
    whole(server, "saved", 0)  # and Spark does not know
    for batch in range(5):  # old records are removed from batch 2 on
        whole(server, "grown", batch)
    cut_short(server, "grown", 5, 0, 40)
    whole(server, "topics", 0)
    cut_short(server, "topics", 1, 0, 40)  # on to a topic that the lane did not know


def leave_copy(server: Server) -> None:
    with Producer({"bootstrap.servers": server.bootstrap_servers, "batch.num.messages": 10}) as producer:
        for number in range(COPIED):
            producer.produce("copied", b"record %d" % number, b"%d" % number, partition=number % 2)
    copy = Copy(server.bootstrap_servers, "copied", "copy", name="half-way")
    (task,) = copy.tasks()
    ends_early = task.orders[0]._replace(end_offset=50)
    moving.run(type(task)(task.job, (ends_early,), task.register), "first")
    (task,) = copy.tasks()
    read = ranges.read_batches

    def read_a_little(*given: Any, **more: Any) -> Any:
        for at, each in enumerate(read(*given, **more)):
            yield each
            if at == 0:
                raise RuntimeError("killed")

    with patch.object(moving, "read_batches", read_a_little), suppress(RuntimeError):
        moving.run(task, "second")


def leave_saved_producer(server: Server) -> None:
    servers = {"bootstrap.servers": server.bootstrap_servers}
    consumer = Consumer({**servers, "group.id": GROUP, "enable.auto.commit": False})
    producer = Producer(servers)
    producer.pin("saved-producer")
    consumer.commit(offsets=[TopicPartition("positions", 0, 0, "mine")], producer=producer)
    for end in (SAVED, 2 * SAVED):
        for number in range(end - SAVED, end):
            producer.produce("saved-producer", b"%d" % number, partition=number % 3)
        consumer.commit(offsets=[TopicPartition("positions", 0, end, "mine")], producer=producer)
    for number in range(2 * SAVED, 3 * SAVED):  # behind the save
        producer.produce("saved-producer", b"%d" % number, partition=number % 3)
    producer.flush()
    producer.close()
    consumer.close()


def make(archive: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        with Server(data_dir=folder, settings=SETTINGS) as server:
            with Admin({"bootstrap.servers": server.bootstrap_servers}) as admin:
                names = [topic for sink in SINKS for topic in topics_of(sink)]
                names += ["copied", "copy", "saved-producer", "positions"]
                for made in admin.create_topics([NewTopic(name, _partitions(name), 1) for name in names]).values():
                    made.result()
            leave_sinks(server)
            leave_copy(server)
            leave_saved_producer(server)
        with tarfile.open(archive, "w:gz", compresslevel=9) as packed:
            packed.add(folder, arcname=".")


def _partitions(topic: str) -> int:
    return {"copied": 2, "copy": 2, "positions": 1}.get(topic, 3)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
