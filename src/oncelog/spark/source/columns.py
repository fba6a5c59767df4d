"""The columns of the source: as Spark's Kafka source has them, or those of them that `.schema(...)` names."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from oncelog.settings import LONG_MAX
from oncelog.spark.option import BadOption, value_of
from oncelog.spark.option_table import BY_NAME
from oncelog.spark.options import check_source_options
from oncelog.spark.source.errors import SourceError

if TYPE_CHECKING:
    from oncelog.records.column_types import Columns

_MOST_MS: Final = LONG_MAX // 1000  # Spark counts microseconds
_HEADER: Final = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
TYPES: Final[Mapping[str, DataType]] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(_HEADER),
}
# Bytes may be had as text: what `CAST(value AS STRING)` does, without a copy.
_AS_TEXT: Final = frozenset({"key", "value"})
# The parts that must be decoded for a column; none for columns that are not here.
_DECODED: Final = {
    "key": "key",
    "value": "value",
    "offset": "offset",
    "timestamp": "timestamp",
    "timestampType": "timestamp",
    "headers": "headers",
}


def schema(options: Mapping[str, str]) -> StructType:
    """All columns; `headers` where `includeHeaders` says so. Spark asks when a query is written down, so what is wrong
    with its options is told then; whether it is a batch or a stream is not known yet."""
    check_source_options(options)
    has_headers = value_of(
        BY_NAME["includeheaders"], options.get("includeheaders", options.get("includeHeaders", "false"))
    )
    names = [name for name in TYPES if has_headers or name != "headers"]
    return StructType([StructField(name, TYPES[name]) for name in names])


def check_schema(wanted: StructType) -> None:
    if not wanted.fields:
        raise BadOption(f"`.schema(...)` names no column; there are {', '.join(TYPES)}")
    for field in wanted.fields:
        known = TYPES.get(field.name)
        if known is None:
            raise BadOption(f"There is no column '{field.name}'; there are {', '.join(TYPES)}")
        is_text = field.name in _AS_TEXT and isinstance(field.dataType, StringType)
        if not is_text and field.dataType != known:
            raise BadOption(
                f"Column '{field.name}' is of type {known.simpleString()}, not {field.dataType.simpleString()}"
            )


def to_decode(wanted: StructType) -> frozenset[str]:
    return frozenset(_DECODED[name] for name in wanted.fieldNames() if name in _DECODED)


class RowMaker:
    """Decoded columns to RecordBatches of exactly the Arrow schema that Spark expects for `wanted`."""

    def __init__(self, wanted: StructType, topic: str, partition: int) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema

        from oncelog.client.door import PartitionColumns

        self._schema = to_arrow_schema(wanted, timezone="UTC")
        self._own = PartitionColumns(topic, partition)

    def batch(self, columns: "Columns") -> Any:
        import pyarrow as pa

        from oncelog.records.arrow import to_arrow

        decoded = to_arrow(columns)
        topics, partitions = self._own.of(columns.row_count)
        arrays = []
        for field in self._schema:
            if field.name == "topic":
                arrays.append(topics)
            elif field.name == "partition":
                arrays.append(partitions)
            elif field.name == "timestamp":
                arrays.append(_microseconds(columns, field.type))
            elif field.name == "headers":
                arrays.append(_headers(decoded.column("headers"), field.type))
            else:
                column = decoded.column(field.name)
                arrays.append(column if column.type == field.type else column.view(field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _microseconds(columns: "Columns", kind: Any) -> Any:
    import pyarrow as pa

    assert columns.timestamp_ms is not None
    times = columns.timestamp_ms
    if len(times) and max(int(times.max()), -int(times.min())) > _MOST_MS:
        raise SourceError(
            f"a timestamp of {int(times[abs(times).argmax()])} ms, and Spark's reach to {_MOST_MS} ms: was it given in "
            "other units? Read without the column `timestamp`, by naming others in .schema(...)"
        )
    return pa.array(times * 1000).view(kind)


def _headers(column: Any, kind: Any) -> Any:
    """A row without headers has null, as Spark's own source gives it."""
    import numpy as np
    import pyarrow as pa

    ends = column.offsets.to_numpy()
    is_null = ends[1:] == ends[:-1]
    valid = pa.py_buffer(np.packbits(~is_null, bitorder="little"))
    pairs = column.values
    fields = [kind.value_type.field(0), kind.value_type.field(1)]
    cells = pa.StructArray.from_arrays([pairs.field(0), pairs.field(1)], fields=fields)
    return pa.Array.from_buffers(kind, len(column), [valid, column.buffers()[1]], children=[cells])
