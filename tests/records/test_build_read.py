"""The pure builder and reader, against each other and against those of kio and aiokafka."""

import datetime
import io
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st
from kio.records.schema import NewRecordBatch, RecordHeader
from kio.records.schema import Record as KioRecord
from kio.records.writers import write_batch
from kio.static.primitive import TZAwareMicros, i8, i16, i32, i64

from oncelog.records.build import NewRecord, build_batch
from oncelog.records.errors import InvalidRecord, TooLarge
from oncelog.records.header import CONTROL, check_produced, read_header
from oncelog.records.read import number, records_of
from oncelog.records.varint import SMALL, zigzag
from tests.records.samples import (
    TIMESTAMP_MS,
    Row,
    codecs,
    new_records,
    read_by_aiokafka,
    read_by_kio,
    rows_of,
    some_records,
)


def built_by_aiokafka(records: list[NewRecord], codec: int) -> bytes:
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=codec, is_transactional=0,
        producer_id=9, producer_epoch=2, base_sequence=5, batch_size=1 << 30,
    )  # fmt: skip
    for offset, (key, value, headers, timestamp) in enumerate(records):
        assert builder.append(offset, timestamp, key, value, list(headers))
    return bytes(builder.build())


def built_by_kio(records: list[NewRecord]) -> bytes:
    out = io.BytesIO()
    rows = rows_of(records)
    write_batch(out, NewRecordBatch(
        producer_id=i64(9), producer_epoch=i16(2), base_sequence=i32(5), attributes=i16(0),
        records=tuple(
            KioRecord(
                attributes=i8(0), timestamp=_moment(row.timestamp_ms), offset=i64(row.offset), key=row.key,
                value=row.value, headers=tuple(RecordHeader(key=name, value=cell) for name, cell in row.headers),
            )
            for row in rows
        ),
    ))  # fmt: skip
    return out.getvalue()


def _moment(timestamp_ms: int) -> TZAwareMicros:
    return TZAwareMicros.parse(datetime.datetime.fromtimestamp(timestamp_ms / 1000, datetime.UTC))


def built(records: list[NewRecord], codec: int = 0, **options: Any) -> bytes:
    numbers = {"producer_id": 9, "producer_epoch": 2, "base_sequence": 5}
    return bytes(build_batch(records, codec=codec, **{**numbers, **options}))


@given(new_records)
def test_our_bytes_are_those_of_aiokafka_and_of_kio(records: list[NewRecord]) -> None:
    ours = built(records)
    assert ours[21:] == built_by_aiokafka(records, 0)[21:]
    assert ours[21:] == built_by_kio(records)[21:]


@given(new_records, codecs, st.integers(0, 1 << 62))
def test_what_we_build_everyone_reads(records: list[NewRecord], codec: int, base_offset: int) -> None:
    batch = built(records, codec, base_offset=base_offset)
    rows = rows_of(records, base_offset)
    assert read_header(batch).record_count == len(records)
    assert [Row(*record) for record in records_of(batch)] == rows
    assert read_by_aiokafka(batch) == rows
    if codec == 0:
        assert read_by_kio(batch) == rows


@given(new_records, codecs)
def test_what_aiokafka_builds_we_read(records: list[NewRecord], codec: int) -> None:
    batch = built_by_aiokafka(records, codec)
    assert [Row(*record) for record in records_of(batch)] == rows_of(records)
    header = check_produced(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 2, 5)


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_a_number_comes_back_from_its_varint(value: int) -> None:
    encoded = zigzag(value)
    assert number(encoded, 0, len(encoded)) == (value, len(encoded))
    for cut in range(len(encoded)):
        with pytest.raises(InvalidRecord):
            number(encoded, 0, cut)


@pytest.mark.parametrize("encoded", [b"\x80" * 9 + b"\x02", b"\x80" * 10 + b"\x01", b"\xff" * 11])
def test_a_number_of_more_than_64_bits_is_refused(encoded: bytes) -> None:
    with pytest.raises(InvalidRecord):
        number(encoded, 0, len(encoded))


def test_the_table_of_small_varints_is_what_the_function_gives() -> None:
    assert SMALL[:-1] == [zigzag(value) for value in range(len(SMALL) - 1)]
    assert SMALL[-1] == zigzag(-1) == b"\x01"


@pytest.mark.parametrize("size", [0, 63, 64, 4095, 4096, 8191, 8192, 1 << 20])
def test_sizes_around_the_bounds_of_the_table_are_written_right(size: int) -> None:
    records: list[NewRecord] = [(b"k" * size, b"v" * size, [("n" * size, b"h" * size)], TIMESTAMP_MS)]
    assert [Row(*record) for record in records_of(built(records))] == rows_of(records)


def test_five_thousand_records_have_all_their_offsets() -> None:
    batch = built([(None, None, (), TIMESTAMP_MS)] * 5000, base_offset=10)
    assert [record.offset for record in records_of(batch)] == list(range(10, 5010))


def test_a_record_without_a_time_gets_the_one_of_the_batch() -> None:
    batch = build_batch([(b"a", None, (), None), (b"b", None, (), 7)], timestamp_ms=TIMESTAMP_MS)
    assert [record.timestamp_ms for record in records_of(batch)] == [TIMESTAMP_MS, 7]
    header = read_header(batch)
    assert (header.base_timestamp, header.max_timestamp) == (TIMESTAMP_MS, TIMESTAMP_MS)


def test_times_before_1970_keep_their_order() -> None:
    batch = build_batch([(None, None, (), -50), (None, None, (), -20), (None, None, (), -90)])
    header = read_header(batch)
    assert (header.base_timestamp, header.max_timestamp) == (-50, -20)
    assert [record.timestamp_ms for record in records_of(batch)] == [-50, -20, -90]


def test_records_that_were_read_can_be_built_again() -> None:
    batch = built(some_records(20))
    assert built(records_of(batch)) == batch  # type: ignore[arg-type]


def test_a_control_batch_is_marked_and_read() -> None:
    batch = build_batch([(b"\0\0\0\1", b"\0\0\0\0\0\0", (), 1)], is_control=True)
    assert read_header(batch).attributes == CONTROL
    assert records_of(batch)[0].key == b"\0\0\0\1"


def test_an_empty_batch_has_no_records() -> None:
    batch = build_batch([], producer_id=3, producer_epoch=0, base_sequence=9)
    assert records_of(batch) == []
    assert read_header(batch).record_count == 0


def test_records_beyond_the_limit_are_not_unfolded() -> None:
    batch = built([(None, bytes(1 << 20), (), 0)], 4)
    assert len(records_of(batch, limit_bytes=2 << 20)) == 1
    with pytest.raises(TooLarge):
        records_of(batch, limit_bytes=1 << 20)


def test_a_batch_is_read_where_it_lies_in_a_log() -> None:
    one, two = built(some_records(4)), built(some_records(6), 2, base_offset=4)
    log = memoryview(one + two + one[:70])
    assert [record.offset for record in records_of(log, len(one))] == [4, 5, 6, 7, 8, 9]
    for place in (-1, 1, len(one) + len(two), len(log)):
        with pytest.raises(InvalidRecord):
            records_of(log, place)
