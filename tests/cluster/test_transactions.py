"""Transactions of a stock client on three brokers, each of which is killed between any two steps of one."""

from collections.abc import Callable
from contextlib import closing
from itertools import product
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import oncelog
from tests.cluster.transacting import PATIENCE_S, Step, again, transact
from tests.peers.committed import all_committed
from tests.peers.questions.transacting import state_of
from tests.raw import RawConnection
from tests.waiting import until

PARTITIONS, AT_ONCE = 3, 30
GROUPS, TRANSACTIONS = 0, 1  # what coordinators are asked for


class Brokers:
    """Three of them, and who of them does what."""

    def __init__(self, server: oncelog.Server) -> None:
        self.server = server
        self.servers = server.bootstrap_servers
        self.admin = AdminClient({"bootstrap.servers": self.servers})

    def make_topic(self, name: str, **how: Any) -> None:
        self.admin.create_topics([NewTopic(name, **how)])[name].result()

    def coordinator(self, key: str, kind: int) -> int:
        def asked() -> int:
            try:
                with RawConnection(self.port(self.some())) as raw:
                    answer = raw.call("find_coordinator", 3, key=key, key_type=kind)
            except OSError:  # it is not known yet that it is dead
                return 0
            return int(answer.node_id) if answer.error_code.name == "none" else 0

        return until(asked, f"a coordinator of {key}", give_up_seconds=PATIENCE_S)

    def leader(self, topic: str, partition: int) -> int:
        return int(self.admin.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions[partition].leader)

    def writer(self) -> Producer:
        producer = Producer({"bootstrap.servers": self.servers, "transactional.id": "writer", "log_level": 0})
        again(lambda: producer.init_transactions(PATIENCE_S))
        return producer

    def some(self) -> int:
        return min(self.admin.list_topics(timeout=PATIENCE_S).brokers)

    def port(self, broker: int) -> int:
        return int(self.admin.list_topics(timeout=PATIENCE_S).brokers[broker].port)

    def await_all_in_sync(self) -> None:
        until(self._are_all_in_sync, "all in sync", give_up_seconds=PATIENCE_S)

    def _are_all_in_sync(self) -> bool:
        topics = self.admin.list_topics(timeout=PATIENCE_S).topics.values()
        partitions = [each for topic in topics for each in topic.partitions.values()]
        return all(len(each.isrs) == len(each.replicas) for each in partitions)


def committed_values(servers: str, topic: str, partitions: int) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {index: [] for index in range(partitions)}
    for message in all_committed(servers, topic, partitions):
        partition = message.partition()
        assert partition is not None
        found[partition].append(int(message.value() or b""))
    return found


def await_committed(servers: str, topic: str, expected: dict[int, list[int]]) -> None:
    """Markers are brought to the partitions one after the other; what there is meanwhile is where it begins."""

    def is_all() -> bool:
        found = committed_values(servers, topic, len(expected))
        assert all(some == expected[index][: len(some)] for index, some in found.items()), (found, expected)
        return found == expected

    until(is_all, f"all that was committed to {topic}", give_up_seconds=PATIENCE_S)


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_all_of_a_transaction_is_there_or_nothing_whoever_is_killed_between_two_steps() -> None:
    """Records and an offset. Killed at each step are who coordinates, who leads what is written to, and who has the
    group. Every third transaction is aborted."""
    with oncelog.Server(brokers=3) as server:
        brokers = Brokers(server)
        brokers.make_topic("orders", num_partitions=PARTITIONS)
        producer = brokers.writer()
        victims: dict[str, Callable[[], int]] = {
            "who coordinates": lambda: brokers.coordinator("writer", TRANSACTIONS),
            "who leads": lambda: brokers.leader("orders", 0),
            "who has the group": lambda: brokers.coordinator("g", GROUPS),
        }
        expected: dict[int, list[int]] = {index: [] for index in range(PARTITIONS)}
        offset = -1001  # none
        with closing(Consumer({"bootstrap.servers": brokers.servers, "group.id": "g"})) as consumer:
            for place, (find, at) in enumerate(product(victims.values(), Step)):
                brokers.await_all_in_sync()
                killed: list[int] = []

                def kill(step: Step, at: Step = at, find: Callable[[], int] = find, killed: list[int] = killed) -> None:
                    if step is at and not killed:
                        killed.append(find())
                        server.kill(killed[0])

                numbers, is_kept = range(place * AT_ONCE, (place + 1) * AT_ONCE), place % 3 != 2
                records = [("orders", number % PARTITIONS, b"%d" % number) for number in numbers]
                offsets = [TopicPartition("orders", 0, place)], consumer.consumer_group_metadata()
                producer = transact(
                    producer, records, is_kept=is_kept, meanwhile=kill, offsets=offsets, anew=brokers.writer
                )
                if is_kept:
                    offset = place
                    for number in numbers:
                        expected[number % PARTITIONS].append(number)
                (told,) = consumer.committed([TopicPartition("orders", 0)], PATIENCE_S)
                assert told.offset == offset, (place, at)
                server.start(killed[0])
        await_committed(brokers.servers, "orders", expected)


@pytest.mark.thorough
def test_what_was_decided_is_brought_to_its_partitions_by_the_next_coordinator() -> None:
    """One of them was away when it was decided, so it has no marker when the coordinator dies."""
    with oncelog.Server(brokers=3) as server:
        brokers = Brokers(server)
        producer = brokers.writer()
        former = brokers.coordinator("writer", TRANSACTIONS)
        away = former % 3 + 1
        brokers.make_topic("near", num_partitions=1)
        one_copy = {"min.insync.replicas": "1"}
        brokers.make_topic("far", num_partitions=1, replica_assignment=[[away]], config=one_copy)
        brokers.await_all_in_sync()

        def go(step: Step) -> None:
            if step is Step.SENT:
                server.kill(away)

        records = [(topic, 0, b"%d" % number) for number in range(AT_ONCE) for topic in ("near", "far")]
        transact(producer, records, is_kept=True, meanwhile=go)
        with RawConnection(brokers.port(former)) as raw:
            assert state_of(raw, "writer") == "PrepareCommit"
        server.kill(former)
        server.start(away)
        for topic in ("near", "far"):
            await_committed(brokers.servers, topic, {0: list(range(AT_ONCE))})
        assert brokers.coordinator("writer", TRANSACTIONS) != former
        server.start(former)
        brokers.await_all_in_sync()
        transact(producer, [("far", 0, b"0")], is_kept=True)
        await_committed(brokers.servers, "far", {0: [*range(AT_ONCE), 0]})
