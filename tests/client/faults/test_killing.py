"""Servers that are killed with -9 or lose the lead under load: every confirmed record is there, once, in order."""

from pathlib import Path

import pytest

from tests.client.faults.case import KAFKA, Case
from tests.client.faults.kafka_cluster import KafkaCluster
from tests.client.faults.killing import (
    experiment,
    kill_a_leader,
    make_replicated_topic,
    move_leaders,
    on_oncelog,
)
from tests.peers.jars import MissingPeer, kafka_jars, need_or_skip

RECORDS = 1_000_000  # at most


@pytest.mark.parametrize("flush", ["os", pytest.param("every", marks=pytest.mark.thorough)])
def test_our_server_may_be_killed_under_load(tmp_path: Path, flush: str) -> None:
    case = Case(partitions=3, records=RECORDS)
    result = on_oncelog(tmp_path, case, kills=3, between=8_000, flush=flush)
    assert result.is_exact, result


@pytest.fixture
def cluster(tmp_path: Path) -> KafkaCluster:
    try:
        kafka_jars()
    except MissingPeer as missing:
        need_or_skip(missing)
    return KafkaCluster(tmp_path)


@pytest.mark.thorough
def test_leaders_of_a_kafka_cluster_may_move_and_be_killed_under_load(cluster: KafkaCluster) -> None:
    with cluster:
        make_replicated_topic(cluster, 3)
        turns = iter([move_leaders(cluster)] * 3 + [kill_a_leader(cluster, comes_back=False)])
        case = Case(server=KAFKA, partitions=3, records=RECORDS)
        result = experiment(case, cluster.bootstrap_servers, lambda: next(turns)(), kills=4, between=8_000)
    assert result.is_exact, result
