"""How long a producer waits: as long as it is told, and not for ever when an exception wants to get out."""

import math
import socket
import threading
from collections.abc import Coroutine, Iterator
from contextlib import suppress
from typing import Any, NoReturn

import pytest

from oncelog.client.errors import KafkaError, KafkaException
from oncelog.client.net.loop_thread import LoopThread
from oncelog.client.producer.asynchronous import AsyncProducer
from oncelog.client.producer.encoding import Encoder
from oncelog.client.producer.producer import Producer
from oncelog.embedded import Server
from tests.client.inside import engine_of, thread_of
from tests.client.producer.conftest import MakeProducer, producers_threads
from tests.client.producer.stored import Heard, stored

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


class Signal(Exception):
    """Raised by a handler, as KeyboardInterrupt is."""


def interrupted(coroutine: Coroutine[Any, Any, Any], *_: object) -> None:
    coroutine.close()
    raise Signal


def test_a_signal_as_a_producer_ends_leaves_no_thread_behind(
    make_producer: MakeProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = producers_threads()
    producer = make_producer()
    monkeypatch.setattr(thread_of(producer), "run", interrupted)
    with pytest.raises(Signal):
        producer.close()
    assert producers_threads() <= before


def test_a_signal_as_a_producer_begins_leaves_no_thread_behind(
    make_producer: MakeProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = producers_threads()
    with monkeypatch.context() as patch:
        patch.setattr(LoopThread, "run", lambda _, coroutine, *more: interrupted(coroutine, *more))
        with pytest.raises(Signal):
            make_producer()
    assert producers_threads() <= before


def test_who_flushes_as_a_signal_ends_the_producer_waits_no_longer(
    unused_tcp_port: int, make_producer: MakeProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = make_producer(bootstrap_servers=f"127.0.0.1:{unused_tcp_port}")
    producer.produce("t", b"x")
    flush, begun, left = engine_of(producer).flush, threading.Event(), list[int]()

    def begins(by: int) -> None:
        flush(by)
        begun.set()

    monkeypatch.setattr(engine_of(producer), "flush", begins)
    monkeypatch.setattr(thread_of(producer), "run", interrupted)
    flushing = threading.Thread(target=lambda: left.append(producer.flush()), daemon=True)
    flushing.start()
    assert begun.wait(PATIENCE_S)
    with pytest.raises(Signal):
        producer.close(0)
    flushing.join(PATIENCE_S)
    assert left == [1]


@pytest.mark.parametrize("is_made", [False, True], ids=["before it is made", "when it is made"])
def test_a_signal_as_a_batch_is_made_loses_and_doubles_no_record(
    server: Server, topic: str, make_producer: MakeProducer, monkeypatch: pytest.MonkeyPatch, is_made: bool
) -> None:
    """A producing thread makes full batches itself, which is most of what it does."""
    producer, heard = make_producer(batch_num_messages=10, linger_ms=100_000), Heard()
    producer.produce(topic, b"0", on_delivery=heard)
    assert producer.flush(PATIENCE_S) == 0
    encode, signals = Encoder.encode, [Signal()]

    def signalled(*rows: Any, **how: Any) -> Any:
        made = encode(*rows, **how) if is_made else None
        if signals and threading.current_thread() is threading.main_thread():
            raise signals.pop()
        return made or encode(*rows, **how)

    monkeypatch.setattr(Encoder, "encode", signalled)
    for number in range(1, 25):
        with suppress(Signal):
            producer.produce(topic, b"%d" % number, on_delivery=heard)
    assert not signals
    assert producer.flush(PATIENCE_S) == 0
    assert heard.codes == [None] * 25
    assert [each.value for each in stored(server.bootstrap_servers, topic)] == [b"%d" % number for number in range(25)]


def test_a_signal_as_a_table_is_handed_over_keeps_no_room(
    server: Server, topic: str, make_producer: MakeProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    pa = pytest.importorskip("pyarrow")
    producer, heard = make_producer(linger_ms=100_000), Heard()
    producer.produce(topic, b"0", on_delivery=heard)
    assert producer.flush(PATIENCE_S) == 0
    encode, signals = Encoder.encode, [Signal()]

    def signalled(*rows: Any, **how: Any) -> Any:
        if signals:
            raise signals.pop()
        return encode(*rows, **how)

    producer.produce(topic, b"1", on_delivery=heard)  # goes before the table
    monkeypatch.setattr(Encoder, "encode", signalled)
    told: list[KafkaError | None] = []
    table = pa.table({"value": pa.array([b"a", b"b"], pa.binary())})
    with pytest.raises(Signal):
        producer.send(topic, table, on_delivery=lambda error, _: told.append(error))
    assert producer.flush(PATIENCE_S) == 0
    assert len(told) == 1 and told[0] and "not handed over: Signal()" in told[0].str()
    assert [each.value for each in stored(server.bootstrap_servers, topic)] == [b"0", b"1"]


@pytest.mark.parametrize("is_pinned", [False, True], ids=["alone", "of a saved producer"])
def test_records_of_which_no_batch_can_be_made_are_reported(
    topic: str, make_producer: MakeProducer, monkeypatch: pytest.MonkeyPatch, is_pinned: bool
) -> None:
    producer, heard, encode = make_producer(), Heard(), Encoder.encode
    if is_pinned:
        producer.pin(topic)
        producer.saved()

    def without_room(self: Encoder, name: str, partition: int, rows: list[Any], *more: Any, **how: Any) -> Any:
        if b"much" in rows:
            raise MemoryError
        return encode(self, name, partition, rows, *more, **how)

    monkeypatch.setattr(Encoder, "encode", without_room)
    producer.produce(topic, b"much", on_delivery=heard)
    assert producer.flush(PATIENCE_S) == 0
    assert heard.codes == [KafkaError._FAIL]
    assert "MemoryError" in heard.errors[0].str() and not heard.errors[0].maybe_stored()
    if is_pinned:
        with pytest.raises(KafkaException, match="can be saved no more"):
            producer.saved()
    else:
        producer.produce(topic, b"x", on_delivery=heard)
        assert producer.flush(PATIENCE_S) == 0
        assert heard.codes[1:] == [None]


def test_a_callback_that_raises_at_the_very_end_hides_none_behind_it(
    unused_tcp_port: int, make_producer: MakeProducer
) -> None:
    producer, heard = make_producer(bootstrap_servers=f"127.0.0.1:{unused_tcp_port}"), Heard()

    def fail(*_: object) -> NoReturn:
        raise ZeroDivisionError("from a callback")

    for callback in (fail, heard, fail, heard):
        producer.produce("t", b"x", on_delivery=callback)
    with pytest.raises(ZeroDivisionError):
        producer.close(0)
    assert heard.codes == [KafkaError._PURGE_QUEUE] * 2
    assert len(producer) == 0


def test_without_an_exception_the_end_waits_for_every_record(topic: str, make_producer: MakeProducer) -> None:
    heard = Heard()
    with make_producer(linger_ms=50) as producer:
        producer.produce(topic, b"x", on_delivery=heard)
    assert heard.codes == [None]
