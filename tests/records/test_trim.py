"""Dropping the first records, and keeping chosen ones."""

import pytest

from oncelog.records.build import build_batch
from oncelog.records.errors import InvalidRecord, TooLarge
from oncelog.records.header import (
    HEADER,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    LOG_APPEND_TIME,
    read_header,
    restamp_crc,
    stamp_append_time,
)
from oncelog.records.read import records_of
from oncelog.records.trim import retain, trim
from oncelog.records.varint import zigzag
from tests.records.samples import CODECS, TIMESTAMP_MS, some_records, with_true_crc

COUNT = 12


def a_batch(codec: int = 0, base_sequence: int = 100) -> bytearray:
    return build_batch(
        some_records(COUNT), codec=codec, base_offset=1000, producer_id=5, producer_epoch=3, base_sequence=base_sequence
    )


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("drop", range(COUNT))
def test_the_first_records_are_gone_and_the_rest_is_what_it_was(codec: int, drop: int) -> None:
    batch = a_batch(codec)
    trimmed = trim(batch, drop)
    header = read_header(trimmed)
    assert records_of(trimmed) == records_of(batch)[drop:]
    assert (header.base_offset, header.base_sequence) == (1000 + drop, 100 + drop)
    assert (header.record_count, header.last_offset) == (COUNT - drop, 1000 + COUNT - 1)
    assert (header.codec, header.producer_id, header.producer_epoch) == (codec, 5, 3)
    times = [record.timestamp_ms for record in records_of(batch)[drop:]]
    assert (header.base_timestamp, header.max_timestamp) == (times[0], max(times))


def test_nothing_dropped_is_the_same_bytes() -> None:
    assert trim(a_batch(), 0) == a_batch()


def test_the_trimmed_batch_is_what_a_producer_would_have_built() -> None:
    rest = build_batch(some_records(COUNT)[5:], base_offset=1005, producer_id=5, producer_epoch=3, base_sequence=105)
    assert trim(a_batch(), 5) == rest


def test_the_sequence_wraps_behind_its_last_number() -> None:
    last = (1 << 31) - 1
    assert read_header(trim(a_batch(base_sequence=last - 2), 2)).base_sequence == last
    assert read_header(trim(a_batch(base_sequence=last - 2), 3)).base_sequence == 0
    assert read_header(trim(a_batch(base_sequence=last - 2), 4)).base_sequence == 1


def test_a_batch_without_a_producer_stays_without() -> None:
    header = read_header(trim(build_batch(some_records(3)), 2))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)


def test_append_time_stays() -> None:
    batch = a_batch()
    stamp_append_time(batch, 0, TIMESTAMP_MS + 5)
    header = read_header(trim(batch, 4))
    assert header.attributes & LOG_APPEND_TIME
    assert header.max_timestamp == TIMESTAMP_MS + 5


@pytest.mark.parametrize("drop", [-1, COUNT, COUNT + 1])
def test_a_batch_is_never_trimmed_to_nothing(drop: int) -> None:
    with pytest.raises(ValueError, match="cannot drop"):
        trim(a_batch(), drop)


def test_records_that_are_not_sound_are_not_cut() -> None:
    broken = a_batch()
    broken[61] ^= 0xFF
    with pytest.raises(InvalidRecord):
        trim(broken, 1)
    with pytest.raises(InvalidRecord):
        trim(with_true_crc(broken), 1)
    too_many_headers = a_batch()
    too_many_headers[-1] ^= 0x0F
    with pytest.raises(InvalidRecord):
        trim(with_true_crc(too_many_headers), 1)
    with pytest.raises(InvalidRecord):
        retain(too_many_headers, [True] * COUNT)


@pytest.mark.parametrize("codec", CODECS)
def test_compaction_keeps_chosen_records_and_every_number_of_the_batch(codec: int) -> None:
    batch = a_batch(codec)
    keep = [number % 3 == 1 for number in range(COUNT)]
    thinned = retain(b"before" + batch, keep, 6)
    assert records_of(thinned) == records_of(batch)[1::3]
    before, after = read_header(batch), read_header(thinned)
    times = [record.timestamp_ms for record in records_of(thinned)]
    expected = before._replace(
        batch_length=after.batch_length, crc=after.crc, record_count=len(times), max_timestamp=max(times)
    )
    assert after == expected
    again = retain(thinned, [True] * len(times))
    assert again == thinned


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_of_which_nothing_is_kept_is_a_header_that_still_names_its_producer(codec: int) -> None:
    batch = a_batch(codec)
    bare = retain(batch, [False] * COUNT)
    header = read_header(bare)
    assert (header.size_bytes, len(bare), header.record_count) == (61, 61, 0)
    assert (header.producer_id, header.base_sequence, header.last_offset) == (5, 100, 1000 + COUNT - 1)
    assert header.max_timestamp == read_header(batch).max_timestamp
    assert header.codec == 0
    assert records_of(bare) == []


def test_one_answer_for_each_record_is_needed() -> None:
    with pytest.raises(ValueError, match="argument"):
        retain(a_batch(), [True] * (COUNT - 1))


@pytest.mark.parametrize("codec", [1, 3, 4])
def test_a_batch_that_unfolds_to_far_more_than_it_is_is_refused_before_it_takes_the_memory(codec: int) -> None:
    bomb = build_batch([(None, bytes(33 << 20), (), TIMESTAMP_MS), (None, b"", (), TIMESTAMP_MS)], codec=codec)
    many = with_true_crc(a_batch(codec=4))
    HEADER.pack_into(many, 0, *read_header(many)._replace(record_count=2**21, last_offset_delta=2**21 - 1))
    restamp_crc(many, 0, len(many))
    for each in (bomb, many):
        with pytest.raises(TooLarge):
            trim(each, 1)
        with pytest.raises(TooLarge):
            records_of(each)


def test_what_was_allowed_in_uncompressed_may_be_cut() -> None:
    large = build_batch([(None, bytes(20 << 20), (), TIMESTAMP_MS)] * 2)
    assert read_header(trim(large, 1)).record_count == 1


def test_timestamps_too_far_apart_for_a_delta_are_refused() -> None:
    batch = build_batch([(None, b"", (), 0), (None, b"", (), 0)])
    body = b"".join(
        zigzag(len(record)) + record
        for record in (
            b"\0" + zigzag(-(2**62)) + zigzag(0) + b"\1\1\0",
            b"\0" + zigzag(2**63 - 1) + zigzag(1) + b"\1\1\0",
        )
    )
    far = batch[:HEADER_BYTES] + body
    HEADER.pack_into(far, 0, *read_header(far)._replace(batch_length=len(far) - LENGTH_PREFIX_BYTES))
    restamp_crc(far, 0, len(far))
    with pytest.raises(InvalidRecord, match="64 bits"):
        trim(far, 0)
