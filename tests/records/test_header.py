"""What a broker checks of a produced batch, held against the answers of a real Kafka; and stamping in place."""

import json
from typing import Any

import pytest

from oncelog.records.build import build_batch
from oncelog.records.codecs import compress
from oncelog.records.errors import BadBatch, BadBatchKind
from oncelog.records.header import check_produced, headers, read_header, stamp, stamp_append_time, stamp_producer
from oncelog.records.read import records_of
from tests.records.samples import GOLDEN, TIMESTAMP_MS, some_records, with_true_crc

ANSWERED: list[dict[str, Any]] = json.loads((GOLDEN / "refused.json").read_text())

KAFKA_ERRORS = {
    BadBatchKind.CORRUPT: "CORRUPT_MESSAGE",
    BadBatchKind.INVALID: "INVALID_RECORD",
    BadBatchKind.OLD_FORMAT: "INVALID_RECORD",
    BadBatchKind.UNKNOWN_CODEC: "UNSUPPORTED_COMPRESSION_TYPE",
    BadBatchKind.TIMESTAMP_TYPE: "INVALID_TIMESTAMP",
    BadBatchKind.TRANSACTIONAL: "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
}

# What Kafka lets pass, mends or stumbles over, and oncelog refuses. None of it is sent by any known client.
STRICTER = {
    "a batch and one byte": BadBatchKind.INVALID,  # Kafka cuts the rest off
    "a batch and half a batch": BadBatchKind.INVALID,
    "length of 2 GiB": BadBatchKind.INVALID,  # overflows in Kafka: UNKNOWN_SERVER_ERROR
    "codec 5": BadBatchKind.UNKNOWN_CODEC,  # UNKNOWN_SERVER_ERROR
    "codec 7": BadBatchKind.UNKNOWN_CODEC,
    "log append time": BadBatchKind.TIMESTAMP_TYPE,  # Kafka takes the mark away
    "a negative epoch": BadBatchKind.INVALID,
    "pid -2": BadBatchKind.INVALID,
}


def verdict(batch: bytes | bytearray | memoryview) -> BadBatchKind | None:
    try:
        check_produced(batch)
    except BadBatch as bad:
        assert bad.message == str(bad)
        return bad.kind
    return None


@pytest.mark.parametrize("answer", ANSWERED, ids=[answer["case"] for answer in ANSWERED])
def test_a_batch_is_refused_with_the_error_that_kafka_gives(answer: dict[str, Any]) -> None:
    kind = verdict(bytes.fromhex(answer["batch"]))
    if answer["case"] in STRICTER:
        assert kind is STRICTER[answer["case"]]
    else:
        assert ("NONE" if kind is None else KAFKA_ERRORS[kind]) == answer["error"]


def test_every_difference_to_kafka_is_one_still() -> None:
    answers = {answer["case"]: answer["error"] for answer in ANSWERED}
    for case, kind in STRICTER.items():
        assert answers[case] != KAFKA_ERRORS[kind], case


@pytest.mark.parametrize("codec", range(5))
def test_a_sound_batch_passes_from_any_slice_of_any_buffer(codec: int) -> None:
    batch = bytes(build_batch(some_records(50), codec=codec, producer_id=7, producer_epoch=0, base_sequence=3))
    framed = b"xyz" + batch + b"xyz"
    slices = (batch, bytearray(batch), memoryview(framed)[3:-3], memoryview(bytearray(framed))[3:-3])
    for buffer in slices:
        header = check_produced(buffer)
        assert header == read_header(batch)
        assert (header.record_count, header.codec, header.producer_id, header.base_sequence) == (50, codec, 7, 3)
        assert header.size_bytes == len(batch)


def test_every_flipped_bit_under_the_crc_is_refused_and_every_truncation() -> None:
    batch = bytes(build_batch(some_records(8), producer_id=7, producer_epoch=0, base_sequence=3))
    for place in range(len(batch)):
        for bit in range(8):
            flipped = bytearray(batch)
            flipped[place] ^= 1 << bit
            is_leader_epoch = 12 <= place < 16
            assert (verdict(flipped) is None) == is_leader_epoch, (place, bit)
    for size in range(len(batch)):
        assert verdict(batch[:size]) is not None


@pytest.mark.parametrize("codec", range(5))
def test_a_record_count_that_cannot_fit_is_refused_unread(codec: int) -> None:
    batch = build_batch(some_records(1), codec=codec)
    for count in (2, 1 << 20, 1 << 30, (1 << 31) - 1):
        lie = bytearray(batch)
        lie[23:27] = (count - 1).to_bytes(4, "big")
        lie[57:61] = count.to_bytes(4, "big")
        expected = None if count == 2 and codec else BadBatchKind.INVALID
        assert verdict(with_true_crc(lie)) is expected, count


@pytest.mark.parametrize("codec", range(5))
def test_the_most_foldable_bytes_are_not_taken_for_a_lie(codec: int) -> None:
    """No codec folds anything better than zeros; what is in them does not matter before they are unfolded."""
    count = 1 << 20
    batch = build_batch([]) + compress(codec, bytes(count * 7))
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[21:23] = codec.to_bytes(2, "big")
    batch[23:27] = (count - 1).to_bytes(4, "big")
    batch[57:61] = count.to_bytes(4, "big")
    assert verdict(with_true_crc(batch)) is None


def test_a_stamp_changes_base_offset_and_leader_epoch_and_leaves_the_crc_true() -> None:
    batch = build_batch(some_records(3))
    before = read_header(batch)
    stamp(batch, 0, 1 << 40, 17)
    assert read_header(batch) == before._replace(base_offset=1 << 40, leader_epoch=17)
    assert [record.offset - (1 << 40) for record in records_of(batch)] == [0, 1, 2]


@pytest.mark.parametrize("codec", range(5))
def test_append_time_becomes_the_timestamp_of_every_record(codec: int) -> None:
    first, second = build_batch(some_records(2)), build_batch(some_records(5), codec=codec)
    log = first + second
    stamp_append_time(log, len(first), TIMESTAMP_MS + 99)
    assert log[: len(first)] == first
    assert {record.timestamp_ms for record in records_of(log, len(first))} == {TIMESTAMP_MS + 99}
    assert read_header(log, len(first)).codec == codec


def test_headers_leaves_a_partial_batch_at_the_end_out() -> None:
    one, two = build_batch(some_records(2)), build_batch(some_records(3), base_offset=2)
    for cut in range(len(two)):
        found = list(headers(one + two[:cut]))
        assert found == [(0, read_header(one))]
    assert [at for at, _ in headers(one + two)] == [0, len(one)]


def test_a_producers_stamp_changes_its_three_fields_and_the_crc_alone() -> None:
    """Written over what build_batch makes without a producer, it gives what build_batch makes with one."""
    records = [(b"key", b"value", (), 1_000), (None, b"x" * 5_000, (), 3_000)]
    batch = build_batch(records, codec=3)
    assert stamp_producer(batch, 0, 2**40, 32_767, 2**31 - 1) == 3_000
    assert batch == build_batch(records, codec=3, producer_id=2**40, producer_epoch=32_767, base_sequence=2**31 - 1)
    assert check_produced(batch).producer_id == 2**40
