"""`stats_cb`: what it is told, when, and that it is librdkafka's JSON."""

import json
import re
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from oncelog.client import AsyncConsumer, AsyncProducer, Consumer, Producer
from oncelog.client.net.brokers import Brokers
from oncelog.client.properties import producer_settings
from oncelog.embedded import Server
from tests.raw import RawConnection
from tests.raw.topics import new_topic
from tests.waiting import until

PAGE = Path(__file__).parents[3] / "docs" / "client-statistics.md"
RECORDS = 100
PATIENCE_S = 20
EVERY_MS = 20
MANY_TELLINGS = 10
OURS = {"producer_id", "producer_epoch"}  # of a partition; librdkafka has one for all
NEVER = {"-1"}  # librdkafka's own partition for records without one
_groups = count(1)

Poll = Callable[[], object]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(settings={"group.initial.rebalance.delay.ms": "0"}) as server:
        yield server


@pytest.fixture
def topic(server: Server) -> str:
    with RawConnection(server.bootstrap_servers) as raw:
        return new_topic(raw)


def properties(server: Server, told: list[str], **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": server.bootstrap_servers,
        "statistics.interval.ms": EVERY_MS,
        "stats_cb": told.append,
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def told_until(told: list[str], poll: Poll, is_enough: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The first statistics, from here on, that say so."""

    def found() -> bool:
        poll()
        return bool(told) and is_enough(json.loads(told[-1]))

    until(found, "statistics say so")
    last: dict[str, Any] = json.loads(told[-1])
    return last


def produced(producer: Any, topic: str, told: list[str]) -> dict[str, Any]:
    for number in range(RECORDS):
        producer.produce(topic, b"value", b"%d" % number)
    producer.flush(PATIENCE_S)
    told.clear()
    return told_until(told, lambda: producer.poll(0.05), lambda _: True)


def consumed(consumer: Any, topic: str, told: list[str]) -> dict[str, Any]:
    consumer.subscribe([topic])
    for _ in range(RECORDS):
        message = None
        while message is None:
            message = consumer.poll(PATIENCE_S)
        assert message.error() is None
    consumer.commit(asynchronous=False)
    return told_until(
        told, lambda: consumer.poll(0.05), lambda said: partition_of(said, topic)["committed_offset"] == RECORDS
    )


def partition_of(said: dict[str, Any], topic: str) -> dict[str, Any]:
    found: dict[str, Any] = said["topics"].get(topic, {}).get("partitions", {}).get("0", {"committed_offset": -1})
    return found


def test_a_producer_tells_what_it_sent_and_to_whom(server: Server, topic: str) -> None:
    told: list[str] = []
    with Producer(properties(server, told, client_id="me")) as producer:
        said = produced(producer, topic, told)
    assert (said["type"], said["client_id"], said["msg_cnt"], said["msg_max"]) == ("producer", "me", 0, 100_000)
    (broker,) = said["brokers"].values()
    assert (broker["state"], broker["nodeid"], broker["waitresp_cnt"]) == ("UP", 1, 0)
    assert broker["tx"] == broker["rx"] == said["tx"]
    assert broker["req"]["Produce"] >= 1
    assert broker["toppars"] == {f"{topic}-0": {"topic": topic, "partition": 0}}
    partition = partition_of(said, topic)
    assert (partition["txmsgs"], partition["next_ack_seq"], partition["msgs_inflight"]) == (RECORDS, RECORDS, 0)
    assert partition["producer_id"] > 0
    assert said["txmsgs"] == RECORDS


def test_a_consumer_tells_how_far_it_has_come(server: Server, topic: str) -> None:
    with Producer({"bootstrap.servers": server.bootstrap_servers}) as producer:
        for number in range(RECORDS):
            producer.produce(topic, b"%d" % number)
    told: list[str] = []
    group = f"group-{next(_groups)}"
    consumer = Consumer(properties(server, told, group_id=group, auto_offset_reset="earliest"))
    try:
        said = consumed(consumer, topic, told)
    finally:
        consumer.close()
    partition = partition_of(said, topic)
    assert (partition["fetch_state"], partition["next_offset"], partition["app_offset"]) == ("active", RECORDS, RECORDS)
    assert (partition["hi_offset"], partition["lo_offset"], partition["consumer_lag"]) == (RECORDS, 0, 0)
    assert (partition["rxmsgs"], said["rxmsgs"]) == (RECORDS, RECORDS)
    assert said["cgrp"]["state"] == "up" and said["cgrp"]["join_state"] == "steady"
    assert (said["cgrp"]["assignment_size"], said["cgrp"]["rebalance_cnt"]) == (1, 1)
    assert said["cgrp"]["rebalance_reason"] == "the subscription changed"


@pytest.mark.parametrize("client", [Producer, Consumer])
def test_an_application_that_does_not_poll_is_told_once_when_it_does(server: Server, client: Any) -> None:
    told: list[str] = []
    others: list[str] = []
    silent = client(properties(server, told, group_id="silent"))
    polled = client(properties(server, others, group_id="polled"))
    try:
        for _ in range(MANY_TELLINGS):
            told_until(others, lambda: polled.poll(0), lambda _: True)
            others.clear()
        told_until(told, lambda: silent.poll(0), lambda _: True)
        assert len(told) <= 2, "one may come while the first is told"
    finally:
        silent.close()
        polled.close()


async def test_the_asynchronous_faces_tell_too(server: Server, topic: str) -> None:
    told: list[str] = []
    async with AsyncProducer(properties(server, told)) as producer:
        await (await producer.produce(topic, b"a"))
        while not any(partition_of(json.loads(text), topic).get("txmsgs") for text in told):
            await (await producer.produce(topic, b"a"))
    told.clear()
    async with AsyncConsumer(properties(server, told, group_id="async", auto_offset_reset="earliest")) as consumer:
        await consumer.subscribe([topic])
        while not any(partition_of(json.loads(text), topic).get("rxmsgs") for text in told):
            await consumer.poll(0.05)


def test_without_a_callback_or_an_interval_nothing_is_told(server: Server, topic: str) -> None:
    told: list[str] = []
    both = properties(server, told)
    for name in ("statistics.interval.ms", "stats_cb"):
        with Producer({given: value for given, value in both.items() if given != name}) as producer:
            producer.produce(topic, b"a")
            assert producer.flush(PATIENCE_S) == 0
    assert told == []


@pytest.mark.parametrize("name", ["statistics.interval.ms", "stats_cb"])
async def test_without_a_callback_or_an_interval_nothing_is_counted(server: Server, name: str) -> None:
    for left_out, is_counted in (("", True), (name, False)):
        given = {key: value for key, value in properties(server, []).items() if key != left_out}
        brokers = Brokers(producer_settings(given))
        await brokers.start()
        try:
            await brokers.refresh()
            assert (brokers.traffic(1) is not None) is is_counted
        finally:
            await brokers.close()


def names_in(told: Any) -> set[str]:
    """Every field's name, those of the objects in it included; not those that name a broker, topic or partition."""
    found: set[str] = set()
    for name, value in told.items():
        if name in ("brokers", "topics", "partitions"):
            found.add(name)
            for key, each in value.items():
                found |= names_in(each) if key not in NEVER else set()
        elif name in ("toppars", "req"):
            found.add(name)
        elif isinstance(value, dict):
            found |= {name} | {f"{name}.{inner}" if name in ("cgrp", "eos") else inner for inner in value}
        else:
            found.add(name)
    return found


def test_every_field_is_librdkafkas_and_the_page_names_those_that_are_left_out(server: Server, topic: str) -> None:
    ours: set[str] = set()
    theirs: set[str] = set()
    makes: list[tuple[Any, set[str]]] = [(Producer, ours), (confluent_kafka.Producer, theirs)]
    for make, found in makes:
        told: list[str] = []
        producer = make(properties(server, told, enable_idempotence=True))
        found |= names_in(produced(producer, topic, told))
        if isinstance(producer, Producer):
            producer.close()
    makes = [(Consumer, ours), (confluent_kafka.Consumer, theirs)]
    for make, found in makes:
        told = []
        group = f"group-{next(_groups)}"
        consumer = make(properties(server, told, group_id=group, auto_offset_reset="earliest"))
        found |= names_in(consumed(consumer, topic, told))
        consumer.close()
    assert ours - theirs == OURS
    left_out = set(re.findall(r"`([\w.]+)`", PAGE.read_text().partition("## Left out")[2]))
    assert theirs - ours == left_out
