"""One connection: answers find their requests, and every end is told to everyone who waits."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from oncelog.client.errors import KafkaError, KafkaException
from oncelog.client.net.connection import Connection, Endpoint
from oncelog.client.net.opening import Opener
from oncelog.wire.requests import RequestSchema
from tests.client.net.fake_broker import CLOSE, SILENT, Asked, FakeBroker, frame_of
from tests.logged import messages


@pytest.fixture
async def connection(broker: FakeBroker) -> AsyncIterator[Connection]:
    opened = await Opener(broker.settings()).open(Endpoint(broker.host, broker.port, 0))
    yield opened
    opened.close()
    await opened.gone


def metadata(spoken: RequestSchema, *names: str) -> Any:
    topics = tuple(spoken.new("MetadataRequestTopic", name=name, topic_id=None) for name in names)
    return spoken.new(
        "MetadataRequest",
        topics=topics,
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
        include_cluster_authorized_operations=False,
    )


async def ask(connection: Connection, *names: str, timeout_ms: int | None = None) -> list[str]:
    answer = await connection.request("metadata", lambda spoken: metadata(spoken, *names), timeout_ms=timeout_ms)
    return [topic.name for topic in answer.topics]


async def code_of(coroutine: Any) -> int:
    with pytest.raises(KafkaException) as caught:
        await coroutine
    return caught.value.error.code()


async def test_requests_in_flight_get_their_own_answers(connection: Connection, broker: FakeBroker) -> None:
    names = [f"t{number}" for number in range(200)]
    assert await asyncio.gather(*(ask(connection, name) for name in names)) == [[name] for name in names]


async def test_requests_go_out_without_waiting_for_answers(connection: Connection, broker: FakeBroker) -> None:
    held: list[Asked] = []

    def collect(asked: Asked) -> Any:
        held.append(asked)
        if len(held) < 3:
            return SILENT
        return b"".join(frame_of(each, broker.metadata_of([each.request.topics[0].name])) for each in held)

    broker.answers["metadata"] = collect
    assert await asyncio.gather(*(ask(connection, name) for name in "abc")) == [["a"], ["b"], ["c"]]


async def test_an_answer_to_another_request_closes_the_connection_and_is_given_to_nobody(
    connection: Connection, broker: FakeBroker
) -> None:
    broker.answers["metadata"] = lambda asked: frame_of(
        asked._replace(correlation_id=asked.correlation_id + 1), broker.metadata_of(["a"])
    )
    codes = await asyncio.gather(*(code_of(ask(connection, name)) for name in "ab"))
    assert codes == [KafkaError._BAD_MSG] * 2
    assert connection.is_closed


async def test_an_answer_that_nobody_asked_for_closes_the_connection(
    connection: Connection, broker: FakeBroker
) -> None:
    broker.answers["metadata"] = lambda asked: frame_of(asked, broker.metadata_of(["a"])) * 2
    await ask(connection, "a")
    await connection.gone
    assert connection.lost_by == KafkaError._BAD_MSG


async def test_an_answer_that_cannot_be_read_closes_the_connection(connection: Connection, broker: FakeBroker) -> None:
    broker.answers["metadata"] = lambda asked: b"\0\0\0\7" + asked.correlation_id.to_bytes(4, "big") + b"\0\0\0"
    assert await code_of(ask(connection, "a")) == KafkaError._BAD_MSG
    assert connection.is_closed


async def test_a_late_answer_ends_the_connection_for_all_that_wait(connection: Connection, broker: FakeBroker) -> None:
    broker.answers["metadata"] = lambda asked: SILENT
    patience_ms = {"a": 30, "b": 60_000}
    waiting = (code_of(ask(connection, name, timeout_ms=ms)) for name, ms in patience_ms.items())
    codes = await asyncio.gather(*waiting)
    assert codes == [KafkaError._TIMED_OUT] * 2
    assert connection.is_closed


async def test_no_request_counts_as_late_before_those_sent_before_it_do(
    connection: Connection, broker: FakeBroker
) -> None:
    """Answers come in order: how soon a request could be answered is up to those in front of it."""
    second_may_go = asyncio.Event()

    async def answer(asked: Asked) -> Any:
        (topic,) = asked.request.topics
        if topic.name == "second":
            await second_may_go.wait()
        return broker.metadata_of([topic.name])

    broker.answers["metadata"] = answer
    first = asyncio.create_task(ask(connection, "first", timeout_ms=60_000))
    second = asyncio.create_task(ask(connection, "second", timeout_ms=1))
    await first
    third = asyncio.create_task(ask(connection, "third", timeout_ms=1))
    asyncio.get_running_loop().call_later(0.05, second_may_go.set)
    assert [await second, await third] == [["second"], ["third"]]


async def test_a_broken_connection_is_told_to_all_that_wait(connection: Connection, broker: FakeBroker) -> None:
    broker.answers["metadata"] = lambda asked: CLOSE
    codes = await asyncio.gather(*(code_of(ask(connection, name)) for name in "abc"))
    assert codes == [KafkaError._TRANSPORT] * 3


async def test_what_is_asked_of_a_closed_connection_fails_as_it_did(connection: Connection) -> None:
    connection.close(KafkaError(KafkaError._TIMED_OUT, "x"))
    assert await code_of(ask(connection, "a")) == KafkaError._TIMED_OUT


async def test_who_gives_up_waiting_does_not_get_another_ones_answer(
    connection: Connection, broker: FakeBroker
) -> None:
    may_go = asyncio.Event()

    async def answer(asked: Asked) -> Any:
        await may_go.wait()
        return broker.metadata_of([each.name for each in asked.request.topics])

    broker.answers["metadata"] = answer
    first = asyncio.create_task(ask(connection, "first"))
    await broker.until(lambda: bool(broker.asked_for("metadata")))
    first.cancel()
    second = asyncio.create_task(ask(connection, "second"))
    may_go.set()
    assert await second == ["second"]


async def test_a_receiver_that_fails_does_not_keep_the_end_from_others(
    connection: Connection, broker: FakeBroker
) -> None:
    accidents: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: accidents.append(context["exception"]))
    told: list[KafkaError | None] = []

    def failing(frame: memoryview | None, error: KafkaError | None) -> None:
        raise ValueError("mine")

    connection.send((b"\0\0\0\0",), 1, failing)
    connection.send((b"\0\0\0\0",), 2, lambda frame, error: told.append(error))
    connection.close()
    assert [type(each) for each in accidents] == [ValueError]
    assert told == [KafkaError._DESTROY]


async def test_nothing_is_sent_while_held_and_all_of_it_in_order_afterwards(
    connection: Connection, broker: FakeBroker
) -> None:
    connection.hold()
    waiting = [asyncio.create_task(ask(connection, name)) for name in "abc"]
    await asyncio.sleep(0)
    assert connection.in_flight == 0
    connection.release()
    assert await asyncio.gather(*waiting) == [["a"], ["b"], ["c"]]


async def test_what_is_held_when_the_connection_ends_is_told(connection: Connection) -> None:
    connection.hold()
    waiting = asyncio.create_task(code_of(ask(connection, "a")))
    await asyncio.sleep(0)
    connection.close()
    assert await waiting == KafkaError._DESTROY


async def test_the_newest_version_that_both_speak_is_chosen(connection: Connection, broker: FakeBroker) -> None:
    connection.versions = {3: (4, 9)}
    assert connection.version(3, 0, 13) == 9
    assert connection.version(3, 0, 5) == 5
    with pytest.raises(KafkaException, match="a newer broker is needed"):
        connection.version(3, 10, 13)
    with pytest.raises(KafkaException, match="a newer client is needed"):
        connection.version(3, 0, 3)
    with pytest.raises(KafkaException, match="no API 61"):
        connection.version(61, 0, 0)


async def test_a_server_that_grants_leases_is_oncelog(connection: Connection) -> None:
    assert not connection.is_oncelog
    connection.versions = {**connection.versions, 0x4F4C: (0, 0)}
    assert connection.is_oncelog


async def test_what_is_sent_on_a_connection_that_broke_just_now_is_lost_without_a_warning(
    connection: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    """The network's end is seen by a write first, and told later; asyncio warns of every write in between."""
    with socket.socket(fileno=os.dup(connection.transport.get_extra_info("socket").fileno())) as same:
        same.shutdown(socket.SHUT_WR)
    lost: list[KafkaError | None] = []
    for _ in range(20):
        correlation_id = connection.next_correlation_id()
        connection.send((b"\0" * 20,), correlation_id, lambda frame, error: lost.append(error))
    await connection.gone
    assert [error.code() for error in lost if error is not None] == [KafkaError._TRANSPORT] * 20
    assert messages(caplog, "oncelog.client", "asyncio") == []
