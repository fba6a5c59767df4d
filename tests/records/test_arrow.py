"""Arrow data of columns and columns of Arrow data: the same rows, over the same memory."""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.records.arrow import HEADERS, SCHEMA, binary_array, bytes_column, headers_column, timestamps, to_arrow
from oncelog.records.build import NewRecord, build_batch
from oncelog.records.columns import decode, encode
from oncelog.records.header import stamp_append_time
from tests.records.samples import Row, new_records, rows_of, some_records


def rows_of_arrow(batch: pa.RecordBatch) -> list[Row]:
    return [
        Row(
            row["key"],
            row["value"],
            tuple((pair["key"].encode(), pair["value"]) for pair in row["headers"]),
            time,
            row["offset"],
        )
        for row, time in zip(batch.to_pylist(), batch["timestamp"].cast(pa.int64()).to_pylist(), strict=True)
    ]


def from_arrow(batch: pa.RecordBatch) -> bytes:
    batches = encode(
        key=bytes_column(batch["key"]), value=bytes_column(batch["value"]), headers=headers_column(batch["headers"]),
        timestamp_ms=timestamps(batch["timestamp"]), target_bytes=1 << 24,
    )  # fmt: skip
    return b"".join(bytes(batch.data) for batch in batches)


@given(new_records, st.integers(0, 10), st.integers(0, 10))
def test_rows_go_to_arrow_and_back(records: list[NewRecord], head: int, tail: int) -> None:
    batch = to_arrow(decode(build_batch(records)))
    batch.validate(full=True)
    assert batch.schema == SCHEMA
    rows = rows_of(records)
    assert rows_of_arrow(batch) == rows
    assert from_arrow(batch) == bytes(build_batch(records))
    part = batch.slice(head, max(0, len(rows) - head - tail))
    kept = records[head : max(head, len(rows) - tail)]
    assert from_arrow(part) == (bytes(build_batch(kept)) if kept else b"")


@given(new_records, st.integers(0, 10), st.integers(0, 10))
def test_a_part_of_a_column_has_its_rows(records: list[NewRecord], first: int, end: int) -> None:
    column = decode(build_batch(records)).key
    assert column is not None
    part = column[first:end]
    assert part.data is column.data
    assert list(part) == binary_array(part).to_pylist() == column.to_list()[first:end]


def test_no_byte_is_copied_on_the_way_to_arrow() -> None:
    columns = decode(build_batch(some_records(50)))
    batch = to_arrow(columns)
    assert columns.key is not None and columns.value is not None and columns.offset is not None
    for name, column in (("key", columns.key), ("value", columns.value)):
        _, ends, data = batch[name].buffers()
        assert (ends.address, data.address) == (column.ends.ctypes.data, column.data.ctypes.data)
    assert batch["offset"].buffers()[1].address == columns.offset.ctypes.data


def test_no_byte_is_copied_on_the_way_from_arrow() -> None:
    array = pa.array([b"a", b"bc", None, b"d"] * 5).slice(3, 9)
    column = bytes_column(array)
    assert column.data.ctypes.data == array.buffers()[2].address
    assert column.ends.ctypes.data == array.buffers()[1].address + 3 * 4
    assert column.to_list() == array.to_pylist()


def test_columns_that_were_not_decoded_are_not_there() -> None:
    batch = to_arrow(decode(build_batch(some_records(5)), columns={"value", "offset"}))
    assert batch.schema.names == ["value", "offset"]


def test_the_timestamp_type_is_that_of_the_batch() -> None:
    stamped = build_batch(some_records(2), base_offset=3)
    stamp_append_time(stamped, 0, 5)
    batch = to_arrow(decode(build_batch(some_records(3)) + stamped))
    assert batch["timestampType"].to_pylist() == [0, 0, 0, 1, 1]


def test_no_rows_make_an_empty_batch_of_the_same_schema() -> None:
    batch = to_arrow(decode(b""))
    batch.validate(full=True)
    assert (batch.num_rows, batch.schema) == (0, SCHEMA)


