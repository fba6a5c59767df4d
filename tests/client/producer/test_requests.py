"""What a Produce request's answer says besides what became of its batches."""

import asyncio
from typing import Any

from oncelog.client.errors import KafkaError
from oncelog.client.net.brokers import Brokers
from oncelog.client.producer.requests import Requests
from oncelog.client.properties import producer_settings
from oncelog.client.sending import Batch, Produce
from oncelog.records.build import build_batch
from tests.client.net.fake_broker import Asked, FakeBroker, frame_of

NOT_LEADER = 6


async def answered(broker: FakeBroker, brokers: Brokers) -> list[Any]:
    told: list[Any] = []
    is_told = asyncio.Event()

    def tell(*said: Any) -> None:
        told.append(said)
        is_told.set()

    settings = producer_settings({"bootstrap.servers": f"{broker.host}:{broker.port}"})
    requests = Requests(brokers, settings, tell, tell)
    await brokers.refresh(["t"])
    requests.send(Produce(broker.node_id, 7, [Batch("t", 0, build_batch([(None, b"a", (), 0)]), 1, 0)]))
    async with asyncio.timeout(20):
        await is_told.wait()
    await requests.close()
    return told


async def test_a_new_leader_that_an_answer_names_is_known_at_once() -> None:
    async with FakeBroker() as broker:
        partition = {"index": 0, "error_code": NOT_LEADER, "current_leader": {"leader_id": 5, "leader_epoch": 9}}
        broker.answers["produce"] = lambda asked: {
            "responses": [{"name": "t", "partition_responses": [partition]}],
            "node_endpoints": [{"node_id": 5, "host": "five", "port": 9095}],
        }
        brokers = Brokers(broker.settings())
        ((request_id, answers, throttle_ms),) = await answered(broker, brokers)
        assert (request_id, throttle_ms) == (7, 0)
        assert [each.error_code for each in answers] == [NOT_LEADER]
        assert brokers.metadata.leader("t", 0) == (5, 9)
        assert (brokers.metadata.brokers[5].host, brokers.metadata.brokers[5].port) == ("five", 9095)
        await brokers.close()


def garbled(asked: Asked) -> bytes:
    fields = {"responses": [{"name": "tt", "partition_responses": [{"index": 0}]}]}
    return frame_of(asked, fields).replace(b"tt", b"\xff\xfe")


async def test_an_answer_about_a_topic_that_is_no_text_is_no_answer() -> None:
    async with FakeBroker() as broker:
        broker.answers["produce"] = garbled
        brokers = Brokers(broker.settings())
        ((_, error, was_sent),) = await answered(broker, brokers)
        assert (error, was_sent) == (KafkaError._BAD_MSG, True)
        await brokers.close()
