"""What is promised with exactly once, where brokers are processes that are killed and paused: nothing that was
acknowledged is lost, nothing is there twice, and each key's records are in order."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from operator import gt
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import oncelog
from oncelog.client import Producer
from tests.cluster.writing import PARTITIONS, Writing, check
from tests.raw import RawConnection
from tests.waiting import until

AT_ONCE = 500
# A client waits for a broker that hangs as long as it is told to, whoever leads meanwhile.
IMPATIENT = {"socket.timeout.ms": 5000, "socket.connection.setup.timeout.ms": 5000}


def all_know_that_all_are_in_sync(cluster: oncelog.Server) -> bool:
    """A broker that has just gone on answers for a moment as if nothing had happened, and tells where the log ended."""
    told = []
    for address in cluster.bootstrap_servers.split(","):
        with RawConnection(address) as raw:
            named = {"topic_id": None, "name": "orders"}
            (topic,) = raw.call("metadata", 12, topics=[named], allow_auto_topic_creation=False).topics
        told.append([(each.leader_id, each.leader_epoch, len(each.isr_nodes)) for each in topic.partitions])
    return all(each == told[0] for each in told) and all(in_sync == 3 for _, _, in_sync in told[0])


@pytest.fixture
def cluster() -> Iterator[oncelog.Server]:
    with oncelog.Server(brokers=3) as server:
        admin = AdminClient({"bootstrap.servers": server.bootstrap_servers})
        for made in admin.create_topics([NewTopic("orders", PARTITIONS)]).values():
            made.result()
        yield server


def conf_of(cluster: oncelog.Server) -> dict[str, Any]:
    return {"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True, "linger.ms": 2}


def leader(cluster: oncelog.Server, index: int = 0) -> int:
    admin = AdminClient({**cluster.client_config})
    found = admin.list_topics("orders", timeout=60).topics["orders"].partitions[index]
    return int(found.leader)


def another_than(silent: int, cluster: oncelog.Server) -> Callable[[], bool]:
    return lambda: leader(cluster) != silent


def all_in_sync(cluster: oncelog.Server) -> bool:
    admin = AdminClient({**cluster.client_config})
    found = admin.list_topics("orders", timeout=60).topics["orders"].partitions.values()
    return all(len(each.isrs) == 3 for each in found)


def replicas(cluster: oncelog.Server) -> list[int]:
    """Of the first partition; in this order they are elected."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    return list(admin.list_topics("orders", timeout=60).topics["orders"].partitions[0].replicas)


@contextmanager
def more_at(cluster: oncelog.Server, *nodes: int) -> Iterator[None]:
    """When this is over, more of the first partition is in the logs of these brokers than before."""

    def sizes() -> list[int]:
        folders = [Path(cluster.data_dir) / str(node) / "orders-0" for node in nodes]
        return [sum(file.stat().st_size for file in folder.glob("*.log")) for folder in folders]

    before = sizes()
    yield
    until(lambda: all(map(gt, sizes(), before)), f"more in the logs of {nodes}")


def kill_and_resume(cluster: oncelog.Server, killed: int, paused: Iterable[int]) -> None:
    cluster.kill(killed)
    for node in paused:
        cluster.resume(node)


def test_what_a_killed_leader_had_and_not_acknowledged_is_there_once(cluster: oncelog.Server) -> None:
    """Once by the broker that has it, which must know it when it is sent again; once where nobody else has it."""
    with Producer(conf_of(cluster)) as producer:
        writing = Writing(producer)
        writing.send(AT_ONCE)
        writing.end()

        one, two, three = replicas(cluster)
        assert leader(cluster) == one
        cluster.pause(three)  # so that acknowledgements wait
        with more_at(cluster, one, two):
            writing.send(AT_ONCE)
        kill_and_resume(cluster, one, [three])
        writing.end()
        until(lambda: leader(cluster) == two, "the next one to lead")
        cluster.start(one)
        until(lambda: all_in_sync(cluster), "the killed broker to be in sync")

        for node in (one, three):
            cluster.pause(node)
        for _ in range(2):  # an acknowledgement of the first would come before the second is appended
            with more_at(cluster, two):
                writing.send(AT_ONCE)
        kill_and_resume(cluster, two, [one, three])
        writing.end()
    check(cluster.bootstrap_servers, writing)


@pytest.mark.thorough
def test_a_leader_that_hangs_longer_than_its_session_costs_nothing(cluster: oncelog.Server) -> None:
    with Producer(conf_of(cluster) | IMPATIENT) as producer:
        writing = Writing(producer)
        for _ in range(2):
            silent = leader(cluster)
            cluster.pause(silent)
            try:
                writing.send(AT_ONCE)
                until(another_than(silent, cluster), "another leader")
                writing.end()
            finally:
                cluster.resume(silent)
            until(
                lambda: all_know_that_all_are_in_sync(cluster),
                "the broker that hung to be in sync, and to know who leads",
            )
    check(cluster.bootstrap_servers, writing)


@pytest.mark.thorough
def test_librdkafka_loses_nothing_while_each_broker_is_killed_in_turn(cluster: oncelog.Server) -> None:
    producer = confluent_kafka.Producer(conf_of(cluster))
    writing = Writing(producer)
    for victim in (1, 2, 3):
        writing.send(AT_ONCE)
        producer.poll(0)
        cluster.kill(victim)
        writing.send(AT_ONCE)
        writing.end()
        cluster.start(victim)
        until(lambda: all_in_sync(cluster), "the killed broker to be in sync")
    check(cluster.bootstrap_servers, writing)
