"""Opening a connection: versions agreed upon, and failures that say what to do."""

import asyncio
from typing import Any

import pytest

from oncelog.client.errors import KafkaError, KafkaException
from oncelog.client.net.connection import Connection, Endpoint
from oncelog.client.net.opening import Opener
from tests.client.net.fake_broker import CLOSE, SILENT, Asked, FakeBroker, frame_of

UNSUPPORTED_VERSION = 35


async def opened(broker: FakeBroker, **more: Any) -> Connection:
    return await Opener(broker.settings(**more)).open(Endpoint(broker.host, broker.port, 0))


async def refusal(broker: FakeBroker, **more: Any) -> KafkaError:
    with pytest.raises(KafkaException) as caught:
        await opened(broker, **more)
    return caught.value.error


@pytest.mark.parametrize("newest", [0, 1, 2, 3])
async def test_a_broker_that_finds_our_question_too_new_is_asked_as_it_understands(
    broker: FakeBroker, newest: int
) -> None:
    def answer(asked: Asked) -> Any:
        spoken = {"api_keys": [{"api_key": 18, "min_version": 0, "max_version": newest}]}
        if asked.version > newest:
            return frame_of(asked, {**spoken, "error_code": UNSUPPORTED_VERSION}, version=0)
        return spoken

    broker.answers["api_versions"] = answer
    connection = await opened(broker)
    assert [each.version for each in broker.asked] == [4, newest]
    assert connection.versions == {18: (0, newest)}
    connection.close()


async def test_a_broker_too_old_to_say_what_it_understands_is_asked_in_version_0(broker: FakeBroker) -> None:
    """Kafka before 2.4 refuses without the list."""
    broker.answers["api_versions"] = lambda asked: (
        frame_of(asked, {"error_code": UNSUPPORTED_VERSION}, version=0) if asked.version else {}
    )
    connection = await opened(broker)
    assert [each.version for each in broker.asked] == [4, 0]
    connection.close()


async def test_the_broker_learns_the_clients_name_and_version(broker: FakeBroker) -> None:
    (await opened(broker)).close()
    asked = broker.asked[0].request
    assert asked.client_software_name == "oncelog"
    assert asked.client_software_version[0].isdigit()


async def test_a_port_where_nobody_listens(broker: FakeBroker) -> None:
    await broker.stop()
    error = await refusal(broker)
    assert error == KafkaError._TRANSPORT
    assert error.retriable()
    assert "connect failed: Connection refused" in error.str()


@pytest.mark.parametrize(
    ("host", "port"), [("a..b", 9092), ("x" * 64 + ".example", 9092), ("a\0b", 9092), ("127.0.0.1", 1 << 31)]
)
async def test_a_name_that_cannot_be_resolved(broker: FakeBroker, host: str, port: int) -> None:
    with pytest.raises(KafkaException) as caught:
        await Opener(broker.settings()).open(Endpoint(host, port))
    assert caught.value.error == KafkaError._RESOLVE


async def test_a_server_that_says_nothing_is_given_up_in_time(broker: FakeBroker) -> None:
    broker.answers["api_versions"] = lambda asked: SILENT
    error = await refusal(broker, socket_connection_setup_timeout_ms=1000)
    assert error == KafkaError._TIMED_OUT
    await broker.until(lambda: not broker.writers)


async def test_a_server_that_closes_at_once_may_want_tls(broker: FakeBroker) -> None:
    broker.answers["api_versions"] = lambda asked: CLOSE
    assert "does this listener want TLS" in (await refusal(broker)).str()


async def test_a_server_that_closes_at_the_first_request_may_want_sasl(broker: FakeBroker) -> None:
    connection = await opened(broker)
    connection.answered_count = 0
    connection.send((b"\0\0\0\0",), 9, lambda frame, error: None)
    broker.cut()
    await connection.gone
    assert connection.lost_by is not None
    assert "want SASL" in connection.lost_by.str()


async def test_an_attempt_that_is_cancelled_leaves_no_connection(broker: FakeBroker) -> None:
    broker.answers["api_versions"] = lambda asked: SILENT
    attempt = asyncio.create_task(opened(broker))
    await broker.until(lambda: bool(broker.asked))
    attempt.cancel()
    await broker.until(lambda: not broker.writers)
    assert attempt.cancelled() or await asyncio.gather(attempt, return_exceptions=True)


async def test_socket_options_are_those_of_the_properties(broker: FakeBroker) -> None:
    import socket

    connection = await opened(broker, socket_keepalive_enable=True, socket_nagle_disable=False)
    raw = connection.transport.get_extra_info("socket")
    assert raw.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    assert not raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    connection.close()
    connection = await opened(broker)
    assert connection.transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    connection.close()