def test_a_header_name_that_is_no_text_is_mended_and_its_neighbours_are_not() -> None:
    records: list[NewRecord] = [(None, None, [("fine ü", b"1"), (b"\xff\xfe", b"\xff")], 1)]
    batch = to_arrow(decode(build_batch(records)))
    batch.validate(full=True)
    assert batch["headers"].to_pylist() == [
        [{"key": "fine ü", "value": b"1"}, {"key": "\ufffd\ufffd", "value": b"\xff"}]
    ]


CELLS = [b"a", None, b"", b"bcd", None]


@pytest.mark.parametrize(
    "make",
    [
        lambda: pa.array(CELLS, pa.binary()),
        lambda: pa.array(CELLS, pa.large_binary()),
        lambda: pa.array([cell and cell.decode() for cell in CELLS], pa.string()),
        lambda: pa.array([cell if cell is None else cell.decode() for cell in CELLS], pa.large_string()),
        lambda: pa.chunked_array([pa.array(CELLS[:2], pa.binary()), pa.array(CELLS[2:], pa.binary())]),
        lambda: pa.chunked_array([pa.array(CELLS, pa.binary())]),
        lambda: pa.array([b"x", *CELLS, b"x"]).slice(1, 5),
    ],
    ids=["binary", "large_binary", "string", "large_string", "two chunks", "one chunk", "a slice"],
)
def test_every_kind_of_bytes_in_arrow_is_a_column(make: Callable[[], pa.Array]) -> None:
    found = bytes_column(make()).to_list()
    assert found[1] is None and found[4] is None
    assert found == [CELLS[0], None, found[2], CELLS[3], None]
    assert not found[2]


def test_nulls_of_no_type_and_nothing_at_all_are_columns_too() -> None:
    assert bytes_column(pa.nulls(3)).to_list() == [None] * 3
    assert bytes_column(pa.array([], pa.binary())).to_list() == []
    assert bytes_column(pa.chunked_array([], pa.string())).to_list() == []
    assert headers_column(pa.array([], HEADERS)).to_list() == []


def test_other_types_are_refused_by_name() -> None:
    with pytest.raises(TypeError, match="int64"):
        bytes_column(pa.array([1, 2]))


def test_headers_may_be_null_sliced_and_of_many_chunks() -> None:
    rows = [None, [{"key": "a", "value": b"1"}, {"key": "b", "value": None}], [], [{"key": "c", "value": b""}]]
    expected = [[], [(b"a", b"1"), (b"b", None)], [], [(b"c", b"")]]
    array = pa.array(rows, HEADERS)
    assert headers_column(array).to_list() == expected
    assert headers_column(array.slice(1, 3)).to_list() == expected[1:]
    assert headers_column(pa.chunked_array([array.slice(0, 2), array.slice(2)])).to_list() == expected
    assert headers_column(array.cast(pa.large_list(HEADERS.value_type))).to_list() == expected
    [batch] = encode(headers=headers_column(array.slice(1, 3)), timestamp_ms=1)
    assert [list(row) for row in decode(batch.data).headers.to_list()] == expected[1:]  # type: ignore[union-attr]


def test_a_header_without_a_name_is_refused() -> None:
    loose = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
    with pytest.raises(ValueError, match="key"):
        headers_column(pa.array([[{"key": None, "value": b"1"}]], loose))


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_timestamps_of_every_unit_become_milliseconds(unit: str) -> None:
    factor = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}[unit]
    seconds = [1_700_000_000, 0, -5]
    array = pa.array([second * factor for second in seconds], pa.timestamp(unit, "Europe/Berlin"))
    assert timestamps(array).tolist() == [second * 1000 for second in seconds]


def test_plain_numbers_are_milliseconds_and_nulls_are_refused() -> None:
    assert timestamps(pa.array([1, 2], pa.int64())).tolist() == [1, 2]
    assert timestamps(pa.array([1, 2], pa.int64())).dtype == np.int64
    with pytest.raises(ValueError, match="null"):
        timestamps(pa.array([1, None], pa.int64()))
