"""Transactions of a stock client on three brokers, each of which is killed while one is open, or while it ends."""

from collections.abc import Callable
from itertools import count

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import oncelog
from tests.waiting import until

Config = dict[str, str | int | float | bool]
PARTITIONS, AT_ONCE, ROUNDS = 3, 30, 12
TRIES = 20


def again(step: Callable[[], object]) -> None:
    """As a program is told to: what may be tried again is."""
    for tries in count(1):
        try:
            step()
            return
        except KafkaException as refusal:
            if not refusal.args[0].retriable() or tries == TRIES:
                raise


def transact(producer: Producer, numbers: range, is_kept: bool, meanwhile: Callable[[], None]) -> None:
    """All of it anew where it has to be aborted."""
    while True:
        producer.begin_transaction()
        for number in numbers:
            producer.produce("orders", b"%d" % number, partition=number % PARTITIONS)
        meanwhile()
        try:
            again((lambda: producer.commit_transaction(60)) if is_kept else (lambda: producer.abort_transaction(60)))
            return
        except KafkaException as refusal:
            if not refusal.args[0].txn_requires_abort():
                raise
            again(lambda: producer.abort_transaction(60))


@pytest.mark.thorough
def test_all_of_a_transaction_is_there_or_nothing_though_every_broker_is_killed() -> None:
    with oncelog.Server(brokers=3) as server:
        config: Config = {"bootstrap.servers": server.bootstrap_servers}
        admin = AdminClient(config)
        for made in admin.create_topics([NewTopic("orders", PARTITIONS)]).values():
            made.result()
        producer = Producer({**config, "transactional.id": "writer"})
        again(lambda: producer.init_transactions(60))
        down: list[int] = []

        def kill_another() -> None:
            for broker in down:
                server.start(broker)
            down[:] = [down[0] % 3 + 1 if down else 1]
            until(lambda: all_are_in_sync(admin), "all in sync")
            server.kill(down[0])

        expected: dict[int, list[int]] = {index: [] for index in range(PARTITIONS)}
        for place in range(ROUNDS):
            numbers, is_kept = range(place * AT_ONCE, (place + 1) * AT_ONCE), place % 3 != 2
            if is_kept:
                for number in numbers:
                    expected[number % PARTITIONS].append(number)
            transact(producer, numbers, is_kept, kill_another if place % 2 else lambda: None)
        assert read_committed(config, sum(map(len, expected.values()))) == expected


def all_are_in_sync(admin: AdminClient) -> bool:
    topics = admin.list_topics(timeout=60).topics.values()
    return all(len(each.isrs) == 3 for topic in topics for each in topic.partitions.values())


def read_committed(config: Config, count: int) -> dict[int, list[int]]:
    """The end of each partition, so that nothing is behind what is expected."""
    reader = Consumer({**config, "group.id": "audit", "enable.partition.eof": True})
    reader.assign([TopicPartition("orders", index, 0) for index in range(PARTITIONS)])
    found: dict[int, list[int]] = {index: [] for index in range(PARTITIONS)}
    ended: set[int] = set()

    def take() -> bool:
        for message in reader.consume(1_000, 0.2):
            index = message.partition()
            assert index is not None
            if message.error() is None:
                found[index].append(int(message.value() or b""))
            else:
                ended.add(index)
        return len(ended) == PARTITIONS and sum(map(len, found.values())) >= count

    try:
        until(take, "all that was committed", give_up_seconds=60)
    finally:
        reader.close()
    return found
