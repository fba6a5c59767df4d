"""A saved producer that is ended in the middle: every record is reported, nothing is saved beyond one that is lost."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from oncelog.client.errors import KafkaError, KafkaException
from oncelog.client.producer.asynchronous import AsyncProducer
from oncelog.client.producer.producer import Producer
from oncelog.client.saving import SavedProducer
from oncelog.embedded import Server
from tests.client.inside import engine_of
from tests.client.producer.stored import Heard
from tests.raw import RawConnection
from tests.waiting import until

PATIENCE_S = 20
LINGERS = {"linger.ms": 100_000}


@pytest.fixture
def out(own_server: Server) -> str:
    with RawConnection(own_server.bootstrap_servers) as raw:
        raw.create_topic("ended", 1)
    return "ended"


@pytest.fixture
def start(own_server: Server, out: str) -> Iterator[Callable[..., Producer]]:
    """Starts producers of one topic that may send."""
    started: list[Producer] = []

    def make(saved: SavedProducer | None = None, **properties: Any) -> Producer:
        producer = Producer({"bootstrap.servers": own_server.bootstrap_servers} | properties, saved=saved)
        started.append(producer)
        producer.pin(out)
        producer.saved()
        return producer

    yield make
    for each in started:
        each.close(0)


def test_after_a_purge_nothing_can_be_saved(start: Callable[..., Producer], out: str) -> None:
    producer, told = start(**LINGERS), Heard()
    producer.produce(out, b"never sent", on_delivery=told)
    producer.purge()
    producer.poll(0)
    assert told.codes == [KafkaError._PURGE_QUEUE]
    with pytest.raises(KafkaException, match="saved no more"):
        producer.saved()
    with pytest.raises(KafkaException, match="saved no more"):
        producer.produce(out, b"after it")


def test_what_is_being_compared_at_the_end_is_reported(start: Callable[..., Producer], out: str) -> None:
    producer = start()
    for number in range(100):
        producer.produce(out, b"%d" % number)
    producer.flush(30)
    value = producer.saved()
    for number in range(100, 200):
        producer.produce(out, b"%d" % number)
    producer.flush(30)
    producer.close(0)

    resumed, told = start(value), Heard()
    replays = engine_of(resumed).saving.replays
    replays.match_one = lambda replay: None  # type: ignore[method-assign]  # it takes its time
    for number in range(100, 150):
        resumed.produce(out, b"%d" % number, on_delivery=told)
    resumed.close(0.1)
    assert len(told.errors) == 50
    assert len(resumed) == 0


def test_a_batch_in_doubt_at_the_end_is_reported_as_maybe_stored(start: Callable[..., Producer], out: str) -> None:
    producer, told = start(), Heard()
    engine = engine_of(producer)
    check = engine.saving.replays.check

    async def never(*arguments: Any, **more: Any) -> int:
        await engine.loop.create_future()
        return await check(*arguments, **more)

    engine.saving.replays.check = never  # type: ignore[method-assign]
    delivered = engine.saving.delivered

    def in_doubt(action: Any) -> bool:
        return delivered(action._replace(was_in_doubt=True))

    engine.saving.delivered = in_doubt  # type: ignore[method-assign]
    producer.produce(out, b"x", on_delivery=told)
    producer.close(1)
    assert told.codes == [KafkaError._PURGE_INFLIGHT]
    assert [error.maybe_stored() for error in told.errors if error is not None] == [True]
    assert len(producer) == 0


async def test_a_save_that_is_given_up_as_leases_change_holds_nothing_back(
    own_server: Server, out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AsyncProducer({"bootstrap.servers": own_server.bootstrap_servers}) as producer:
        await producer.pin(out)
        await producer.saved()
        engine = engine_of(producer)
        with monkeypatch.context() as patch:
            patch.setattr(engine.sender, "has_renewal", lambda place: True)
            patch.setattr(engine, "is_idle", lambda place: False)
            saving = asyncio.ensure_future(producer.saved())
            await asyncio.to_thread(until, lambda: engine.is_held, "what is under way to be let finish")
            saving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await saving
        async with asyncio.timeout(PATIENCE_S):
            await producer.produce_and_wait(out, b"goes out")
