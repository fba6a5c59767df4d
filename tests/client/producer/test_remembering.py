"""For how long a broker remembers its producers, and that its pauses are kept."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from oncelog.client.errors import KafkaError, KafkaException
from oncelog.client.net.brokers import Brokers
from oncelog.client.producer.accumulator import Budget
from oncelog.client.producer.asynchronous import AsyncProducer
from oncelog.client.producer.engine import Engine
from oncelog.client.properties import admin_settings, producer_settings
from oncelog.client.saving.memory import forgotten_after_ms
from oncelog.clock import DAY_MS
from oncelog.embedded import Server
from oncelog.records.build import build_batch
from oncelog.slots.batch import Batch
from oncelog.slots.messages import BatchAnswer
from oncelog.wire.own import LEASE_PID_KEY
from tests.client.net.fake_broker import FakeBroker
from tests.peers.apache import ApacheKafka

DESCRIBE_CONFIGS = 32
PRODUCER, TRANSACTIONAL = "producer.id.expiration.ms", "transactional.id.expiration.ms"


@pytest.fixture
async def broker() -> AsyncIterator[FakeBroker]:
    async with FakeBroker() as broker:
        broker.versions[DESCRIBE_CONFIGS] = (0, 4)
        yield broker


def says(broker: FakeBroker, error_code: int = 0, **values: str) -> None:
    configs = [{"name": name.replace("_", "."), "value": value} for name, value in values.items()]
    broker.answers["describe_configs"] = lambda asked: {"results": [{"error_code": error_code, "configs": configs}]}


async def asked(broker: FakeBroker, *, is_shared: bool = False) -> int | None:
    brokers = Brokers(broker.settings())
    try:
        return await forgotten_after_ms(brokers, is_shared=is_shared)
    finally:
        await brokers.close()


async def test_a_cluster_that_names_no_brokers_says_nothing(broker: FakeBroker) -> None:
    says(broker, producer_id_expiration_ms="3000")
    broker.answers["metadata"] = lambda asked: broker.metadata_of([], brokers=[])
    assert await asked(broker) is None


@pytest.mark.parametrize("value", ["²", "9" * 5_000])
async def test_what_is_no_number_of_milliseconds_says_nothing(broker: FakeBroker, value: str) -> None:
    says(broker, producer_id_expiration_ms=value)
    assert await asked(broker) is None


async def test_the_broker_is_asked_about_itself(broker: FakeBroker) -> None:
    says(broker, producer_id_expiration_ms="3000", transactional_id_expiration_ms="9000")
    assert await asked(broker) == 3000
    (resource,) = broker.asked_for("describe_configs")[0].request.resources
    assert (resource.resource_type, resource.resource_name) == (4, "0")


async def test_before_kafka_3_4_it_was_the_time_of_transactional_ids(broker: FakeBroker) -> None:
    says(broker, transactional_id_expiration_ms="9000")
    assert await asked(broker) == 9000


async def test_who_may_not_know_it_is_told_nothing(broker: FakeBroker) -> None:
    says(broker, error_code=31)
    assert await asked(broker) is None


async def test_where_there_are_leases_nobody_asks(broker: FakeBroker) -> None:
    broker.versions[LEASE_PID_KEY] = (0, 0)
    assert await asked(broker) is None
    assert broker.asked_for("describe_configs") == []


async def test_a_server_with_leases_is_asked_where_slots_are_shared(broker: FakeBroker) -> None:
    broker.versions[LEASE_PID_KEY] = (0, 0)
    says(broker, producer_id_expiration_ms="3000")
    assert await asked(broker, is_shared=True) == 3000


async def test_oncelog_says_it_too(server: Server) -> None:
    brokers = Brokers(admin_settings({"bootstrap.servers": server.bootstrap_servers}))
    try:
        assert await forgotten_after_ms(brokers, is_shared=True) == DAY_MS
    finally:
        await brokers.close()


async def test_a_real_kafka_says_it(kafka: ApacheKafka) -> None:
    brokers = Brokers(admin_settings({"bootstrap.servers": kafka.bootstrap_servers}))
    try:
        assert await forgotten_after_ms(brokers) == DAY_MS
    finally:
        await brokers.close()


@pytest.fixture
async def engine(broker: FakeBroker) -> AsyncIterator[Engine]:
    settings = producer_settings({"bootstrap.servers": f"{broker.host}:{broker.port}"})
    engine = Engine(settings, Budget(0, 1 << 20), lambda report: None, lambda error: None)
    await engine.start()
    yield engine
    await engine.close()


async def test_an_answers_pause_is_kept(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    monkeypatch.setattr(engine.sender, "answered", lambda *args, **named: told.append((args[0], named)))
    engine.answered(7, [BatchAnswer("t", 0, 0)], 30)
    assert told == [(7, {"throttle_ms": 30})]


async def test_a_producer_learns_it_with_its_first_request(engine: Engine, broker: FakeBroker) -> None:
    says(broker, producer_id_expiration_ms="3000")
    broker.answers["init_producer_id"] = lambda asked: {"producer_id": 1 << 33}
    broker.answers["produce"] = lambda asked: {"responses": [{"name": "t", "partition_responses": [{"index": 0}]}]}
    before_ms = engine.sender.context.remembered_ms
    await engine.know("t")
    engine.sender.add(Batch("t", 0, build_batch([(None, b"a", (), 0)]), 1, 10**15), 0)
    engine.wake()
    await broker.until(lambda: bool(broker.asked_for("describe_configs")))
    await asyncio.gather(*engine.tasks.running)
    assert engine.sender.context.remembered_ms == 1500 < before_ms


@pytest.mark.parametrize("code", [KafkaError.CLUSTER_AUTHORIZATION_FAILED, KafkaError.UNSUPPORTED_VERSION])
async def test_who_may_have_no_producer_id_is_told_at_once(broker: FakeBroker, code: int) -> None:
    broker.answers["init_producer_id"] = lambda asked: {"producer_id": -1, "producer_epoch": -1, "error_code": code}
    async with AsyncProducer({"bootstrap.servers": f"{broker.host}:{broker.port}"}) as producer:
        report = await producer.produce("t", b"x")
        async with asyncio.timeout(20):
            with pytest.raises(KafkaException) as refused:
                await report
    assert refused.value.error.code() == code
    assert not refused.value.error.maybe_stored()
