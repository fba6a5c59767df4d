"""What cannot be meant is refused with words that say why; damage is told with its place and never passed over."""

import asyncio
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from oncelog.client.consumer import decoding, engine
from oncelog.client.consumer.consumer import Consumer
from oncelog.client.consumer.operations import Operations
from oncelog.client.errors import KafkaError, KafkaException
from oncelog.client.groups import commits
from oncelog.client.groups.commits import ToCommit
from oncelog.client.net.brokers import Brokers
from oncelog.client.producer.producer import Producer
from oncelog.client.properties import consumer_settings
from oncelog.client.types import OFFSET_STORED, TopicPartition
from oncelog.embedded import Server
from tests.client.consumer.conftest import MakeConsumer
from tests.client.consumer.reading import PATIENCE_S, beginning, take, write
from tests.client.inside import driver_of
from tests.client.net.fake_broker import CLOSE, SILENT, Asked, FakeBroker
from tests.logged import messages
from tests.raw import RawConnection
from tests.waiting import until

Ask = Callable[[Consumer], Any]


@pytest.fixture
def nowhere() -> Iterator[str]:
    """An address that refuses connections, and that nobody else is given meanwhile."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{nobody.getsockname()[1]}"


@pytest.mark.parametrize(
    "ask",
    [
        lambda consumer: consumer.poll("soon"),
        lambda consumer: consumer.poll(True),
        lambda consumer: consumer.consume("ten"),
        lambda consumer: consumer.consume_arrow(1.5),
        lambda consumer: consumer.assign(TopicPartition("a", 0)),
        lambda consumer: consumer.assign("a"),
        lambda consumer: consumer.assign([("a", 0)]),
        lambda consumer: consumer.assign([TopicPartition(5, 0)]),  # type: ignore[arg-type]
        lambda consumer: consumer.seek("a"),
        lambda consumer: consumer.commit(message="a"),
        lambda consumer: consumer.commit(offsets=[5]),
        lambda consumer: consumer.committed(None),
        lambda consumer: consumer.list_topics(5),
        lambda consumer: consumer.subscribe(["a"], on_assign="call me"),
        lambda consumer: consumer.offsets_for_times([TopicPartition("a", 0, "noon")]),  # type: ignore[arg-type]
    ],
)
def test_wrong_types_are_type_errors(make_consumer: MakeConsumer, ask: Ask) -> None:
    with pytest.raises(TypeError):
        ask(make_consumer(group_id="bad-input"))


@pytest.mark.parametrize(
    "ask",
    [
        lambda consumer: consumer.assign([TopicPartition("", 0)]),
        lambda consumer: consumer.assign([TopicPartition("a")]),
        lambda consumer: consumer.assign([TopicPartition("a", 0, -5)]),
        lambda consumer: consumer.assign([TopicPartition("a", 0, 2**63)]),
        lambda consumer: consumer.commit(offsets=[TopicPartition("a", 0)]),
        lambda consumer: consumer.subscribe([""]),
        lambda consumer: consumer.subscribe(["\ud800"]),
        lambda consumer: consumer.assign([TopicPartition("\ud800", 0)]),
        lambda consumer: consumer.assign([TopicPartition("a", 2**31)]),
        lambda consumer: consumer.list_topics("\ud800"),
    ],
)
def test_values_that_cannot_be_are_invalid_arguments(make_consumer: MakeConsumer, ask: Ask) -> None:
    with pytest.raises(KafkaException) as raised:
        ask(make_consumer(group_id="bad-input"))
    assert raised.value.error.code() == KafkaError._INVALID_ARG


def test_a_count_of_messages_has_bounds(make_consumer: MakeConsumer) -> None:
    consumer = make_consumer()
    for count in (-1, 1_000_001):
        with pytest.raises(ValueError, match="num_messages"):
            consumer.consume(count)


def test_a_closed_consumer_says_so(make_consumer: MakeConsumer) -> None:
    consumer = make_consumer(group_id="bad-input")
    consumer.close()
    consumer.close()
    for ask in (consumer.poll, consumer.consume, consumer.consume_arrow, consumer.commit, consumer.assignment):
        with pytest.raises(RuntimeError, match="closed"):
            ask()
    assert list(consumer) == []


def test_a_topic_that_does_not_exist_is_told_once_and_read_when_it_does(
    raw: RawConnection, make_consumer: MakeConsumer
) -> None:
    consumer = make_consumer()
    consumer.assign(beginning("comes-later"))
    told = consumer.poll(PATIENCE_S)
    assert told is not None
    assert told.error() == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert (told.topic(), told.partition()) == ("comes-later", 0)
    assert consumer.poll(0.3) is None
    raw.create_topic("comes-later")
    write(raw, "comes-later", [b"here"])
    assert take(consumer, 1)[0].value() == b"here"


def test_a_partition_that_does_not_exist_is_told(topic: str, make_consumer: MakeConsumer) -> None:
    consumer = make_consumer()
    consumer.assign(beginning(topic, 7))
    told = consumer.poll(PATIENCE_S)
    assert told is not None
    assert told.error() == KafkaError._UNKNOWN_PARTITION


def test_iteration_and_arrow_raise_what_poll_hands_out(make_consumer: MakeConsumer) -> None:
    consumer = make_consumer()
    consumer.assign(beginning("nowhere-one"))
    with pytest.raises(KafkaException, match="nowhere-one"):
        next(iter(consumer))
    consumer.assign(beginning("nowhere-two"))
    with pytest.raises(KafkaException, match="nowhere-two"):
        consumer.consume_arrow(1, PATIENCE_S)


def test_an_offset_that_is_not_in_the_log_follows_the_reset_policy(
    raw: RawConnection, topic: str, make_consumer: MakeConsumer
) -> None:
    write(raw, topic, [b"only"])
    lost = TopicPartition(topic, 0, 99)
    early = make_consumer(auto_offset_reset="earliest")
    early.assign([lost])
    assert take(early, 1)[0].offset() == 0
    strict = make_consumer(auto_offset_reset="error")
    strict.assign([lost])
    told = strict.poll(PATIENCE_S)
    assert told is not None
    error = told.error()
    assert error == KafkaError._AUTO_OFFSET_RESET
    assert "offset 99" in str(error)
    strict.seek(TopicPartition(topic, 0, 0))
    assert take(strict, 1)[0].offset() == 0


def test_without_a_committed_offset_and_a_reset_policy_there_is_nowhere_to_begin(
    topic: str, make_consumer: MakeConsumer
) -> None:
    consumer = make_consumer(group_id="bad-input-fresh", auto_offset_reset="error")
    consumer.assign([TopicPartition(topic, 0)])
    told = consumer.poll(PATIENCE_S)
    assert told is not None
    assert told.error() == KafkaError._NO_OFFSET


@pytest.mark.parametrize("count", [3, decoding.FEW_RECORDS], ids=["record by record", "in columns"])
def test_damage_is_told_with_its_offset_after_what_is_sound_and_again_until_someone_moves_on(
    server: Server, raw: RawConnection, topic: str, make_consumer: MakeConsumer, count: int
) -> None:
    for at in range(3):
        write(raw, topic, [b"batch %d" % at] * count)
    (segment,) = Path(server.data_dir).glob(f"{topic}-0/*.log")
    data = bytearray(segment.read_bytes())
    data[data.index(b"batch 1") + 3] ^= 1
    segment.write_bytes(data)
    consumer = make_consumer(fetch_error_backoff_ms=10)
    consumer.assign(beginning(topic))
    assert [each.offset() for each in take(consumer, count)] == list(range(count))
    for _ in range(2):
        told = consumer.poll(PATIENCE_S)
        assert told is not None
        error = told.error()
        assert error is not None
        assert (error.code(), told.offset()) == (KafkaError._BAD_MSG, count)
        assert f"offset {count}" in error.str() and "CRC" in error.str()
        assert consumer.position([TopicPartition(topic, 0)])[0].offset == count
    consumer.seek(TopicPartition(topic, 0, 2 * count))
    assert take(consumer, 1)[0].value() == b"batch 2"


def test_who_does_not_want_checksums_gets_what_is_there(
    server: Server, raw: RawConnection, topic: str, make_consumer: MakeConsumer
) -> None:
    write(raw, topic, [b"sound"])
    (segment,) = Path(server.data_dir).glob(f"{topic}-0/*.log")
    segment.write_bytes(segment.read_bytes().replace(b"sound", b"found"))
    consumer = make_consumer(check_crcs=False)
    consumer.assign(beginning(topic))
    assert take(consumer, 1)[0].value() == b"found"


def test_a_cluster_that_cannot_be_reached_is_told_once_to_the_callback_and_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        nowhere = f"127.0.0.1:{nobody.getsockname()[1]}"
        told: list[KafkaError] = []
        with Consumer({"bootstrap.servers": nowhere, "error_cb": told.append}) as consumer:
            consumer.assign(beginning("unreachable"))
            until(lambda: consumer.poll(0) is None and told, "the callback to be told")
            assert consumer.poll(0.5) is None
        assert told == [KafkaError._ALL_BROKERS_DOWN]
        assert len(messages(caplog, "oncelog.client")) == 1
        caplog.clear()
        with Consumer({"bootstrap.servers": nowhere}) as consumer:
            consumer.assign(beginning("unreachable"))
            until(lambda: consumer.poll(0) is None and messages(caplog, "oncelog.client"), "a line in the log")
            assert consumer.poll(0.5) is None
        (line,) = messages(caplog, "oncelog.client")
        assert nowhere in line


def test_a_group_that_cannot_be_reached_is_told_once_to_the_callback_and_the_log(
    nowhere: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    told: list[KafkaError] = []
    properties = {"bootstrap.servers": nowhere, "group.id": "g", "enable.auto.commit": False}
    with caplog.at_level("WARNING", "oncelog.client"):
        with Consumer({**properties, "error_cb": told.append}) as consumer:
            consumer.subscribe(["any"])
            until(lambda: consumer.poll(0) is None and told, "the callback")
        assert told == [KafkaError._ALL_BROKERS_DOWN]
        assert len(messages(caplog, "oncelog.client")) == 1
        caplog.clear()
        with Consumer(properties) as consumer:
            consumer.subscribe(["any"])
            until(lambda: consumer.poll(0) is None and messages(caplog, "oncelog.client"), "a line in the log")
        (line,) = messages(caplog, "oncelog.client")
        assert nowhere in line


async def test_a_commit_that_is_never_answered_says_what_failed_last(nowhere: str) -> None:
    settings = consumer_settings({"bootstrap.servers": nowhere, "group.id": "g", "enable.auto.commit": False})
    operations = Operations(settings, lambda: None, asyncio.get_running_loop().call_soon_threadsafe)
    core = operations.core
    finding = core.brokers.coordinator
    attempts = 0

    async def first_fails_then_hangs(key: str, kind: int = 0) -> int:
        nonlocal attempts
        attempts += 1
        if attempts > 1:
            await asyncio.Event().wait()
        return await finding(key, kind)

    core.brokers.coordinator = first_fails_then_hangs  # type: ignore[method-assign]
    try:
        with pytest.raises(KafkaException) as refusal:
            await core.commit({("any", 0): ToCommit(5)}, patience_ms=1000)
    finally:
        await operations.close()
    assert refusal.value.error.code() == KafkaError._TIMED_OUT
    assert nowhere in refusal.value.error.str() and "Connection refused" in refusal.value.error.str()


@pytest.mark.parametrize(
    ("first", "lookups"), [(KafkaError.UNSTABLE_OFFSET_COMMIT, 1), (KafkaError.NOT_COORDINATOR, 2), (CLOSE, 2)]
)
async def test_the_coordinator_is_looked_for_again_where_it_moved_or_was_lost(first: Any, lookups: int) -> None:
    async with FakeBroker() as broker:
        broker.versions[9] = (2, 5)
        found = {"node_id": 0, "host": broker.host, "port": broker.port}
        broker.answers["find_coordinator"] = lambda asked: {"coordinators": [{"key": "g", **found}]}

        def offsets(asked: Asked) -> Any:
            is_first = len(broker.asked_for("offset_fetch")) == 1
            if is_first and first is CLOSE:
                return CLOSE
            partition = {"partition_index": 0, "committed_offset": 5, "metadata": ""}
            partition["error_code"] = first if is_first else 0
            return {"topics": [{"name": "t", "partitions": [partition]}]}

        broker.answers["offset_fetch"] = offsets
        settings = consumer_settings({"bootstrap.servers": f"{broker.host}:{broker.port}", "group.id": "g"})
        operations = Operations(settings, lambda: None, asyncio.get_running_loop().call_soon_threadsafe)
        try:
            committed = await operations.core.committed([("t", 0)], patience_ms=20_000)
        finally:
            await operations.close()
        assert committed["t", 0].offset == 5
        assert len(broker.asked_for("find_coordinator")) == lookups


async def test_the_next_commit_does_not_ask_a_silent_coordinator_again() -> None:
    async with FakeBroker() as broker:
        broker.versions[8] = (2, 7)
        found = {"node_id": 0, "host": broker.host, "port": broker.port}
        broker.answers["find_coordinator"] = lambda asked: {"coordinators": [{"key": "g", **found}]}
        broker.answers["offset_commit"] = lambda asked: SILENT
        settings = consumer_settings({"bootstrap.servers": f"{broker.host}:{broker.port}", "group.id": "g"})
        operations = Operations(settings, lambda: None, asyncio.get_running_loop().call_soon_threadsafe)
        finding, looked_up = operations.core.brokers.coordinator, list[str]()

        async def find(key: str, kind: int = 0) -> int:
            """Over the connection that was silent nothing else can be asked."""
            looked_up.append(key)
            return await finding(key, kind) if len(looked_up) == 1 else 0

        operations.core.brokers.coordinator = find  # type: ignore[method-assign]
        try:
            for lookups in (["g"], ["g", "g"]):
                broker.asked.clear()
                committing = asyncio.create_task(operations.core.commit({("t", 0): ToCommit(5)}))
                await broker.until(lambda: bool(broker.asked_for("offset_commit")))
                committing.cancel()
                await asyncio.wait([committing])
                assert looked_up == lookups
        finally:
            await operations.close()


def test_a_cluster_that_refuses_to_know_us_is_told_in_the_place_of_records(
    topic: str, make_consumer: MakeConsumer
) -> None:
    consumer = make_consumer()
    refusal = KafkaError(KafkaError._AUTHENTICATION, "wrong password")

    async def refuse(_: object) -> None:
        raise KafkaException(refusal)

    driver_of(consumer).operations.core.brokers.refresh = refuse  # type: ignore[method-assign,assignment]
    consumer.assign(beginning(topic))
    told = consumer.poll(PATIENCE_S)
    assert told is not None
    assert told.error() == KafkaError._AUTHENTICATION
    assert consumer.poll(0.3) is None


def test_closing_in_a_rebalances_callback_is_refused_since_it_would_wait_for_itself(
    topic: str, make_consumer: MakeConsumer
) -> None:
    refused: list[KafkaException] = []

    def close(consumer: Consumer, _: list[TopicPartition]) -> None:
        with pytest.raises(KafkaException, match="callback") as raised:
            consumer.close()
        refused.append(raised.value)

    consumer = make_consumer(group_id="closes-inside")
    consumer.subscribe([topic], on_assign=close)
    until(lambda: consumer.poll(0.1) is None and refused, "the callback to be called")
    assert refused[0].error.code() == KafkaError._STATE
    assert [each.topic for each in consumer.assignment()] == [topic]


def test_a_forked_process_is_told_to_make_a_consumer_of_its_own(topic: str, make_consumer: MakeConsumer) -> None:
    consumer = make_consumer(group_id="forked")
    consumer.assign(beginning(topic))
    child = os.fork()
    if child == 0:
        status = 1
        try:
            for ask in (consumer.poll, consumer.consume, consumer.commit, consumer.unassign):
                with pytest.raises(KafkaException, match="forked"):
                    ask()
            consumer.close()
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert [each.topic for each in consumer.assignment()] == [topic]


LAST_DELTA_AT = 23  # in a batch


@pytest.mark.parametrize("count", [3, decoding.FEW_RECORDS], ids=["record by record", "in columns"])
def test_damage_that_makes_a_batch_look_like_one_that_was_read_before_does_not_pass_unseen(
    server: Server, raw: RawConnection, topic: str, make_consumer: MakeConsumer, count: int
) -> None:
    for at in range(3):
        write(raw, topic, [b"batch %d" % at] * count)
    (segment,) = Path(server.data_dir).glob(f"{topic}-0/*.log")
    data = bytearray(segment.read_bytes())
    assert len(data) % 3 == 0
    data[len(data) // 3 + LAST_DELTA_AT] ^= 0x80
    segment.write_bytes(data)
    consumer = make_consumer(fetch_error_backoff_ms=10)
    consumer.assign(beginning(topic))
    assert [each.offset() for each in take(consumer, count)] == list(range(count))
    told = consumer.poll(PATIENCE_S)
    assert told is not None
    error = told.error()
    assert error is not None
    assert (error.code(), told.offset()) == (KafkaError._BAD_MSG, count)


def test_a_record_that_was_stored_a_thousand_times_smaller_is_read(
    server: Server, topic: str, make_consumer: MakeConsumer
) -> None:
    large = bytes(40 << 20)
    properties = {"bootstrap.servers": server.bootstrap_servers, "compression.type": "zstd"}
    with Producer(properties | {"message.max.bytes": len(large) + 1000}) as producer:
        producer.produce(topic, large)
    consumer = make_consumer()
    consumer.assign(beginning(topic))
    assert take(consumer, 1)[0].value() == large


@pytest.mark.parametrize(
    ("where", "name"),
    [
        (engine, "read_fetch_answer"),  # of a fetch that was answered
        (engine, "pack_fetch"),  # of one that was to be sent
        (engine, "list_offsets"),
        (commits, "fetch_committed"),
        (Brokers, "refresh"),
    ],
)
def test_a_question_that_fails_in_a_way_that_nobody_thought_of_is_asked_again(
    raw: RawConnection,
    topic: str,
    make_consumer: MakeConsumer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    where: Any,
    name: str,
) -> None:
    real = getattr(where, name)
    failed: list[str] = []

    def fails_once(*arguments: Any, **more: Any) -> Any:
        if failed:
            return real(*arguments, **more)
        failed.append(name)
        raise RuntimeError("nobody thought of this")

    write(raw, topic, [b"a", b"b"])
    consumer = make_consumer(group_id=topic, fetch_error_backoff_ms=10)
    monkeypatch.setattr(where, name, fails_once)
    consumer.assign([TopicPartition(topic, 0, OFFSET_STORED)])
    found: list[bytes | None] = []
    while len(found) < 2:
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        if message.error() is None:
            found.append(message.value())
    assert found == [b"a", b"b"]
    assert failed == [name]
    assert "nobody thought of this" in caplog.text
