"""Saved producers of several kinds that end half-way, and the server's folder with what they wrote.

`python -m tests.client.saving.left_half_way.make FOLDER.tar.gz`, run by an old commit, leaves what a newer one must go
on from (`test_resumed.py`). Record `number` has a key unless `number % 3` is 0, so keyless counters take part.
"""

import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any, Final

from oncelog.client import Producer, SavedProducer
from oncelog.client.saving.saved_topics import SavedTopic
from oncelog.embedded import Server
from oncelog.slots.chain import SavedPartition
from tests.client.saving.test_resumed_producer import PARTITIONS, feed
from tests.raw import RawConnection
from tests.waiting import until

LIFETIME: Final = "oncelog.lease.lifetime.ms"
SETTINGS: Final = {
    "log.retention.ms": "-1",
    "log.segment.bytes": str(1 << 20),
    LIFETIME: str(50 * 365 * 24 * 3_600_000),
}
SHORT_MS: Final = 2_000
KINDS: Final = ("lease", "ended", "kafka", "keyless")
SAVED, WRITTEN = 40, 70  # numbers below these were saved, and written


def started(server: Server, saved: Any = None, **properties: Any) -> Producer:
    return Producer({"bootstrap.servers": server.bootstrap_servers, "linger.ms": 1, **properties}, saved=saved)


def half_way(producer: Producer, topic: str) -> str:
    feed(producer, topic, 0, SAVED)
    saved = producer.saved().to_json()
    feed(producer, topic, SAVED, WRITTEN)
    producer.close()
    return saved


def leased(server: Server, topic: str, **properties: Any) -> str:
    producer = started(server, **properties)
    producer.pin(topic)
    producer.saved()
    return half_way(producer, topic)


def on_a_kafka_pid(server: Server, topic: str) -> str:
    """As the sinks' lanes are."""
    with RawConnection(server.bootstrap_servers) as raw:
        pid, _ = raw.init_producer_id()
    producer = started(server)
    producer.pin(topic)
    value = producer.saved().to_value()
    producer.close()
    fresh = SavedProducer.from_json(value)
    partitions = fresh.topics[topic].partitions
    spans = {
        at: each.spans[0]._replace(identity=each.spans[0].identity._replace(pid=pid, generation=0, expires_at_ms=-1))
        for at, each in partitions.items()
    }
    known = fresh.topics[topic]
    saved = SavedProducer(
        cluster_id=fresh.cluster_id,
        made_at_ms=fresh.made_at_ms,
        partitioner=fresh.partitioner,
        topics={
            topic: SavedTopic(
                topic_id=known.topic_id,
                partition_count=known.partition_count,
                keyless_counter=0,
                partitions={at: SavedPartition(next_offset=0, spans=(span,)) for at, span in spans.items()},
            )
        },
    )
    return half_way(started(server, saved), topic)


def make(archive: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        data, values = Path(folder, "data"), Path(folder, "saved")
        values.mkdir()
        with Server(data_dir=str(data), settings=SETTINGS | {LIFETIME: str(SHORT_MS)}) as server:
            with RawConnection(server.bootstrap_servers) as raw:
                for kind in KINDS:
                    assert raw.create_topic(kind, PARTITIONS) == 0
            first = leased(server, "ended")
            until(lambda: _is_refused(server, first), "its lease is over")
            second = started(server, first)  # a chain: what the ended lease has written, and a new lease
            (values / "ended.json").write_text(second.saved().to_json())
            second.close()
        with Server(data_dir=str(data), settings=SETTINGS) as server:
            (values / "lease.json").write_text(leased(server, "lease"))
            (values / "kafka.json").write_text(on_a_kafka_pid(server, "kafka"))
            (values / "keyless.json").write_text(leased(server, "keyless", **{"oncelog.keyless.run": 7}))
        with tarfile.open(archive, "w:gz", compresslevel=9) as packed:
            packed.add(folder, arcname=".")


def _is_refused(server: Server, saved: str) -> bool:
    """Whether who resumes is given another lease."""
    with started(server, saved) as producer:
        return len(next(iter(producer.saved().topics["ended"].partitions.values())).spans) > 1


if __name__ == "__main__":
    make(Path(sys.argv[1]))
