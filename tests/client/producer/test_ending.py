"""How long a producer waits: as long as it is told, and not for ever when an exception wants to get out."""

import math
import socket
import threading
from collections.abc import Iterator

import pytest

from oncelog.client.errors import KafkaError
from oncelog.client.producer.asynchronous import AsyncProducer
from oncelog.client.producer.producer import Producer
from tests.client.producer.conftest import MakeProducer
from tests.client.producer.stored import Heard

PATIENCE_S = 20


@pytest.fixture
def silent() -> Iterator[str]:
    """Where connections are taken and nothing is ever answered."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.parametrize("timeout", [math.inf, 1e300, 10**400])
def test_infinity_waits_for_ever(topic: str, make_producer: MakeProducer, timeout: float) -> None:
    producer, heard = make_producer(), Heard()
    producer.produce(topic, b"x", on_delivery=heard)
    assert producer.poll(timeout) == 1
    producer.produce(topic, b"x", on_delivery=heard)
    assert producer.flush(timeout) == 0
    assert heard.codes == [None, None]


def test_nan_and_what_is_no_number_are_refused(make_producer: MakeProducer) -> None:
    producer = make_producer()
    for wait in (producer.poll, producer.flush):
        with pytest.raises(ValueError, match="not nan"):
            wait(math.nan)
        with pytest.raises(TypeError, match="timeout must be seconds"):
            wait("1")  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [KeyboardInterrupt, ValueError])
def test_an_exception_leaves_the_with_though_nobody_answers(silent: str, kind: type[BaseException]) -> None:
    heard, raised, left = Heard(), [], threading.Event()

    def run() -> None:
        try:
            with Producer({"bootstrap.servers": silent}) as producer:
                producer.produce("t", b"x", on_delivery=heard)
                raise kind
        except kind as error:
            raised.append(error)
            left.set()

    threading.Thread(target=run, daemon=True).start()
    assert left.wait(PATIENCE_S)
    assert len(raised) == 1
    assert heard.codes == [KafkaError._PURGE_QUEUE]


async def test_an_exception_leaves_the_async_with_too(silent: str) -> None:
    with pytest.raises(ZeroDivisionError):
        async with AsyncProducer({"bootstrap.servers": silent, "delivery.timeout.ms": PATIENCE_S * 1000}) as producer:
            future = await producer.produce("t", b"x")
            raise ZeroDivisionError
    error = future.exception()
    assert error is not None and error.args[0].code() == KafkaError._PURGE_QUEUE


def test_without_an_exception_the_end_waits_for_every_record(topic: str, make_producer: MakeProducer) -> None:
    heard = Heard()
    with make_producer(linger_ms=50) as producer:
        producer.produce(topic, b"x", on_delivery=heard)
    assert heard.codes == [None]
