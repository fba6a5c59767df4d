"""Kafka's own tools that look after several brokers: moving partitions, and leaders."""

import json
import subprocess
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic, PartitionMetadata

import oncelog
from tests.peers.jars import MissingPeer, kafka_java, need_or_skip
from tests.waiting import until

REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
ELECT = "org.apache.kafka.tools.LeaderElectionCommand"


def ran(name: str, servers: str, *arguments: str) -> str:
    try:
        command = kafka_java(name, "--bootstrap-server", servers, *arguments)
    except MissingPeer as missing:
        need_or_skip(missing)
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.thorough
def test_partitions_are_moved_and_led_by_who_is_preferred(tmp_path: Path) -> None:
    with oncelog.Server(brokers=3) as server:
        servers = server.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers})
        for made in admin.create_topics([NewTopic("orders", 2, 3)]).values():
            made.result()
        moves = [{"topic": "orders", "partition": index, "replicas": [3, 1]} for index in range(2)]
        file = tmp_path / "moves.json"
        file.write_text(json.dumps({"version": 1, "partitions": moves}))
        executed = ran(REASSIGN, servers, "--reassignment-json-file", str(file), "--execute")
        assert "Successfully started partition reassignments for orders-0,orders-1" in executed

        def partitions() -> list[PartitionMetadata]:
            known = admin.list_topics("orders", timeout=30).topics["orders"].partitions
            return [known[index] for index in sorted(known)]

        def in_sync() -> list[set[int]]:
            return [set(each.isrs) for each in partitions()]

        def leaders() -> list[int]:
            return [each.leader for each in partitions()]

        until(lambda: [each.replicas for each in partitions()] == [[3, 1]] * 2, "the partitions to be moved")
        verified = ran(REASSIGN, servers, "--reassignment-json-file", str(file), "--verify")
        assert verified.count("is completed.") == 2
        assert "No partition reassignments found." in ran(REASSIGN, servers, "--list")
        server.stop(3)
        server.start(3)
        until(lambda: in_sync() == [{1, 3}] * 2, "broker 3 to be back in sync")
        assert leaders() == [1, 1]
        ran(ELECT, servers, "--election-type", "preferred", "--all-topic-partitions")
        assert leaders() == [3, 3]
