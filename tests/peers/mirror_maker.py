"""MirrorMaker 2, from one server to another or to the same."""

from pathlib import Path

from oncelog.chaos.life import Life
from tests.peers.jars import kafka_java, mirror_jars
from tests.peers.server_process import ServerProcess

FLOW = "source->target"
SAME_NAMES = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
NAMES_OF_SOURCE = "org.apache.kafka.connect.mirror.DefaultReplicationPolicy"  # "source.NAME"


class MirrorMaker(Life):
    def __init__(
        self, folder: Path, source: ServerProcess, target: ServerProcess, topic: str, *, policy: str = SAME_NAMES
    ) -> None:
        super().__init__("MirrorMaker", folder / "mirror.log")
        self._folder = folder
        self._settings = {
            "clusters": "source, target",
            "source.bootstrap.servers": source.bootstrap_servers,
            "target.bootstrap.servers": target.bootstrap_servers,
            f"{FLOW}.enabled": "true",
            "target->source.enabled": "false",
            f"{FLOW}.topics": topic,
            "replication.policy.class": policy,
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
