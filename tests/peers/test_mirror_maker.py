"""MirrorMaker 2 from a real Kafka to oncelog: topics arrive with their settings, and records with their keys."""

from pathlib import Path

import pytest

from oncelog.chaos.life import Life
from tests.peers.jars import MissingPeer, kafka_java, mirror_jars, need_or_skip
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
FLOW = "source->target"


class MirrorMaker(Life):
    def __init__(self, folder: Path, source: ServerProcess, target: ServerProcess, topic: str) -> None:
        super().__init__("MirrorMaker", folder / "mirror.log")
        self._folder = folder
        self._settings = {
            "clusters": "source, target",
            "source.bootstrap.servers": source.bootstrap_servers,
            "target.bootstrap.servers": target.bootstrap_servers,
            f"{FLOW}.enabled": "true",
            "target->source.enabled": "false",
            f"{FLOW}.topics": topic,
            "replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
            "emit.heartbeats.enabled": "false",
            "emit.checkpoints.enabled": "false",
            **{f"{kind}.storage.replication.factor": "1" for kind in ("config", "offset", "status")},
            **{f"{kind}.topic.replication.factor": "1" for kind in ("checkpoints", "heartbeats", "offset-syncs")},
            "replication.factor": "1",
            "offset.storage.partitions": "1",
            "status.storage.partitions": "1",
        }

    def __enter__(self) -> "MirrorMaker":
        file = self._folder / "mirror.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in self._settings.items()))
        main = "org.apache.kafka.connect.mirror.MirrorMaker"
        self.launch(kafka_java(main, str(file), beside=(mirror_jars(),)), cwd=self._folder, env=None)
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


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
