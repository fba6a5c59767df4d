"""What a user hears of an address that cannot be reached: soon, once, and why; whatever client it was given to."""

import asyncio
import logging
import socket
from collections.abc import Callable, Iterator

import pytest

from oncelog.client import AdminClient, Consumer, Producer
from oncelog.client.errors import KafkaError, KafkaException
from oncelog.client.net.brokers import Brokers
from oncelog.client.net.connection import Endpoint
from oncelog.client.net.opening import Opener
from oncelog.client.net.pool import Pool
from oncelog.client.net.reach import OutOfReach
from oncelog.client.properties import producer_settings
from tests.client.net.fake_broker import CLOSE, FakeBroker
from tests.logged import logged
from tests.waiting import until

SETTINGS = producer_settings({"bootstrap.servers": "h:1", "reconnect.backoff.max.ms": 4000})
HERE, ELSEWHERE = Endpoint("h", 1), Endpoint("h", 2)
REFUSED = KafkaError(KafkaError._TRANSPORT, "h:1: connect failed: Connection refused", retriable=True)
UNRESOLVED = KafkaError(KafkaError._RESOLVE, "h:1: the host name cannot be resolved", retriable=True)
WRONG_PASSWORD = KafkaError(KafkaError._AUTHENTICATION, "h:1: wrong password")


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], list[str]]]:
    with caplog.at_level(logging.WARNING, "oncelog.client"):

        def taken() -> list[str]:
            found = [each.getMessage() for each in logged(caplog, "oncelog.client") if each.levelno == logging.WARNING]
            caplog.clear()
            return found

        yield taken


@pytest.fixture
def nowhere() -> Iterator[str]:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{nobody.getsockname()[1]}"


def test_a_line_says_address_reason_and_what_is_done_and_comes_once_for_each_change(
    lines: Callable[[], list[str]],
) -> None:
    reach = OutOfReach(SETTINGS)
    for _ in range(3):
        reach.failed(HERE, REFUSED)
    (line,) = lines()
    assert line.startswith(REFUSED.str())
    assert "tried again until it answers, at most 4 s apart (`reconnect.backoff.max.ms`)" in line
    reach.failed(ELSEWHERE, REFUSED)
    reach.failed(HERE, UNRESOLVED)
    assert len(lines()) == 2, "another address, and another reason"
    reach.reached(HERE)
    reach.failed(HERE, UNRESOLVED)
    assert len(lines()) == 1, "it was reached in between"
    reach.forget_others({(HERE.host, HERE.port)})
    reach.failed(HERE, UNRESOLVED)
    reach.failed(ELSEWHERE, REFUSED)
    assert len(lines()) == 1, "what was forgotten is news again"


def test_a_host_that_drops_packets_is_told_before_the_attempt_is_given_up(lines: Callable[[], list[str]]) -> None:
    reach = OutOfReach(SETTINGS)
    reach.is_slow(HERE)
    (line,) = lines()
    assert (
        line.startswith("h:1") and "nothing answers" in line and "30 s (`socket.connection.setup.timeout.ms`)" in line
    )
    reach.failed(HERE, KafkaError(KafkaError._TIMED_OUT, "h:1: no connection within 30 s", retriable=True))
    assert lines() == []


def test_what_does_not_pass_by_itself_is_left_to_the_question(lines: Callable[[], list[str]]) -> None:
    OutOfReach(SETTINGS).failed(HERE, WRONG_PASSWORD)
    assert lines() == []


async def test_a_slow_attempt_is_told_while_it_goes_on(
    broker: FakeBroker, lines: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oncelog.client.net.pool.SLOW_S", 0.0)
    settings = broker.settings()
    pool = Pool(settings, Opener(settings).open, lambda: 0.0, lambda error: None)
    await pool.connection(Endpoint(broker.host, broker.port))
    await pool.close()
    (line,) = lines()
    assert f"{broker.host}:{broker.port}" in line


async def test_a_listener_that_ends_the_first_request_is_told_once_though_it_answers_until_there(
    broker: FakeBroker, lines: Callable[[], list[str]]
) -> None:
    """One that wants SASL."""
    metadata, broker.answers["metadata"] = broker.answers["metadata"], lambda asked: CLOSE
    told: list[KafkaError] = []
    brokers = Brokers(broker.settings(reconnect_backoff_ms=1, reconnect_backoff_max_ms=1), on_error=told.append)
    with pytest.raises(KafkaException, match="want SASL"):
        await brokers.refresh(())
    (line,) = lines()
    assert f"{broker.port}" in line and "does this listener want SASL? (`security.protocol`)" in line
    assert [each.code() for each in told] == [KafkaError._TRANSPORT] * 2

    broker.answers["metadata"] = metadata
    await brokers.refresh(())
    broker.answers["metadata"] = lambda asked: CLOSE
    broker.cut()
    with pytest.raises(KafkaException):
        await brokers.refresh(())
    await brokers.close()
    assert lines() == [], "it was of use, so it is not this"


async def test_a_record_that_is_late_names_the_listener_that_wants_sasl(broker: FakeBroker) -> None:
    broker.answers["metadata"] = lambda asked: CLOSE
    failed: list[KafkaError | None] = []
    quick = dict.fromkeys(("reconnect.backoff.ms", "reconnect.backoff.max.ms", "retry.backoff.ms"), 1)
    servers = f"{broker.host}:{broker.port}"
    with Producer({"bootstrap.servers": servers, "message.timeout.ms": 2000, **quick}) as producer:
        producer.produce("t", b"v", on_delivery=lambda error, message: failed.append(error))
        assert await asyncio.to_thread(producer.flush, 30) == 0
    (error,) = failed
    assert error is not None and error.code() == KafkaError._MSG_TIMED_OUT and "want SASL" in error.str()


def test_a_producer_says_it_once_and_its_delivery_error_names_the_cause(
    nowhere: str, lines: Callable[[], list[str]]
) -> None:
    failed: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": nowhere, "message.timeout.ms": 500})

    def produce() -> None:
        producer.produce("t", b"v", on_delivery=lambda error, message: failed.append(error))

    produce()
    (line,) = until(lines, "the first attempt to have failed")
    assert nowhere in line and "Connection refused" in line
    produce()  # the one before may have been given up before there was any attempt
    assert producer.flush(30) == 0
    first, error = failed
    assert first is not None and error is not None and first.code() == error.code() == KafkaError._MSG_TIMED_OUT
    assert nowhere in error.str() and "Connection refused" in error.str()
    assert lines() == []


def test_a_consumer_and_an_admin_say_it_too(nowhere: str, lines: Callable[[], list[str]]) -> None:
    found: list[str] = []
    with Consumer({"bootstrap.servers": nowhere, "group.id": "g"}) as consumer:
        consumer.subscribe(["t"])
        while not found:
            consumer.poll(0.05)
            found = lines()
        assert nowhere in found[0]
    with AdminClient({"bootstrap.servers": nowhere}) as admin:
        before_any = admin.list_consumer_groups(request_timeout=60)  # until it is closed
        (line,) = until(lines, "the first attempt to have failed")
        assert nowhere in line
        with pytest.raises(KafkaException, match="Connection refused"):
            admin.list_topics(timeout=0.5)
    assert before_any.exception(60) is not None
    assert lines() == []
