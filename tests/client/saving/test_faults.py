"""A saved producer behind a proxy that cuts and swallows: nothing lost, nothing twice, what was in doubt is compared.

On the real Kafka of these tests a producer is forgotten three seconds after its last record's timestamp.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from oncelog.chaos.faults import Direction, Fault, Kind, seeded_schedule
from oncelog.chaos.proxy import FaultProxy
from oncelog.client.errors import KafkaError
from oncelog.client.producer.producer import Producer
from oncelog.clock import wall_s
from tests.client.saving.stored import stored
from tests.raw import RawConnection, Rec, batch

only_kafka = pytest.mark.parametrize("bootstrap_servers", ["kafka"], indirect=True)
QUICK = {
    "socket.timeout.ms": 1_500,
    "linger.ms": 0,
    "batch.num.messages": 4,
    "reconnect.backoff.ms": 10,
    "retry.backoff.ms": 10,
}
TWO_DAYS_MS = 2 * 86_400_000


@pytest.fixture
def out(raw: RawConnection, topic: str) -> str:
    assert raw.create_topic(topic) == 0
    return topic


@pytest.fixture
def behind(bootstrap_servers: str) -> Iterator[Callable[..., tuple[Producer, FaultProxy]]]:
    """A producer behind a proxy with such faults."""
    made: list[tuple[Producer, FaultProxy]] = []

    def make(faults: list[Fault], **more: Any) -> tuple[Producer, FaultProxy]:
        proxy = FaultProxy(bootstrap_servers, faults)
        proxy.start()
        made.append((Producer({"bootstrap.servers": proxy.bootstrap_servers, **QUICK}, **more), proxy))
        return made[-1]

    yield make
    for producer, proxy in made:
        producer.close(0)
        proxy.stop()


def feed(producer: Producer, topic: str, first: int, last: int, *, timestamp: int = 0) -> list[KafkaError | None]:
    errors: list[KafkaError | None] = []
    for number in range(first, last):
        producer.produce(
            topic, b"%d" % number, partition=0, timestamp=timestamp, on_delivery=lambda error, _: errors.append(error)
        )
    assert producer.flush(60) == 0
    return errors


def test_a_first_batch_that_is_lost_while_a_second_waits_loses_nothing(
    behind: Callable[..., tuple[Producer, FaultProxy]], raw: RawConnection, out: str
) -> None:
    """A broker accepts any first sequence of a pid, so a second batch must not be under way when the first is lost."""
    lost = Fault(kind=Kind.CUT, counter="produce requests", at=1, api="produce", direction=Direction.UP, part=0.6)
    producer, proxy = behind([lost])
    producer.pin(out)
    saved = producer.saved()
    assert feed(producer, out, 0, 40) == [None] * 40
    assert [each.fault for each in proxy.happened] == [lost]
    assert stored(raw, out, 1).numbers() == list(range(40))
    again, _ = behind([], saved=saved)
    assert feed(again, out, 0, 60) == [None] * 60
    assert stored(raw, out, 1).numbers() == list(range(60))


@pytest.mark.parametrize("seed", [3, 4])
def test_cuts_and_swallowed_answers_leave_the_slots_filled_once_and_the_save_exact(
    behind: Callable[..., tuple[Producer, FaultProxy]], raw: RawConnection, out: str, seed: int
) -> None:
    weights = {Kind.CUT: 2, Kind.SWALLOW: 3}
    schedule = seeded_schedule(seed, every=6, until=60, counter="produce answers", weights=weights)
    producer, proxy = behind(schedule)
    producer.pin(out)
    saved = producer.saved()
    for step in range(0, 400, 100):
        assert feed(producer, out, step, step + 100) == [None] * 100
        saved = producer.saved()
    assert len(proxy.happened) > 5, "the experiment did something"
    assert saved.topics[out].partitions[0].last.next_sequence == 400
    assert stored(raw, out, 1).numbers() == list(range(400))
    again, _ = behind([], saved=saved)
    assert feed(again, out, 400, 420) == [None] * 20
    assert stored(raw, out, 1).numbers() == list(range(420))


# Not the time of sending, and ahead of it: the Kafka of these tests forgets who wrote old records within 200 ms.
COPY_MS = int(wall_s() * 1000) + 600_000


def beside_a_copy(
    behind: Callable[..., tuple[Producer, FaultProxy]],
    raw: RawConnection,
    out: str,
    values: list[bytes],
    write: Callable[[Producer, str], list[KafkaError | None]],
) -> tuple[Producer, list[KafkaError | None]]:
    """The first request is lost on its way, and meanwhile a copy with the same identity has filled its slots."""
    lost = Fault(kind=Kind.CUT, counter="produce requests", at=1, api="produce", direction=Direction.UP, part=0.5)
    producer, proxy = behind([lost])
    producer.pin(out)
    identity = producer.saved().topics[out].partitions[0].last.identity
    records = [Rec(value) for value in values]
    copy = batch(records, pid=identity.pid, epoch=identity.generation, sequence=0, timestamp_ms=COPY_MS)
    assert raw.produce(out, 0, copy).error_code == 0
    errors = write(producer, out)
    assert proxy.happened
    assert stored(raw, out, 1).total == 4
    return producer, errors


def feed_four(producer: Producer, topic: str) -> list[KafkaError | None]:
    return feed(producer, topic, 0, 4)


def produced_at(producer: Producer, topic: str, time_ms: int) -> None:
    for number in range(4):
        producer.produce(topic, b"%d" % number, partition=0, timestamp=time_ms)


def sent_at(producer: Producer, topic: str, time_ms: int) -> None:
    values = pa.array([b"%d" % number for number in range(4)])
    times = pa.array([time_ms] * 4, pa.timestamp("ms", "UTC"))
    rows = pa.table({"value": values, "timestamp": times, "partition": pa.array([0] * 4, pa.int32())})
    producer.send(topic, rows)


@pytest.mark.parametrize("write", [produced_at, sent_at])
def test_a_slot_in_doubt_that_holds_another_time_than_the_user_gave_stops_the_producer(
    behind: Callable[..., tuple[Producer, FaultProxy]],
    raw: RawConnection,
    out: str,
    write: Callable[[Producer, str, int], None],
) -> None:
    """Also where nobody is told what becomes of a record."""

    def written(producer: Producer, topic: str) -> list[KafkaError | None]:
        write(producer, topic, COPY_MS - 5)
        producer.flush(60)
        return []

    producer, _ = beside_a_copy(behind, raw, out, [b"%d" % number for number in range(4)], written)
    failure = producer.saving.failure
    assert failure is not None
    assert f"the timestamp is {COPY_MS - 5} where {COPY_MS} stands" in failure.str()


def test_a_slot_in_doubt_that_somebody_else_filled_otherwise_stops_the_producer(
    behind: Callable[..., tuple[Producer, FaultProxy]], raw: RawConnection, out: str
) -> None:
    """Kafka compares numbers only: another record in the slot is "success". What was in doubt is read back."""
    producer, errors = beside_a_copy(behind, raw, out, [b"not what the producer sends"] * 4, feed_four)
    assert all(error is not None and error.maybe_stored() for error in errors), errors
    failure = producer.saving.failure
    assert failure is not None
    assert f"{out}-0, sequence 0 of producer" in failure.str()
    assert "the value is b'0' where b'not what the producer sends' stands" in failure.str()


def test_a_slot_in_doubt_that_a_copy_filled_alike_is_delivered_whatever_its_own_clock_said(
    behind: Callable[..., tuple[Producer, FaultProxy]], raw: RawConnection, out: str
) -> None:
    producer, errors = beside_a_copy(behind, raw, out, [b"%d" % number for number in range(4)], feed_four)
    assert errors == [None] * 4
    assert feed(producer, out, 4, 8) == [None] * 4
    assert stored(raw, out, 1).numbers() == list(range(8))


@only_kafka
def test_old_records_in_doubt_are_looked_up_before_they_are_sent_again(
    behind: Callable[..., tuple[Producer, FaultProxy]], raw: RawConnection, out: str
) -> None:
    """The broker may have forgotten a producer of old records between two attempts: sent again, they would be there
    twice. The proxy holds the answers back for as long as that takes."""
    swallow = [
        Fault(kind=Kind.SWALLOW, counter="produce answers", at=at, api="produce", frames=1) for at in (1, 4, 7, 12)
    ]
    producer, proxy = behind(swallow)
    producer.pin(out)
    producer.saved()
    assert feed(producer, out, 0, 80, timestamp=int(wall_s() * 1000) - TWO_DAYS_MS) == [None] * 80
    assert [each.fault.kind for each in proxy.happened].count(Kind.SWALLOW) == len(swallow)
    assert stored(raw, out, 1).numbers() == list(range(80))
