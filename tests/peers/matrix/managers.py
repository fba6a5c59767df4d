"""Tools that manage topics, by files that say what should be."""

import subprocess
from typing import Final

from tests.cluster.stock.doors import TOPIC
from tests.cluster.writing import PARTITIONS
from tests.peers.matrix.installing import on_path
from tests.peers.matrix.steps import Step, World
from tests.raw import RawConnection

TOOL_S: Final = 120
TOPICCTL: Final = "topicctl"


def run(program: str, *words: str) -> str:
    """What it says; where it fails, that is what the test says."""
    done = subprocess.run(
        [on_path(program), *words],
        capture_output=True,
        text=True,
        timeout=TOOL_S,
        check=False,
    )
    assert done.returncode == 0, (words, done.stdout[-1000:], done.stderr[-2000:])
    return done.stdout


def config_of(world: World, topic: str, name: str) -> str:
    with RawConnection(world.server.port) as raw:
        resources = [{"resource_type": 2, "resource_name": topic, "configuration_keys": [name]}]
        answer = raw.call("describe_configs", 1, resources=resources, include_synonyms=False)
    (config,) = answer.results[0].configs
    return str(config.value)


def partitions_of(world: World, topic: str) -> int:
    with RawConnection(world.server.port) as raw:
        answer = raw.call("metadata", 8, topics=[{"name": topic}], allow_auto_topic_creation=False)
    return len(answer.topics[0].partitions)


CLUSTER_FILE: Final = """\
meta: {{name: here, environment: test, region: here}}
spec: {{bootstrapAddrs: ["{servers}"]}}
"""
TOPIC_FILE: Final = """\
meta: {{name: {topic}, cluster: here, environment: test, region: here}}
spec:
  partitions: {partitions}
  replicationFactor: 1
  retentionMinutes: {minutes}
  placement: {{strategy: any}}
  settings:
    cleanup.policy: delete
    min.insync.replicas: 1
    max.message.bytes: {bytes}
"""


def by_files(world: World) -> None:
    """topicctl: made as the file says, then changed as the changed file says, and checked."""
    cluster, topic = world.folder / "cluster.yaml", world.folder / "topic.yaml"
    cluster.write_text(CLUSTER_FILE.format(servers=world.servers))

    def topicctl(*words: str) -> str:
        return run(TOPICCTL, *words, "--cluster-config", str(cluster))

    for partitions, minutes, size in ((PARTITIONS, 60, 500_000), (PARTITIONS + 2, 90, 600_000)):
        topic.write_text(TOPIC_FILE.format(topic=TOPIC, partitions=partitions, minutes=minutes, bytes=size))
        topicctl("apply", "--skip-confirm", "--sleep-loop-duration", "200ms", str(topic))
        found = partitions_of(world, TOPIC), config_of(world, TOPIC, "retention.ms")
        assert (*found, config_of(world, TOPIC, "max.message.bytes")) == (partitions, str(minutes * 60_000), str(size))
        topicctl("check", str(topic))
    for what in (("brokers",), ("topics",), ("partitions", TOPIC), ("offsets", TOPIC), ("groups",), ("config", TOPIC)):
        topicctl("get", *what)


BY_FILES: Final = Step("makes a topic as a file says, changes it as the changed file says, and checks it", by_files)
