"""What the tests of this room share: records drawn at random, and readers that are not ours."""

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from aiokafka.record.default_records import DefaultRecordBatch
from crc32c import crc32c
from hypothesis import strategies as st
from kio.records.readers import read_batch

from oncelog.records.build import NewRecord
from oncelog.records.columns import BytesColumn, Columns, HeadersColumn
from oncelog.records.header import headers

ROOT = Path(__file__).parents[2]
GOLDEN = Path(__file__).parent / "golden"
CODECS = range(5)
TIMESTAMP_MS = 1_700_000_000_000


class Row(NamedTuple):
    """A record as every reader here gives it."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...]
    timestamp_ms: int
    offset: int


_cell = st.none() | st.binary(max_size=300)
_headers = st.lists(st.tuples(st.text(max_size=70), _cell), max_size=4)
# Whole seconds, because kio's reader drops the rest.
_second = st.integers(min_value=-(10**9), max_value=10**9).map(lambda delta: TIMESTAMP_MS + 1000 * delta)
new_records: st.SearchStrategy[list[NewRecord]] = st.lists(
    st.tuples(_cell, _cell, _headers, _second), min_size=1, max_size=40
)
codecs = st.sampled_from(list(CODECS))


def some_records(count: int) -> list[NewRecord]:
    """Nulls, empty bytes, headers, sizes of one to three varint bytes, timestamps that go back."""
    return [
        (
            None if i % 3 == 0 else b"key-%d" % i,
            None if i % 5 == 4 else b"v" * (i * i * 7 % 9000),
            [("name", b"1"), ("ümlaut", None), ("", b"")][: i % 4],
            TIMESTAMP_MS + (i * 37) % 50 - 10,
        )
        for i in range(count)
    ]


def rows_of(records: Sequence[NewRecord], base_offset: int = 0) -> list[Row]:
    return [
        Row(key, value, tuple((_bytes(name), cell) for name, cell in pairs), time or 0, base_offset + i)
        for i, (key, value, pairs, time) in enumerate(records)
    ]


def _bytes(name: str | bytes) -> bytes:
    return name.encode() if isinstance(name, str) else name


def rows_of_columns(columns: Columns) -> list[Row]:
    assert columns.key is not None and columns.value is not None and columns.headers is not None
    assert columns.timestamp_ms is not None and columns.offset is not None
    return [
        Row(key, value, tuple(pairs), time, offset)
        for key, value, pairs, time, offset in zip(
            columns.key.to_list(),
            columns.value.to_list(),
            columns.headers.to_list(),
            columns.timestamp_ms.tolist(),
            columns.offset.tolist(),
            strict=True,
        )
    ]


def bytes_column(cells: Sequence[bytes | None]) -> BytesColumn:
    ends = np.cumsum([0, *(len(cell or b"") for cell in cells)], dtype=np.int32)
    data = np.frombuffer(b"".join(cell or b"" for cell in cells), np.uint8)
    return BytesColumn(ends, data, np.array([cell is not None for cell in cells]))


def columns_of(records: Sequence[NewRecord]) -> dict[str, Any]:
    """The arguments of `encode`."""
    rows = rows_of(records)
    pairs = [pair for row in rows for pair in row.headers]
    return {
        "key": bytes_column([row.key for row in rows]),
        "value": bytes_column([row.value for row in rows]),
        "headers": HeadersColumn(
            np.cumsum([0, *(len(row.headers) for row in rows)], dtype=np.int32),
            bytes_column([name for name, _ in pairs]),
            bytes_column([value for _, value in pairs]),
        ),
        "timestamp_ms": np.array([row.timestamp_ms for row in rows], np.int64),
    }


def read_by_aiokafka(log: bytes) -> list[Row]:
    """All records of all data batches; aiokafka decompresses with other code than we do, but for cramjam."""
    rows: list[Row] = []
    for at, header in headers(log):
        batch = DefaultRecordBatch(bytes(log[at : at + header.size_bytes]))
        assert batch.validate_crc()
        if header.is_control or not header.record_count:
            continue
        rows += [
            Row(
                record.key, record.value, tuple((name.encode(), cell) for name, cell in record.headers),
                record.timestamp, record.offset,
            )
            for record in batch
        ]  # fmt: skip
    return rows


def read_by_kio(batch: bytes) -> list[Row]:
    """kio reads no compressed batch, and whole seconds only."""
    parsed, size_bytes = read_batch(batch, 0)
    assert size_bytes == len(batch)
    return [
        Row(
            record.key,
            record.value,
            tuple((pair.key or b"", pair.value) for pair in record.headers),
            round(record.timestamp.timestamp()) * 1000,
            record.offset,
        )
        for record in parsed.records
    ]


def with_true_crc(batch: bytearray) -> bytearray:
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    return batch
