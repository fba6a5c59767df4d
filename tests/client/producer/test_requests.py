"""What a Produce request's answer says besides what became of its batches."""

import asyncio
from typing import Any, cast

import pytest

from oncelog.client.errors import KafkaError
from oncelog.client.net.brokers import Brokers
from oncelog.client.net.connection import Connection
from oncelog.client.producer.requests import Requests
from oncelog.client.properties import producer_settings
from oncelog.records.build import build_batch
from oncelog.slots.batch import Batch
from oncelog.slots.messages import Produce
from tests.client.net.fake_broker import Asked, FakeBroker, frame_of

NOT_LEADER = 6


async def answered(broker: FakeBroker, brokers: Brokers) -> list[Any]:
    told: list[Any] = []
    is_told = asyncio.Event()

    def tell(*said: Any) -> None:
        told.append(said)
        is_told.set()

    settings = producer_settings({"bootstrap.servers": f"{broker.host}:{broker.port}"})
    requests = Requests(brokers, settings, tell, tell, tell)
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


class Unreachable:
    """Brokers whose connection fails in a way that is no KafkaException."""

    def __init__(self, failure: BaseException) -> None:
        self.failure = failure
        self.asked_count = 0

    def is_connected(self, node_id: int) -> bool:
        return False

    async def connection(self, node_id: int) -> Any:
        self.asked_count += 1
        raise self.failure


@pytest.mark.parametrize("failure", [OSError("too many files"), ValueError("odd"), asyncio.CancelledError()])
async def test_whatever_keeps_a_connection_from_opening_nothing_was_sent_and_the_node_is_tried_again(
    failure: BaseException,
) -> None:
    told: list[tuple[int, KafkaError, bool]] = []
    is_told = asyncio.Event()

    def lost(request_id: int, error: KafkaError, was_sent: bool) -> None:
        told.append((request_id, error, was_sent))
        is_told.set()

    brokers = Unreachable(failure)
    settings = producer_settings({"bootstrap.servers": "127.0.0.1:1"})
    requests = Requests(cast(Brokers, brokers), settings, lambda *said: None, lost, lambda *said: None)
    for request_id in (7, 8):
        is_told.clear()
        requests.send(Produce(0, request_id, []))
        async with asyncio.timeout(20):
            await is_told.wait()
    assert [(request_id, was_sent) for request_id, _, was_sent in told] == [(7, False), (8, False)]
    assert brokers.asked_count == 2
    await requests.close()


class Remembering:
    """A connection that keeps how long each answer is waited for."""

    is_closed = False

    def __init__(self) -> None:
        self.timeouts_ms: list[int | None] = []

    def version(self, key: int, low: int, high: int) -> int:
        return high

    def next_correlation_id(self) -> int:
        return 1

    def send(self, buffers: Any, correlation_id: int, on_answer: Any, timeout_ms: int | None = None) -> None:
        self.timeouts_ms.append(timeout_ms)


@pytest.mark.parametrize(
    ("request_ms", "socket_ms", "waited_ms"),
    [(30_000, 60_000, 60_000), (90_000, 60_000, 91_000), (60_000, 60_000, 60_000), (None, 300, 300)],
)
async def test_an_answer_is_waited_for_as_long_as_the_broker_may_take(
    request_ms: int | None, socket_ms: int, waited_ms: int
) -> None:
    given = {"bootstrap.servers": "127.0.0.1:1", "socket.timeout.ms": socket_ms, "delivery.timeout.ms": 0}
    settings = producer_settings(given | ({} if request_ms is None else {"request.timeout.ms": request_ms}))
    requests = Requests(cast(Brokers, None), settings, *[lambda *said: None] * 3)
    connection = Remembering()
    requests.write(cast(Connection, connection), Produce(0, 1, []))
    assert connection.timeouts_ms == [waited_ms]
    assert settings.request_timeout_ms <= waited_ms


async def test_what_is_known_too_long_or_from_before_the_connection_is_not_sent() -> None:
    async with FakeBroker() as broker:
        brokers = Brokers(broker.settings())
        await brokers.refresh(["t"])
        unchecked: list[int] = []
        is_told = asyncio.Event()

        def told(request_id: int) -> None:
            unchecked.append(request_id)
            is_told.set()

        settings = producer_settings({"bootstrap.servers": f"{broker.host}:{broker.port}"})
        requests = Requests(brokers, settings, lambda *said: None, lambda *said: None, told)
        batch = Batch("t", 0, build_batch([(None, b"a", (), 0)]), 1, 0)
        (await brokers.connection(broker.node_id)).close()
        requests.send(Produce(broker.node_id, 7, [batch], is_checked=True))
        async with asyncio.timeout(20):
            await is_told.wait()
        requests.send(Produce(broker.node_id, 8, [batch], until_ms=0))
        assert unchecked == [7, 8]
        assert not broker.asked_for("produce")
        await requests.close()
        await brokers.close()
