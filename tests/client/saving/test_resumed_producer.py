"""A whole producer, saved and resumed: on oncelog and on a real Kafka that forgets producers after three seconds."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from oncelog.client.errors import KafkaError, KafkaException
from oncelog.client.net.brokers import Brokers
from oncelog.client.producer.asynchronous import AsyncProducer
from oncelog.client.producer.producer import Producer
from oncelog.client.saving import BadSavedProducer, CannotResume, SavedProducer
from oncelog.client.saving.resume import unchanged
from oncelog.clock import wall_s
from tests.client.saving.stored import Stored, stored
from tests.raw import RawConnection, batch
from tests.waiting import until

PARTITIONS = 3
only_kafka = pytest.mark.parametrize("bootstrap_servers", ["kafka"], indirect=True)
only_oncelog = pytest.mark.parametrize("bootstrap_servers", ["oncelog"], indirect=True)


@pytest.fixture
def out(raw: RawConnection, topic: str) -> str:
    assert raw.create_topic(topic, PARTITIONS) == 0
    return topic


@pytest.fixture
def start(bootstrap_servers: str) -> Iterator[Callable[..., Producer]]:
    """Starts producers; those that a test leaves behind, as a crash would, are ended with it."""
    started: list[Producer] = []

    def make(saved: SavedProducer | str | None = None, **properties: Any) -> Producer:
        started.append(Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 1}, saved=saved, **properties))
        return started[-1]

    yield make
    for each in started:
        each.close(0)


def feed(producer: Producer, topic: str, first: int, last: int, *, timestamps: int = 0) -> list[Any]:
    """Records that are the same every time; every third has no key, so that the counter places it. Their reports."""
    reports: list[Any] = []

    def told(error: KafkaError | None, message: Any) -> None:
        reports.append(error or (message.partition(), message.offset(), message.pid(), message.sequence()))

    for number in range(first, last):
        producer.produce(
            topic,
            f"value {number}",
            key=f"key {number % 7}" if number % 3 else None,
            headers=[("number", b"%d" % number)],
            timestamp=timestamps and timestamps + number,
            on_delivery=told,
        )
    assert producer.flush(30) == 0
    return reports


def exactly(found: Stored, last: int) -> None:
    """Every number below `last` once, and in order within its partition."""
    assert sorted(found.numbers()) == list(range(last))
    assert all(numbers == sorted(numbers) for numbers in found.by_partition().values())


def test_what_was_written_after_the_save_is_not_written_again(
    start: Callable[..., Producer], raw: RawConnection, out: str
) -> None:
    first = start()
    first.pin(out)
    first.saved()
    feed(first, out, 0, 100)
    saved = first.saved()
    written = feed(first, out, 100, 200)
    again = start(saved.to_json())
    reports = feed(again, out, 100, 300)
    assert len(set(reports)) == len(reports) == 200
    assert set(written) <= set(reports), "what stands there already is reported as it stands"
    exactly(stored(raw, out), 300)


def test_the_replay_is_reported_with_its_original_offsets_and_sequences(
    start: Callable[..., Producer], raw: RawConnection, out: str
) -> None:
    first = start()
    first.pin(out)
    saved = first.saved()
    written = feed(first, out, 0, 50)
    again = start(saved)
    assert sorted(feed(again, out, 0, 50)) == sorted(written)
    assert stored(raw, out).total == 50


def test_a_chain_of_crashes_with_and_without_saves_between_stays_exact(
    start: Callable[..., Producer], raw: RawConnection, out: str
) -> None:
    producer = start()
    producer.pin(out)
    saved = producer.saved()
    begin = 0
    for last, saves_at in ((40, 20), (90, None), (95, 95), (200, 150)):
        producer = start(saved)
        if saves_at is not None:
            feed(producer, out, begin, saves_at)
            saved = producer.saved()
            feed(producer, out, saves_at, last)
            begin = saves_at
        else:
            feed(producer, out, begin, last)
    feed(start(saved), out, begin, 250)
    exactly(stored(raw, out), 250)


def test_a_save_in_the_middle_of_a_replay_is_a_place_to_go_on_from(
    start: Callable[..., Producer], raw: RawConnection, out: str
) -> None:
    first = start()
    first.pin(out)
    saved = first.saved()
    feed(first, out, 0, 100)
    again = start(saved)
    feed(again, out, 0, 40)
    in_the_middle = again.saved()
    feed(start(in_the_middle), out, 40, 150)
    exactly(stored(raw, out), 150)


def test_bulk_rows_are_replayed_as_records_are(start: Callable[..., Producer], raw: RawConnection, out: str) -> None:
    def send(producer: Producer, first: int, last: int) -> None:
        rows = [f"value {number}".encode() for number in range(first, last)]
        keys = [b"key %d" % (number % 7) if number % 3 else None for number in range(first, last)]
        producer.send(out, pa.table({"value": pa.array(rows, pa.binary()), "key": pa.array(keys, pa.binary())})).result(
            30
        )

    first = start()
    first.pin(out)
    first.saved()
    send(first, 0, 500)
    saved = first.saved()
    send(first, 500, 1_200)
    again = start(saved)
    send(again, 500, 2_000)
    exactly(stored(raw, out), 2_000)


def test_the_first_instant_of_1970_stays_what_it_is_behind_a_replay(
    start: Callable[..., Producer], raw: RawConnection, out: str
) -> None:
    def send(producer: Producer, last: int) -> None:
        times = pa.array([0] * last, pa.timestamp("ms", "UTC"))
        values = pa.array([b"%d" % number for number in range(last)], pa.binary())
        rows = pa.record_batch({"value": values, "timestamp": times, "partition": pa.array([0] * last)})
        producer.send(out, rows).result(30)

    first = start()
    first.pin(out)
    saved = first.saved()
    send(first, 3)
    send(start(saved), 7)
    assert [record.timestamp_ms for _, record in stored(raw, out).records] == [0] * 7


@only_oncelog
@pytest.mark.parametrize("run", [1, 40, 1_500])
def test_records_without_a_key_share_a_partition_for_a_run_however_they_are_sent_and_resumed(
    start: Callable[..., Producer], raw: RawConnection, out: str, run: int
) -> None:
    def one_by_one(producer: Producer, first: int, last: int) -> None:
        for number in range(first, last):
            producer.produce(out, f"value {number}")

    def in_bulk(producer: Producer, first: int, last: int) -> None:
        rows = [f"value {number}".encode() for number in range(first, last)]
        producer.send(out, pa.table({"value": pa.array(rows, pa.binary())})).result(30)

    first = start(**{"oncelog.keyless.run": run})
    first.pin(out)
    first.saved()
    one_by_one(first, 0, 1_000)
    in_bulk(first, 1_000, 5_050)
    saved = first.saved()
    in_bulk(first, 5_050, 5_100)
    again = start(saved, **{"oncelog.keyless.run": run})
    one_by_one(again, 5_050, 5_500)
    in_bulk(again, 5_500, 6_000)
    assert again.flush(30) == 0
    placed = stored(raw, out).by_partition()
    assert dict(placed) == {
        partition: [number for number in range(6_000) if number // run % PARTITIONS == partition]
        for partition in range(PARTITIONS)
    }


def test_a_difference_stops_before_anything_more_is_written(
    start: Callable[..., Producer], raw: RawConnection, out: str
) -> None:
    first = start()
    first.pin(out)
    saved = first.saved()
    feed(first, out, 0, 30)
    again = start(saved)
    errors: list[KafkaError | None] = []
    for number in range(60):
        try:
            again.produce(out, f"other {number}", partition=0, on_delivery=lambda error, _: errors.append(error))
        except KafkaException as refusal:
            assert "nothing more is written" in refusal.error.str()
            break
    assert again.flush(30) == 0
    assert errors
    assert all(error is not None for error in errors)
    assert stored(raw, out).total == 30
    with pytest.raises(KafkaException, match=f"{out}-0, sequence 0 of producer"):
        again.saved()
    with pytest.raises(KafkaException, match="nothing more is written"):
        again.produce(out, b"x")


def test_a_copy_that_runs_at_the_same_time_by_mistake_does_no_harm(
    start: Callable[..., Producer], raw: RawConnection, out: str
) -> None:
    first = start()
    first.pin(out)
    saved = first.saved()
    feed(first, out, 0, 10)
    copy = start(saved)
    for step in range(10, 60, 10):
        for producer in (first, copy):
            begin = 0 if producer is copy and step == 10 else step
            try:
                feed(producer, out, begin, step + 10)
            except KafkaException as fenced:
                assert producer is first, fenced
    exactly(stored(raw, out), 60)


def test_a_pinned_producer_must_be_saved_before_its_first_record(start: Callable[..., Producer], out: str) -> None:
    producer = start()
    producer.pin(out)
    with pytest.raises(KafkaException, match="saved nowhere yet"):
        producer.produce(out, b"x")
    producer.saved()
    producer.produce(out, b"x")
    assert producer.flush(30) == 0


def test_another_topic_is_refused_until_it_is_pinned(
    start: Callable[..., Producer], raw: RawConnection, out: str
) -> None:
    producer = start()
    producer.pin(out)
    producer.saved()
    other = f"{out}-other"
    assert raw.create_topic(other) == 0
    with pytest.raises(KafkaException, match=rf"call pin\('{other}'\)"):
        producer.produce(other, b"x")
    producer.pin(other)
    producer.saved()
    producer.produce(other, b"x")
    assert producer.flush(30) == 0


def test_a_producer_that_was_pinned_late_goes_on_where_it_stands(
    start: Callable[..., Producer], raw: RawConnection, out: str
) -> None:
    producer = start()
    for number in range(20):
        producer.produce(out, f"value {number}", key=b"k")
    producer.pin(out)
    saved = producer.saved()
    feed(producer, out, 20, 40)
    feed(start(saved), out, 20, 60)
    exactly(stored(raw, out), 60)


def test_partitions_that_were_added_are_not_used_by_a_replay(
    start: Callable[..., Producer], raw: RawConnection, out: str
) -> None:
    producer = start()
    producer.pin(out)
    saved = producer.saved()
    feed(producer, out, 0, 30)
    grow(raw, out)
    feed(start(saved), out, 0, 50)
    found = stored(raw, out, PARTITIONS + 2)
    exactly(found, 50)
    assert set(found.by_partition()) <= set(range(PARTITIONS))


@only_kafka
async def test_who_has_looked_before_the_saved_value_was_made_looks_again(
    start: Callable[..., Producer], raw: RawConnection, brokers: Brokers, out: str
) -> None:
    await brokers.refresh([out])
    grow(raw, out)
    producer = start()
    producer.pin(out)
    saved = producer.saved()
    assert len(brokers.metadata.topics[out].partitions) == PARTITIONS
    resumed = await unchanged(brokers, saved)
    assert len(resumed.partitions) == PARTITIONS + 2


def grow(raw: RawConnection, topic: str) -> None:
    """By two partitions."""
    topics = [{"name": topic, "count": PARTITIONS + 2, "assignments": None}]
    raw.call("create_partitions", 1, topics=topics, timeout=10_000, validate_only=False)
    until(lambda: raw.offset_at(topic, PARTITIONS + 1, -1).error_code == 0, "the new partitions are there")


def test_bad_values_are_refused_before_anything_is_sent(
    start: Callable[..., Producer], raw: RawConnection, out: str
) -> None:
    producer = start()
    producer.pin(out)
    saved = producer.saved()
    value = json.loads(saved.to_json())
    for bad, words in (
        (saved.to_json()[:-20], "cut short"),
        (json.dumps(value | {"oncelog.saved": 9}), "newer oncelog"),
        (json.dumps(value | {"cluster": "x"}), "checksum"),
    ):
        with pytest.raises(BadSavedProducer, match=words):
            start(bad)
    with pytest.raises(BadSavedProducer, match="partitioner=consistent_random, and is started with"):
        start(saved, partitioner="murmur2")
    with pytest.raises(BadSavedProducer, match=r"oncelog\.keyless\.run=1, and is started with oncelog"):
        start(saved, **{"oncelog.keyless.run": 500})
    with pytest.raises(KafkaException, match=r"needs `enable\.idempotence`"):
        start(saved, **{"enable.idempotence": False})
    assert raw.delete_topic(out) == 0
    with pytest.raises(BadSavedProducer, match="is not there"):
        start(saved)
    until(lambda: raw.create_topic(out, PARTITIONS) == 0, "the name is free again")
    with pytest.raises(BadSavedProducer, match="deleted and made again"):
        start(saved)
    assert stored(raw, out).total == 0


def test_initial_numbers_as_properties_resume_as_well(
    start: Callable[..., Producer], raw: RawConnection, out: str
) -> None:
    first = start()
    reports: list[Any] = []
    for number in range(10):
        first.produce(out, f"value {number}", partition=1, on_delivery=lambda _, message: reports.append(message))
    assert first.flush(30) == 0
    last = reports[-1]
    numbers = {"oncelog.pid": last.pid(), "oncelog.generation": last.generation(), "oncelog.sequence": 5}
    again = start(None, **numbers)
    for number in range(5, 15):
        again.produce(out, f"value {number}", partition=1)
    assert again.flush(30) == 0
    exactly(stored(raw, out), 15)


async def test_the_asyncio_twin_saves_and_resumes(bootstrap_servers: str, raw: RawConnection, out: str) -> None:
    properties = {"bootstrap.servers": bootstrap_servers, "linger.ms": 1}
    first = AsyncProducer(properties)
    await first.start()
    await first.pin(out)
    saved = await first.saved()
    for number in range(20):
        await first.produce(out, f"value {number}", partition=0)
    await first.flush()
    async with AsyncProducer(properties, saved=saved) as again:
        futures = [await again.produce(out, f"value {number}", partition=0) for number in range(30)]
        messages = [await each for each in futures]
        assert [each.offset() for each in messages][:20] == list(range(20))
        assert (await again.saved()).topics[out].partitions[0].last.next_sequence == 30
    exactly(stored(raw, out), 30)
    await first.close()


@only_kafka
def test_forgotten_by_kafka_after_its_expiration_and_resumed_without_a_duplicate(
    start: Callable[..., Producer], raw: RawConnection, out: str
) -> None:
    first = start()
    first.pin(out)
    first.saved()
    feed(first, out, 0, 60)
    saved = first.saved()
    feed(first, out, 60, 120)
    until(lambda: all_forgotten(raw, out), "the broker forgets the producer")
    feed(start(saved), out, 60, 180)
    exactly(stored(raw, out), 180)


@only_kafka
def test_records_of_two_days_ago_are_resumed_without_a_duplicate(
    start: Callable[..., Producer], raw: RawConnection, out: str
) -> None:
    two_days_ago = int(wall_s() * 1000) - 2 * 86_400_000
    first = start()
    first.pin(out)
    first.saved()
    feed(first, out, 0, 60, timestamps=two_days_ago)
    saved = first.saved()
    feed(first, out, 60, 120, timestamps=two_days_ago)
    until(lambda: all_forgotten(raw, out), "the broker forgets a producer of old records at once")
    feed(start(saved), out, 60, 180, timestamps=two_days_ago)
    exactly(stored(raw, out), 180)


@only_kafka
def test_a_quiet_partition_outlives_retention_because_saves_move_on(
    start: Callable[..., Producer], raw: RawConnection, out: str
) -> None:
    first = start()
    first.pin(out)
    first.saved()
    for number in range(5):
        first.produce(out, f"value {number}", partition=0)
    assert first.flush(30) == 0
    before = first.saved()
    assert raw.produce(out, 0, batch([b"other"] * 10)).error_code == 0
    first.saving.move_every_s = 0.0
    after = first.saved()
    assert [each.topics[out].partitions[0].next_offset for each in (before, after)] == [5, 15]
    raw.call(
        "delete_records",
        1,
        topics=[{"name": out, "partitions": [{"partition_index": 0, "offset": 15}]}],
        timeout=9_000,
    )
    until(lambda: all_forgotten(raw, out), "the broker forgets the producer")
    with pytest.raises(CannotResume):
        start(before)
    again = start(after)
    again.produce(out, "value 5", partition=0)
    assert again.flush(30) == 0
    assert stored(raw, out).numbers() == [5]


@only_kafka
@pytest.mark.thorough  # that it is told is shown where the log is looked at: `test_resume.py`
def test_what_retention_took_is_told_and_nothing_is_sent(
    start: Callable[..., Producer], raw: RawConnection, out: str
) -> None:
    first = start()
    first.pin(out)
    saved = first.saved()
    feed(first, out, 0, 60)
    until(lambda: all_forgotten(raw, out), "the broker forgets the producer")
    raw.call(
        "delete_records", 1, topics=[{"name": out, "partitions": [{"partition_index": 0, "offset": -1}]}], timeout=9_000
    )
    with pytest.raises(CannotResume, match="Start without a saved producer"):
        start(saved)


def all_forgotten(raw: RawConnection, topic: str) -> bool:
    return all(not raw.describe_producers(topic, at).active_producers for at in range(PARTITIONS))
