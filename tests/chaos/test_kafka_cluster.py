"""The experiment on three brokers of a real Kafka: all of them are behind the proxy, and only connections are hurt."""

from pathlib import Path

import pytest

from oncelog.chaos.experiment import run
from oncelog.chaos.outcome import Options, Verdict
from oncelog.chaos.plan import ON_THE_WIRE
from oncelog.chaos.report import lines
from tests.client.faults.kafka_cluster import KafkaCluster
from tests.peers.jars import MissingPeer, kafka_jars, need_or_skip

MESSAGES = 20_000


@pytest.mark.thorough
@pytest.mark.peers
@pytest.mark.timeout(600)
def test_on_a_kafka_of_three_brokers_each_message_stands_there_once(tmp_path: Path) -> None:
    try:
        kafka_jars()
    except MissingPeer as missing:
        need_or_skip(missing)
    with KafkaCluster(tmp_path / "kafka") as cluster:
        for client in ("oncelog", "librdkafka"):
            options = Options(
                messages=MESSAGES,
                rate=2_000,
                every=1_000,
                partitions=3,
                client=client,
                targets=ON_THE_WIRE,
                servers=cluster.bootstrap_servers,
            )
            (folder := tmp_path / client).mkdir()
            found = run(options, folder)
            assert found.verdict is Verdict.EXACT, lines(found)
            assert found.result.all.received == MESSAGES
            assert {each.target for each in found.happened if each.hit_work} == ON_THE_WIRE
