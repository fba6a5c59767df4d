"""Columns against the pure builder and reader, both ways, and what a caller may ask for."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.records.build import NewRecord, build_batch
from oncelog.records.columns import ALL, BytesColumn, HeadersColumn, decode, encode
from oncelog.records.errors import BadBatch, InvalidRecord, TooLarge
from oncelog.records.header import CONTROL, check_produced, stamp_append_time, stamp_producer
from oncelog.records.read import records_of
from tests.records.samples import (
    CODECS,
    TIMESTAMP_MS,
    Row,
    bytes_column,
    codecs,
    columns_of,
    new_records,
    read_by_aiokafka,
    read_by_kio,
    rows_of,
    rows_of_columns,
    some_records,
)


def a_log(count: int = 60, a_batch: int = 7) -> tuple[bytes, list[Row]]:
    """Batches of every codec in turn."""
    records = some_records(count)
    parts = [
        bytes(build_batch(records[at : at + a_batch], codec=number % 5, base_offset=at))
        for number, at in enumerate(range(0, count, a_batch))
    ]
    return b"".join(parts), rows_of(records)


@given(st.lists(st.tuples(new_records, codecs), max_size=4))
def test_what_the_builder_built_the_loops_read(batches: list[tuple[list[NewRecord], int]]) -> None:
    log = b""
    rows: list[Row] = []
    for records, codec in batches:
        rows += rows_of(records, len(rows))
        log += bytes(build_batch(records, codec=codec, base_offset=len(rows) - len(records)))
    columns = decode(log)
    assert rows_of_columns(columns) == rows
    assert (columns.row_count, columns.next_offset, columns.consumed_bytes) == (len(rows), len(rows), len(log))


@given(new_records, codecs, st.integers(70, 5000), st.integers(0, (1 << 31) - 1))
def test_what_the_loops_build_everyone_reads(
    records: list[NewRecord], codec: int, target_bytes: int, base_sequence: int
) -> None:
    batches = encode(
        **columns_of(records), codec=codec, target_bytes=target_bytes,
        producer_id=4, producer_epoch=1, base_sequence=base_sequence,
    )  # fmt: skip
    rows: list[Row] = []
    for batch in batches:
        header = check_produced(batch.data)
        assert (batch.first_row, batch.record_count) == (len(rows), header.record_count)
        assert header.base_sequence == (base_sequence + len(rows)) % (1 << 31)
        assert header.base_offset == 0
        assert codec or len(batch.data) <= target_bytes or header.record_count == 1
        found = [Row(*record) for record in records_of(batch.data)]
        assert found == read_by_aiokafka(bytes(batch.data))
        assert codec or found == read_by_kio(bytes(batch.data))
        rows += [row._replace(offset=len(rows) + row.offset) for row in found]
    assert rows == rows_of(records)


@given(new_records, codecs)
def test_one_batch_of_the_loops_is_the_builders_batch(records: list[NewRecord], codec: int) -> None:
    [batch] = encode(**columns_of(records), codec=codec, target_bytes=1 << 24)
    assert bytes(batch.data) == bytes(build_batch(records, codec=codec))


@given(new_records, st.data(), codecs)
def test_rows_of_several_parts_are_encoded_as_if_each_part_were_a_table(
    records: list[NewRecord], data: st.DataObject, codec: int
) -> None:
    parts = data.draw(st.lists(st.integers(-1, 3), min_size=len(records), max_size=len(records)))
    batches = encode(
        **columns_of(records), parts=np.array(parts, np.int32), part_count=5, target_bytes=600, codec=codec
    )
    for part in range(5):
        mine = [record for record, its in zip(records, parts, strict=True) if its == part]
        alone = encode(**columns_of(mine), target_bytes=600, codec=codec)
        together = [each for each in batches if each.part == part]
        assert [bytes(each.data) for each in together] == [bytes(each.data) for each in alone]
        assert [each[1:3] for each in together] == [each[1:3] for each in alone]
        assert [each.plain_bytes for each in together] == [each.plain_bytes for each in alone]


def test_parts_that_are_not_there_are_refused() -> None:
    rows = columns_of(some_records(3))
    for parts in ([0, 2, 1], [0, -2, 1]):
        with pytest.raises(ValueError, match=r"part that is not there \(row 1\)"):
            encode(**rows, parts=np.array(parts, np.int32), part_count=2)
    with pytest.raises(ValueError, match="2 parts for 3 rows"):
        encode(**rows, parts=np.zeros(2, np.int32), part_count=2)


def test_from_every_offset_and_up_to_every_offset() -> None:
    log, rows = a_log()
    for start in range(len(rows) + 2):
        assert rows_of_columns(decode(log, start_offset=start)) == rows[start:]
        part = decode(log, start_offset=5, end_offset=start)
        assert rows_of_columns(part) == rows[5:start]
        assert part.next_offset == min(max(start, 5), len(rows))


@pytest.mark.parametrize("named", [*sorted(ALL), "key offset", "", " ".join(sorted(ALL))])
def test_only_the_columns_asked_for_are_made(named: str) -> None:
    wanted = set(named.split())
    log, rows = a_log()
    columns = decode(log, columns=wanted)
    made = {
        "key": columns.key and columns.key.to_list(),
        "value": columns.value and columns.value.to_list(),
        "headers": columns.headers and [tuple(pairs) for pairs in columns.headers.to_list()],
        "timestamp": None if columns.timestamp_ms is None else columns.timestamp_ms.tolist(),
        "offset": None if columns.offset is None else columns.offset.tolist(),
    }
    everything = {
        "key": [row.key for row in rows],
        "value": [row.value for row in rows],
        "headers": [row.headers for row in rows],
        "timestamp": [row.timestamp_ms for row in rows],
        "offset": [row.offset for row in rows],
    }
    assert made == {name: column if name in wanted else None for name, column in everything.items()}
    assert columns.row_count == len(rows)


def test_an_unknown_column_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="topic"):
        decode(b"", columns={"key", "topic"})


def test_what_one_call_unfolds_is_bounded_and_the_next_call_goes_on() -> None:
    value = bytes(10_000)
    log = b"".join(
        bytes(build_batch([(None, value, (), TIMESTAMP_MS)], codec=number % 5, base_offset=number))
        for number in range(20)
    )
    offsets: list[int] = []
    rest, start, calls = log, 0, 0
    while rest:
        columns = decode(rest, start_offset=start, limit_bytes=35_000)
        assert columns.offset is not None and 0 < columns.row_count <= 3
        offsets += columns.offset.tolist()
        rest, start, calls = rest[columns.consumed_bytes :], columns.next_offset, calls + 1
    assert offsets == list(range(20))
    assert calls == 7
    with pytest.raises(TooLarge):
        decode(log, limit_bytes=9_000)


def test_append_time_is_the_time_of_every_row_of_its_batch() -> None:
    one, two = build_batch(some_records(3)), build_batch(some_records(2), codec=4, base_offset=3)
    stamp_append_time(two, 0, TIMESTAMP_MS + 77)
    columns = decode(one + two)
    assert columns.timestamp_ms is not None
    assert columns.timestamp_ms.tolist()[3:] == [TIMESTAMP_MS + 77] * 2
    assert columns.timestamp_type().tolist() == [0, 0, 0, 1, 1]


def test_a_row_leads_to_its_producer() -> None:
    one = build_batch(some_records(3), producer_id=8, producer_epoch=1, base_sequence=40)
    two = build_batch(some_records(2), base_offset=3, producer_id=9, producer_epoch=2, base_sequence=0)
    columns = decode(one + two, start_offset=2)
    counts = columns.batches.row_counts(columns.row_count)
    assert counts.tolist() == [1, 2]
    assert np.repeat(columns.batches.producer_id, counts).tolist() == [8, 9, 9]
    assert columns.batches.base_sequence.tolist() == [40, 0]


def test_control_batches_are_passed_over() -> None:
    data = build_batch(some_records(2))
    control = build_batch([(b"\0\0\0\1", bytes(6), (), 1)], is_control=True, base_offset=2)
    columns = decode(data + control)
    assert (columns.row_count, columns.next_offset, len(columns.batches)) == (2, 3, 1)
    alone = decode(control, start_offset=2)
    assert (alone.row_count, alone.next_offset, alone.consumed_bytes) == (0, 3, len(control))


def test_damage_that_makes_a_batch_look_like_a_control_batch_is_refused_too() -> None:
    batch = build_batch([(None, b"value", (), 1)])
    batch[22] |= CONTROL
    with pytest.raises(InvalidRecord, match="CRC"):
        decode(batch)


def test_a_wrong_crc_is_refused_unless_the_caller_trusts_the_bytes() -> None:
    batch = bytearray(build_batch(some_records(3)))
    batch[17] ^= 1
    with pytest.raises(InvalidRecord, match="CRC"):
        decode(batch)
    assert decode(batch, check_crc=False).row_count == 3


def test_nothing_fetched_is_no_rows() -> None:
    for data in (b"", bytes(build_batch(some_records(2)))[:-1]):
        columns = decode(data, start_offset=9)
        assert (columns.row_count, columns.next_offset, columns.consumed_bytes) == (0, 9, 0)
        assert rows_of_columns(columns) == []


def test_offsets_go_on_from_batch_to_batch_where_a_first_one_is_given() -> None:
    values = bytes_column([b"12345"] * 20)  # 12 bytes a record
    for base_offset, expected in ((None, [0, 0]), (700, [700, 710])):
        halves = encode(value=values, timestamp_ms=1, target_bytes=61 + 10 * 12, base_offset=base_offset)
        assert [records_of(batch.data)[0].offset for batch in halves] == expected


def test_sequences_wrap_from_batch_to_batch() -> None:
    last = (1 << 31) - 1
    values = bytes_column([b"12345"] * 20)
    batches = encode(
        value=values, timestamp_ms=1, target_bytes=61 + 10 * 12, producer_id=1, producer_epoch=0, base_sequence=last - 9
    )
    assert [check_produced(batch.data).base_sequence for batch in batches] == [last - 9, 0]


def test_no_rows_are_no_batches() -> None:
    assert encode(**columns_of([])) == []
    assert encode(**columns_of(some_records(3)), parts=np.full(3, -1, np.int32)) == []


def test_a_column_left_out_is_null_in_every_record() -> None:
    [batch] = encode(value=bytes_column([b"a", b"b"]), timestamp_ms=TIMESTAMP_MS)
    assert [Row(*record) for record in records_of(batch.data)] == [
        Row(None, b"a", (), TIMESTAMP_MS, 0),
        Row(None, b"b", (), TIMESTAMP_MS, 1),
    ]


def test_wide_ends_are_taken_as_well() -> None:
    arguments = columns_of(some_records(30))
    wide = {
        name: BytesColumn(column.ends.astype(np.int64), column.data, column.valid)
        for name, column in arguments.items()
        if isinstance(column, BytesColumn)
    }
    assert _bytes_of(encode(**{**arguments, **wide})) == _bytes_of(encode(**arguments))


def _bytes_of(batches: list[Any]) -> list[bytes]:
    return [bytes(batch.data) for batch in batches]


WRONG_COLUMNS: dict[str, dict[str, Any]] = {
    "of two lengths": {"key": bytes_column([b"a"]), "value": bytes_column([b"a", b"b"])},
    "no column": {},
    "ends that shrink": {"value": BytesColumn(np.array([0, 5, 3], np.int32), np.zeros(9, np.uint8))},
    "ends that shrink at a null": {
        "value": BytesColumn(np.array([0, 9, 0, 9], np.int32), np.zeros(9, np.uint8), np.array([True, False, True]))
    },
    "ends beyond the data": {"value": BytesColumn(np.array([0, 5, 10], np.int32), np.zeros(9, np.uint8))},
    "a negative end": {"value": BytesColumn(np.array([-1, 5], np.int32), np.zeros(9, np.uint8))},
    "validity too short": {
        "value": BytesColumn(np.array([0, 1, 2], np.int32), np.zeros(9, np.uint8), np.array([True]))
    },
    "ends whose differences are more than 32 bits": {
        "value": BytesColumn(np.array([0, (1 << 31) - 1, -(1 << 31), 0], np.int32), np.zeros(9, np.uint8))
    },
    "lists whose differences are more than 32 bits": {
        "headers": HeadersColumn(
            np.array([0, (1 << 31) - 1, -(1 << 31), 0], np.int32), bytes_column([b"n"]), bytes_column([b"v"])
        )
    },
    "headers beyond the names": {
        "headers": HeadersColumn(np.array([0, 2], np.int32), bytes_column([b"n"]), bytes_column([b"v", b"w"]))
    },
    "headers beyond the values": {
        "headers": HeadersColumn(np.array([0, 2], np.int32), bytes_column([b"n", b"m"]), bytes_column([b"v"]))
    },
    "lists that shrink": {
        "headers": HeadersColumn(np.array([1, 0], np.int32), bytes_column([b"n"]), bytes_column([b"v"]))
    },
    "times too far apart": {
        "value": bytes_column([b"a", b"b"]), "timestamp_ms": np.array([-(1 << 63), (1 << 63) - 1], np.int64)
    },
}  # fmt: skip


@pytest.mark.parametrize("arguments", WRONG_COLUMNS.values(), ids=WRONG_COLUMNS)
def test_columns_that_contradict_themselves_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        encode(**{"timestamp_ms": TIMESTAMP_MS, **arguments})


@pytest.mark.parametrize("codec", CODECS)
def test_a_record_longer_than_the_target_is_a_batch_by_itself(codec: int) -> None:
    cells: list[bytes | None] = [b"a", b"b" * 5000, b"c", b"d"]
    batches = encode(value=bytes_column(cells), timestamp_ms=1, target_bytes=500, codec=codec)
    assert [batch.record_count for batch in batches] == [1, 1, 2]


def test_a_batch_that_is_stamped_later_has_its_crc_from_then_on() -> None:
    value = bytes_column([b"a", None, b"c" * 300])
    whole, bare = (encode(value=value, timestamp_ms=5, is_stamped_later=later)[0].data for later in (False, True))
    with pytest.raises(BadBatch, match="CRC"):
        check_produced(bare)
    for data in (whole, bare):
        stamp_producer(data, 0, 7, 1, 40)
    check_produced(bare)
    assert bytes(bare) == bytes(whole)
