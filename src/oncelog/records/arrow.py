"""Columns as Arrow data and back, buffer for buffer: nothing is copied but one bit for each row that may be null."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from oncelog.records.column_types import Bools, BytesColumn, Columns, HeadersColumn

HEADERS = pa.list_(pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())]))
SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS, nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("ms", "UTC"), nullable=False),
        pa.field("timestampType", pa.int32(), nullable=False),
    ]
)


def to_arrow(columns: Columns) -> pa.RecordBatch:
    """The decoded columns under the names of Spark's Kafka source, in the order of `SCHEMA`; `binary`, as all of them
    together stay below 2 GiB."""
    arrays: dict[str, Any] = {}
    if columns.key is not None:
        arrays["key"] = binary_array(columns.key)
    if columns.value is not None:
        arrays["value"] = binary_array(columns.value)
    if columns.headers is not None:
        arrays["headers"] = _headers(columns.headers)
    if columns.offset is not None:
        arrays["offset"] = pa.array(columns.offset)
    if columns.timestamp_ms is not None:
        arrays["timestamp"] = pa.array(columns.timestamp_ms).view(pa.timestamp("ms", "UTC"))
        arrays["timestampType"] = pa.array(columns.timestamp_type())
    schema = pa.schema([field for field in SCHEMA if field.name in arrays])
    return pa.RecordBatch.from_arrays([arrays[name] for name in schema.names], schema=schema)


def _buffer(array: Any) -> pa.Buffer:
    return pa.py_buffer(np.ascontiguousarray(array))


def _bits(valid: Bools | None) -> pa.Buffer | None:
    return None if valid is None else _buffer(np.packbits(valid, bitorder="little"))


def binary_array(column: BytesColumn, arrow_type: Any = None) -> pa.Array:
    """An Arrow array over the column's own memory. 64-bit ends make the `large` type."""
    if arrow_type is None:
        arrow_type = pa.binary() if column.ends.dtype == np.int32 else pa.large_binary()
    return pa.Array.from_buffers(
        arrow_type, len(column), [_bits(column.valid), _buffer(column.ends), _buffer(column.data)]
    )


def _headers(headers: HeadersColumn) -> pa.Array:
    pairs = pa.StructArray.from_arrays(
        [_names(headers.names), binary_array(headers.values)],
        fields=[HEADERS.value_type.field(0), HEADERS.value_type.field(1)],
    )
    return pa.Array.from_buffers(HEADERS, len(headers), [None, _buffer(headers.ends)], children=[pairs])


def _names(names: BytesColumn) -> pa.Array:
    """Header names as text. Nothing makes a producer send UTF-8: what is none is replaced, as Java does."""
    text = binary_array(names, pa.string())
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        return pa.array([(name or b"").decode(errors="replace") for name in names.to_list()], pa.string())
    return text


def bytes_column(array: pa.Array | pa.ChunkedArray) -> BytesColumn:
    """A column over the memory of an Arrow array of binary or text, sliced or not, with 32 or 64 bit offsets."""
    array = _one_chunk(array)
    if pa.types.is_null(array.type):
        array = array.cast(pa.binary())
    if not _is_bytes(array.type):
        raise TypeError(f"binary or text is needed, not {array.type}")
    _, end_buffer, data_buffer = array.buffers()
    is_wide = pa.types.is_large_binary(array.type) or pa.types.is_large_string(array.type)
    width = np.dtype(np.int64 if is_wide else np.int32)
    ends: Any = np.zeros(1, width)
    if end_buffer is not None and end_buffer.size:
        ends = np.frombuffer(end_buffer, width, len(array) + 1, array.offset * width.itemsize)
    data = np.empty(0, np.uint8) if data_buffer is None else np.frombuffer(data_buffer, np.uint8)
    return BytesColumn(ends, data, _valid(array))


def headers_column(array: pa.Array | pa.ChunkedArray) -> HeadersColumn:
    """A column over an Arrow array of lists of (key, value), or of maps; a row that is null has no headers."""
    array = _one_chunk(array)
    if pa.types.is_null(array.type):
        array = pa.nulls(len(array), HEADERS)
    at_name, at_value = _pair_fields(array.type)
    if array.null_count:
        array = pc.coalesce(array, pa.scalar([], array.type))
    array = array.cast(pa.list_(array.type.value_type)) if pa.types.is_large_list(array.type) else array
    pairs = array.values
    names, values = pairs.field(at_name), pairs.field(at_value)
    if names.null_count or pairs.null_count:
        raise ValueError("a record header without a key")
    return HeadersColumn(array.offsets.to_numpy(zero_copy_only=True), bytes_column(names), bytes_column(values))


def _pair_fields(kind: pa.DataType) -> tuple[int, int]:
    """The places of the name and the value in a pair: as their fields are called, else in their order."""
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    cells: tuple[Any, ...] = ()
    names: list[str] = []
    if pa.types.is_map(kind):
        cells = (kind.key_type, kind.item_type)
    elif is_list and pa.types.is_struct(kind.value_type) and kind.value_type.num_fields == 2:
        fields = (kind.value_type.field(0), kind.value_type.field(1))
        cells = (fields[0].type, fields[1].type)
        names = [each.name for each in fields]
    if not cells or not all(_is_bytes(cell) or pa.types.is_null(cell) for cell in cells):
        raise TypeError(f"list<struct<key, value>> or map<key, value> of text or binary is needed, not {kind}")
    return (1, 0) if names == ["value", "key"] else (0, 1)


def timestamps(array: pa.Array | pa.ChunkedArray) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Milliseconds out of Arrow timestamps of any unit, or of int64 that already are milliseconds; no nulls."""
    array = _one_chunk(array)
    if array.null_count:
        raise ValueError("a timestamp that is null")
    if pa.types.is_timestamp(array.type):
        array = array.cast(pa.timestamp("ms", array.type.tz), safe=False).view(pa.int64())
    milliseconds: np.ndarray[Any, np.dtype[np.int64]] = array.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return milliseconds


def _one_chunk(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    if not isinstance(array, pa.ChunkedArray):
        return array
    return array.chunk(0) if array.num_chunks == 1 else array.combine_chunks()


def _is_bytes(arrow_type: pa.DataType) -> bool:
    is_text = pa.types.is_string(arrow_type) or pa.types.is_large_string(arrow_type)
    return bool(is_text or pa.types.is_binary(arrow_type) or pa.types.is_large_binary(arrow_type))


def _valid(array: pa.Array) -> Bools | None:
    if array.null_count == 0:
        return None
    bits = np.frombuffer(array.buffers()[0], np.uint8)
    valid: Bools = np.unpackbits(bits, count=array.offset + len(array), bitorder="little")[array.offset :].view(
        np.bool_
    )
    return valid
