"""Snapshots: what they keep, and that nothing but a whole one of this version is read."""

import pytest
from crc32c import crc32c

from oncelog.clock import DAY_MS, HOUR_MS, Now
from oncelog.producers import FIRST_KAFKA_PID, CorruptSnapshot, Decision, ProducerMap
from tests.producers.partition import Answer, Partition

HEAD_BYTES = 44
PID, KAFKA_PID = 3, FIRST_KAFKA_PID + 5


def sample() -> Partition:
    partition = Partition()
    for n in range(7):
        partition.send(PID, 9, 2 * n, "a", "b")
        partition.send(KAFKA_PID, 2, 3 * n, "a", "b", "c")
    partition.fence(4, 17)
    return partition


def test_what_is_restored_answers_as_before() -> None:
    partition = sample()
    now = partition.clock.now()
    before = list(partition.map.live(now))
    data = partition.map.encode(now)
    partition.map = ProducerMap()
    partition.map.decode(data, now)
    assert list(partition.map.live(now)) == before
    assert partition.map.encode(now) == data
    assert partition.send(PID, 9, 4, "a", "b") == Answer(Decision.DUPLICATE, 10)
    assert partition.send(KAFKA_PID, 2, 18, "a", "b", "c") == Answer(Decision.DUPLICATE, 32)
    assert partition.send(KAFKA_PID, 2, 0, "a").decision is Decision.DUPLICATE_FORGOTTEN
    assert partition.send(4, 16, 0, "zombie").decision is Decision.FENCED


def test_it_takes_the_place_of_everything_that_was_there() -> None:
    other = Partition()
    other.send(77, 0, 0, "a")
    empty = ProducerMap().encode(other.clock.now())
    other.map.decode(empty, other.clock.now())
    assert other.map.highwater(77) is None


def test_the_life_that_has_passed_is_kept_and_time_that_nobody_saw_does_not_count() -> None:
    partition = sample()
    then = partition.clock.advance(47 * HOUR_MS)
    partition.send(KAFKA_PID, 2, 21, "a")
    data = partition.map.encode(then)
    restored = ProducerMap()
    after_the_boot = Now(then.wall_ms + 10 * DAY_MS, 5)  # a monotonic clock starts anew with the machine
    restored.decode(data, after_the_boot)
    restored.expire(Now(after_the_boot.wall_ms, 5 + HOUR_MS - 1))
    assert restored.highwater(PID) == (9, 13)
    restored.expire(Now(after_the_boot.wall_ms, 5 + HOUR_MS))
    assert restored.highwater(PID) is None, "47 hours before and one after are two lifetimes"
    assert restored.highwater(KAFKA_PID) == (2, 21), "a Kafka pid counts from its last batch"


def test_every_flipped_bit_is_found() -> None:
    partition = sample()
    data = partition.map.encode(partition.clock.now())
    for position in range(len(data)):
        for bit in range(8):
            torn = bytearray(data)
            torn[position] ^= 1 << bit
            with pytest.raises(CorruptSnapshot):
                ProducerMap().decode(bytes(torn), partition.clock.now())


def test_every_truncation_and_anything_behind_the_end_is_found() -> None:
    partition = sample()
    data = partition.map.encode(partition.clock.now())
    for size in range(len(data)):
        with pytest.raises(CorruptSnapshot):
            ProducerMap().decode(data[:size], partition.clock.now())
    with pytest.raises(CorruptSnapshot):
        ProducerMap().decode(data + b"\0", partition.clock.now())


@pytest.mark.parametrize(
    ("position", "value"),
    [
        (0, b"OLPX"),
        (4, b"\x00\x01"),
        (16, b"\x00\x00\x00\x09"),
        (28, b"\xff\xff\xff\xff"),
        (HEAD_BYTES + 16, b"\x00\x00\x00\x00\x00\x00\x00\x00"),
        (HEAD_BYTES + 16, b"\x00\x00\x00\x00\x00\x00\x00\x99"),
    ],
    ids=["magic", "version", "leases", "kafka-rows", "a row twice", "no such row"],
)
def test_a_head_that_is_wrong_under_a_right_crc_is_refused(position: int, value: bytes) -> None:
    partition = sample()
    body = bytearray(partition.map.encode(partition.clock.now())[:-4])
    body[position : position + len(value)] = value
    with pytest.raises(CorruptSnapshot):
        ProducerMap().decode(bytes(body) + crc32c(body).to_bytes(4, "big"), partition.clock.now())


def test_every_truncation_under_a_right_crc_is_refused() -> None:
    partition = sample()
    body = partition.map.encode(partition.clock.now(), blind=True)[:-4]
    for size_bytes in range(len(body)):
        cut = body[:size_bytes]
        with pytest.raises(CorruptSnapshot):
            partition.map.decode(cut + crc32c(cut).to_bytes(4, "big"), partition.clock.now())
    assert partition.map.highwater(PID) == (9, 13)


def test_one_of_the_version_before_is_read_too() -> None:
    partition = sample()
    body = bytearray(partition.map.encode(partition.clock.now())[:-4])
    before = list(partition.map.live(partition.clock.now()))
    del body[32:44]
    body[4:6] = b"\x00\x02"
    partition.map = ProducerMap()
    partition.map.decode(bytes(body) + crc32c(body).to_bytes(4, "big"), partition.clock.now())
    assert list(partition.map.live(partition.clock.now())) == before


def test_a_refused_snapshot_leaves_the_map_as_it_was() -> None:
    partition = sample()
    with pytest.raises(CorruptSnapshot):
        partition.map.decode(b"not a snapshot at all", partition.clock.now())
    assert partition.map.highwater(PID) == (9, 13)


def test_rows_that_nobody_has_any_more_do_not_fill_snapshots_for_ever() -> None:
    partition = Partition()
    for pid in range(FIRST_KAFKA_PID, FIRST_KAFKA_PID + 500):
        partition.send(pid, 0, 0, "a")
    full = len(partition.map.encode(partition.clock.now()))
    partition.clock.advance(23 * HOUR_MS)
    partition.send(KAFKA_PID, 0, 1, "b")
    now = partition.clock.advance(2 * HOUR_MS)
    before = list(partition.map.live(now))
    data = partition.map.encode(now)
    assert len(data) * 100 < full
    partition.map = ProducerMap()
    partition.map.decode(data, now)
    assert list(partition.map.live(now)) == before
    assert partition.send(KAFKA_PID, 0, 0, "a").decision is Decision.DUPLICATE
    assert partition.send(KAFKA_PID + 1, 0, 0, "new").decision is Decision.APPEND
    assert partition.send(KAFKA_PID, 0, 2, "c").decision is Decision.APPEND
