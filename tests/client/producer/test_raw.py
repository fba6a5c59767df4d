"""Batches that are encoded already: sent as they are, by producers of every kind, and recognised in a replay."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from oncelog.client.errors import KafkaError, KafkaException
from oncelog.client.producer.asynchronous import AsyncProducer
from oncelog.client.producer.producer import Producer
from oncelog.client.saving.saved import SavedProducer
from oncelog.embedded import Server
from oncelog.records.build import build_batch
from oncelog.records.header import headers
from oncelog.records.passing_columns import pass_on
from oncelog.records.read import records_of
from tests.lives.stored import records
from tests.raw import RawConnection
from tests.raw.topics import new_topic

TIMESTAMP_MS = 1_500_000_000_000  # long enough ago for any Kafka to forget who wrote it
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
Make = Callable[..., Producer]


@pytest.fixture(params=["oncelog", "kafka"])
def place(request: pytest.FixtureRequest) -> Iterator[tuple[Make, RawConnection]]:
    """Producers of each server, and a connection to it."""
    servers: str = request.getfixturevalue("server" if request.param == "oncelog" else "kafka").bootstrap_servers
    yield from producers_of(servers)


@pytest.fixture
def ours(server: Server) -> Iterator[tuple[Make, RawConnection]]:
    yield from producers_of(server.bootstrap_servers)


def producers_of(servers: str) -> Iterator[tuple[Make, RawConnection]]:
    started: list[Producer] = []

    def make(saved: SavedProducer | None = None, **more: object) -> Producer:
        given = {name.replace("_", "."): value for name, value in more.items()}
        started.append(Producer({"bootstrap.servers": servers} | given, saved=saved))
        return started[-1]

    with RawConnection(servers, timeout_s=60) as connection:
        yield make, connection
    for each in started:
        each.close(0)


def made(first: int, last: int, *, codec: int = 0, each: int = 10) -> bytes:
    """Batches as a log holds them: at offsets of their own, written by somebody else."""
    parts = []
    for at in range(first, last, each):
        records = [
            (b"k%d" % n, b"value %d" % n if n % 7 else None, [("number", b"%d" % n)], TIMESTAMP_MS + n)
            for n in range(at, min(at + each, last))
        ]
        parts.append(
            build_batch(records, codec=codec, base_offset=at, producer_id=77, producer_epoch=1, base_sequence=9)
        )
    return b"".join(parts)


def expected(first: int, last: int) -> list[tuple[object, ...]]:
    return [record[:4] for record in records_of(build_batch([
        (b"k%d" % n, b"value %d" % n if n % 7 else None, [("number", b"%d" % n)], TIMESTAMP_MS + n)
        for n in range(first, last)
    ]))]  # fmt: skip


def holds(raw: RawConnection, topic: str, first: int, last: int) -> None:
    assert [record[:4] for record in records(raw, topic)] == expected(first, last)


@pytest.mark.parametrize("codec", CODECS)
def test_batches_are_stored_as_they_were(place: tuple[Make, RawConnection], codec: str) -> None:
    make, raw = place
    topic = new_topic(raw)
    producer = make()
    sent = [producer.send_batches(topic, 0, made(at, at + 100, codec=CODECS[codec])) for at in range(0, 500, 100)]
    assert [(only.first_offset, only.record_count) for each in sent for only in each.result(60)] == [
        (at, 100) for at in range(0, 500, 100)
    ]
    holds(raw, topic, 0, 500)


def test_they_go_to_the_partition_that_was_named(ours: tuple[Make, RawConnection]) -> None:
    make, raw = ours
    topic = new_topic(raw, 3)
    make().send_batches(topic, 2, made(0, 10)).result(30)
    assert [len(records(raw, topic, each)) for each in range(3)] == [0, 0, 10]


def test_a_partition_that_is_not_there_is_refused(ours: tuple[Make, RawConnection]) -> None:
    make, raw = ours
    topic = new_topic(raw)
    with pytest.raises(KafkaException) as refused:
        make().send_batches(topic, 1, made(0, 10))
    assert refused.value.error.code() == KafkaError._UNKNOWN_PARTITION


def test_without_idempotence_nobody_is_named_as_the_writer(ours: tuple[Make, RawConnection]) -> None:
    make, raw = ours
    topic = new_topic(raw)
    producer = make(enable_idempotence=False)
    producer.send_batches(topic, 0, bytearray(made(0, 10))).result(30)
    data = raw.fetch(topic, 0, 0).records
    assert [header[9:12] for _, header in headers(data)] == [(-1, -1, -1)]


def test_what_cannot_go_in_one_batch_goes_in_several(ours: tuple[Make, RawConnection]) -> None:
    make, raw = ours
    topic = new_topic(raw)
    producer = make(message_max_bytes=2_000)
    producer.send_batches(topic, 0, made(0, 500, each=500)).result(30)
    assert max(header.size_bytes for _, header in headers(raw.fetch(topic, 0, 0).records)) <= 2_000
    holds(raw, topic, 0, 500)


def test_a_batch_that_the_broker_finds_too_large_is_cut(place: tuple[Make, RawConnection]) -> None:
    make, raw = place
    name = "cut-" + new_topic(raw)
    assert raw.create_topic(name, 1, {"max.message.bytes": "3000"}) == 0
    make().send_batches(name, 0, made(0, 300, each=300)).result(60)
    holds(raw, name, 0, 300)


def test_the_queue_is_bounded(ours: tuple[Make, RawConnection]) -> None:
    make, raw = ours
    topic = new_topic(raw)
    producer = make(queue_buffering_max_kbytes=20)
    fifty = [each for at in range(0, 5_000, 100) for each in pass_on(made(at, at + 100)).batches]
    producer.send_batches(topic, 0, fifty).result(60)
    holds(raw, topic, 0, 5_000)


# --- saved and resumed


@pytest.mark.parametrize("cut", [0, 10, 25, 100])
def test_a_resumed_producer_drops_what_stands_there_and_trims_the_batch_that_it_cuts(
    place: tuple[Make, RawConnection], cut: int
) -> None:
    make, raw = place
    topic = new_topic(raw)
    first = make()
    first.pin(topic)
    first.saved()
    first.send_batches(topic, 0, made(0, 50)).result(60)
    saved = first.saved()
    first.send_batches(topic, 0, made(50, 50 + cut, each=7)).result(60)
    again = make(saved=saved)
    found = again.send_batches(topic, 0, made(50, 200)).result(60)
    assert sum(each.record_count for each in found) == 150
    holds(raw, topic, 0, 200)


def test_several_calls_in_a_replay_stay_in_order(place: tuple[Make, RawConnection]) -> None:
    make, raw = place
    topic = new_topic(raw)
    first = make()
    first.pin(topic)
    saved = first.saved()
    first.send_batches(topic, 0, made(0, 333)).result(60)
    again = make(saved=saved)
    sent = [again.send_batches(topic, 0, made(at, at + 50, each=25)) for at in range(0, 1_000, 50)]
    assert sum(each.record_count for one in sent for each in one.result(60)) == 1_000
    holds(raw, topic, 0, 1_000)


def test_a_replay_that_differs_writes_nothing(ours: tuple[Make, RawConnection]) -> None:
    make, raw = ours
    topic = new_topic(raw)
    first = make()
    first.pin(topic)
    saved = first.saved()
    first.send_batches(topic, 0, made(0, 50)).result(30)
    again = make(saved=saved)
    with pytest.raises(KafkaException) as differs:
        again.send_batches(topic, 0, made(1, 100)).result(30)
    assert "nothing more is written" in differs.value.error.str()
    assert len(records(raw, topic)) == 50


def test_a_saved_producer_of_some_partitions_writes_to_no_other(ours: tuple[Make, RawConnection]) -> None:
    make, raw = ours
    topic = new_topic(raw, 3)
    first = make()
    first.pin(topic)
    whole = first.saved()
    known = whole.topics[topic]
    two = {index: each for index, each in known.partitions.items() if index != 1}
    again = make(saved=replace(whole, topics={topic: replace(known, partitions=two)}))
    again.send_batches(topic, 2, made(0, 10)).result(30)
    with pytest.raises(KafkaException, match="not part of the saved producer"):
        again.send_batches(topic, 1, made(0, 10))


# --- on the caller's loop


async def test_on_a_loop_of_ones_own(server: Server, raw: RawConnection, topic: str) -> None:
    async with AsyncProducer({"bootstrap.servers": server.bootstrap_servers}) as producer:
        sent = [await producer.send_batches(topic, 0, made(at, at + 100)) for at in range(0, 1_000, 100)]
        done = await asyncio.gather(*sent)
    assert sum(each.record_count for one in done for each in one.ranges) == 1_000
    holds(raw, topic, 0, 1_000)


async def test_a_replay_on_a_loop_of_ones_own(server: Server, raw: RawConnection, topic: str) -> None:
    servers = {"bootstrap.servers": server.bootstrap_servers}
    async with AsyncProducer(servers) as first:
        await first.pin(topic)
        saved = await first.saved()
        await (await first.send_batches(topic, 0, made(0, 123)))
    async with AsyncProducer(servers, saved=saved) as again:
        await (await again.send_batches(topic, 0, made(0, 400)))
    holds(raw, topic, 0, 400)


async def test_a_replay_that_differs_ends_the_wait_for_it(server: Server, raw: RawConnection, topic: str) -> None:
    servers = {"bootstrap.servers": server.bootstrap_servers}
    async with AsyncProducer(servers) as first:
        await first.pin(topic)
        saved = await first.saved()
        await (await first.send_batches(topic, 0, made(0, 50)))
    async with AsyncProducer(servers, saved=saved) as again:
        with pytest.raises(KafkaException, match="nothing more is written"):
            await (await again.send_batches(topic, 0, made(7, 400)))
    holds(raw, topic, 0, 50)
