"""MirrorMaker 2 from a real Kafka to oncelog: topics arrive with their settings, and records with their keys."""

from pathlib import Path

import pytest

from tests.peers.jars import MissingPeer, need_or_skip
from tests.peers.mirror_maker import MirrorMaker
from tests.peers.server_process import ServerProcess
from tests.raw import RawConnection, Rec, batch

PATIENCE_S = 150
# Whatever a topic can have on Kafka. MirrorMaker itself leaves out what belongs to one cluster, such as
# message.timestamp.type and min.insync.replicas.
SETTINGS = {
    "cleanup.policy": "compact",
    "compression.type": "zstd",
    "compression.zstd.level": "5",
    "delete.retention.ms": "1000",
    "file.delete.delay.ms": "1000",
    "flush.messages": "100",
    "flush.ms": "1000",
    "local.retention.ms": "5",
    "max.compaction.lag.ms": "100000000",
    "message.timestamp.after.max.ms": "7200000",
    "message.timestamp.before.max.ms": "86400000",
    "retention.bytes": "123456789",
    "segment.index.bytes": "100000",
    "segment.jitter.ms": "100",
}


@pytest.mark.thorough
def test_a_compacted_topic_is_mirrored_with_all_its_settings(
    kafka: ServerProcess, oncelog_server: ServerProcess, topic: str, tmp_path: Path
) -> None:
    with RawConnection(kafka.port) as source, RawConnection(oncelog_server.port) as target:
        source.create_topic(topic, configs=SETTINGS)
        source.produce(topic, 0, batch([Rec(b"v", b"k%d" % number) for number in range(10)]))
        try:
            mirror = MirrorMaker(tmp_path, kafka, oncelog_server, topic)
            with mirror:
                mirror.await_ready(lambda: target.offset_at(topic, 0, -1).offset == 10, PATIENCE_S, 0.2)
        except MissingPeer as missing:
            need_or_skip(missing)
        wanted = [{"resource_type": 2, "resource_name": topic, "configuration_keys": list(SETTINGS)}]
        found = target.call("describe_configs", 4, resources=wanted).results[0]
        assert {one.name: one.value for one in found.configs} == SETTINGS
