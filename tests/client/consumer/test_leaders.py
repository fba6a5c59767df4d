"""Who leads a partition: what a broker that leads no more says of it is believed, and topics are asked for by id."""

from collections.abc import AsyncIterator, Iterator
from typing import Any
from uuid import UUID

import pytest

from oncelog.client.consumer.asynchronous import AsyncConsumer
from oncelog.client.consumer.engine import Engine
from oncelog.client.errors import KafkaError
from oncelog.client.net.brokers import Brokers
from oncelog.client.properties import consumer_settings
from oncelog.client.types import TopicPartition
from oncelog.records.build import build_batch
from oncelog.wire.hot import FETCH_TOPIC_IDS
from tests.client.consumer.reading import PATIENCE_S
from tests.client.net.fake_broker import SILENT, Answer, Asked, FakeBroker

TOPIC_ID = UUID(int=7)
BATCH = bytes(build_batch([(None, b"a", (), 1)]))


@pytest.fixture
async def former() -> AsyncIterator[FakeBroker]:
    async with FakeBroker(0) as broker:
        broker.answers["metadata"] = lambda asked: topic_led_by(broker, asked)
        yield broker


@pytest.fixture
async def leader() -> AsyncIterator[FakeBroker]:
    async with FakeBroker(1) as broker:
        yield broker


def topic_led_by(broker: FakeBroker, asked: Asked) -> Answer:
    partition = {"leader_id": broker.node_id, "leader_epoch": 1, "replica_nodes": [0, 1], "isr_nodes": [0, 1]}
    topics = [{"name": "t", "topic_id": TOPIC_ID, "partitions": [partition]}] if asked.request.topics else []
    return broker.metadata_of([], topics=topics)


def fetched(asked: Asked, **partition: object) -> Answer:
    label = {"topic_id": TOPIC_ID} if asked.version >= FETCH_TOPIC_IDS else {"topic": "t"}
    return {"responses": [{**label, "partitions": [{"partition_index": 0, **partition}]}]}


def consumer_of(broker: FakeBroker) -> AsyncConsumer:
    return AsyncConsumer(
        {"bootstrap.servers": f"{broker.host}:{broker.port}", "topic.metadata.refresh.interval.ms": -1}
    )


async def test_a_leader_that_a_fetch_is_told_of_is_asked_without_asking_for_metadata(
    former: FakeBroker, leader: FakeBroker
) -> None:
    former.answers["fetch"] = lambda asked: {
        **fetched(
            asked,
            error_code=KafkaError.NOT_LEADER_FOR_PARTITION,
            current_leader={"leader_id": 1, "leader_epoch": 2},
        ),
        "node_endpoints": [{"node_id": 1, "host": leader.host, "port": leader.port}],
    }
    answers = iter([BATCH])
    leader.answers["fetch"] = lambda asked: (
        fetched(asked, records=records, high_watermark=1) if (records := next(answers, None)) else SILENT
    )
    async with consumer_of(former) as consumer:
        await consumer.assign([TopicPartition("t", 0, 0)])
        message = await consumer.poll(PATIENCE_S)
        assert message is not None and message.value() == b"a"
    assert len([asked for asked in former.asked_for("metadata") if asked.request.topics]) == 1
    assert leader.asked_for("metadata") == []
    (topic,) = leader.asked_for("fetch")[0].request.topics
    assert (topic.topic_id, topic.partitions[0].current_leader_epoch) == (TOPIC_ID, 2)


async def test_a_broker_that_knows_no_ids_is_asked_by_name(former: FakeBroker) -> None:
    former.versions[1] = (4, 12)
    former.answers["fetch"] = lambda asked: fetched(asked, records=BATCH, high_watermark=1)
    async with consumer_of(former) as consumer:
        await consumer.assign([TopicPartition("t", 0, 0)])
        message = await consumer.poll(PATIENCE_S)
        assert message is not None and message.value() == b"a"
    assert former.asked_for("fetch")[0].request.topics[0].topic == "t"


async def test_a_topic_that_was_made_anew_is_not_taken_for_the_old_one(former: FakeBroker) -> None:
    answers: Iterator[dict[str, object]] = iter(
        [{"error_code": KafkaError.UNKNOWN_TOPIC_ID}, {"records": BATCH, "high_watermark": 1}]
    )
    former.answers["fetch"] = lambda asked: (
        fetched(asked, **partition) if (partition := next(answers, None)) else SILENT
    )
    async with consumer_of(former) as consumer:
        await consumer.assign([TopicPartition("t", 0, 0)])
        told = await consumer.poll(PATIENCE_S)
        assert told is not None and (error := told.error()) is not None
        assert error.code() == KafkaError.UNKNOWN_TOPIC_ID
        message = await consumer.poll(PATIENCE_S)
        assert message is not None and message.value() == b"a"
    assert len([asked for asked in former.asked_for("metadata") if asked.request.topics]) == 2


async def test_a_topic_that_is_wanted_by_its_id_is_asked_for_by_it_also_when_metadata_has_it_no_more(
    former: FakeBroker,
) -> None:
    """By its name the old leader would tell of another topic, if one was made."""
    settings = consumer_settings({"bootstrap.servers": f"{former.host}:{former.port}"})
    brokers = Brokers(settings)
    nobody: Any = None
    engine = Engine(settings, brokers, nobody, lambda: None, lambda call: call())
    engine.wanted_ids["t"] = TOPIC_ID
    engine.fetcher.assign(("t", 0), 0)

    async def after_metadata_forgot_it(asked: Asked) -> Answer:
        if len(former.asked_for("fetch")) > 1:
            return SILENT
        brokers.forget(["t"])
        return fetched(asked, records=BATCH, high_watermark=1)

    former.answers["fetch"] = after_metadata_forgot_it
    try:
        await brokers.start()
        engine.pump()
        await former.until(lambda: len(former.asked_for("fetch")) == 2)
    finally:
        await engine.close()
        await brokers.close()
    assert [asked.version >= FETCH_TOPIC_IDS for asked in former.asked_for("fetch")] == [True, True]
    assert [asked.request.topics[0].topic_id for asked in former.asked_for("fetch")] == [TOPIC_ID, TOPIC_ID]
