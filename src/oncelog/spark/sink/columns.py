"""The columns that a sink takes, and their types: those of Spark's own Kafka sink, and `timestamp`. Checked when the
query starts, before any row is there. Other columns are left alone, as Spark's sink leaves them."""

from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    NullType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from oncelog.spark.option import BadOption
from oncelog.spark.sink.lane import COLUMNS

_TAKES: Final = {
    "topic": "string",
    "key": "string or binary",
    "value": "string or binary",
    "headers": "array<struct<key: string, value: binary>>",
    "partition": "int",
    "timestamp": "timestamp",
}


def check_columns(schema: StructType, topic: str | None) -> tuple[str, ...]:
    """The columns that are written, in a fixed order; raises where they cannot be."""
    named: dict[str, DataType] = {}
    for column in schema.fields:
        name = column.name.lower()
        if name not in COLUMNS:
            continue
        if name in named:
            raise BadOption(f"column '{name}' is there twice")
        named[name] = column.dataType
    if "value" not in named:
        raise BadOption(
            f"Required attribute 'value' not found: the columns are {', '.join(schema.names) or 'none'}, and what is "
            "written is a column `value` of type string or binary"
        )
    if topic is None and "topic" not in named:
        raise BadOption(
            "topic option required when no 'topic' attribute is present. Use the topic option for setting a topic."
        )
    for name, kind in named.items():
        if not _fits(name, kind):
            raise BadOption(
                f"column '{name}' is {kind.simpleString()}, and {_TAKES[name]} is needed: cast it, or make text of it "
                "(to_json, for instance)"
            )
    return tuple(name for name in COLUMNS if name in named and not (name == "topic" and topic is not None))


def _fits(name: str, kind: DataType) -> bool:
    if isinstance(kind, NullType):
        return name not in ("value", "topic")
    if name == "topic":
        return isinstance(kind, StringType)
    if name in ("key", "value"):
        return isinstance(kind, StringType | BinaryType)
    if name == "partition":
        return isinstance(kind, IntegerType)
    if name == "timestamp":
        return isinstance(kind, TimestampType | TimestampNTZType)
    return _is_headers(kind)


def _is_headers(kind: DataType) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    fields = kind.elementType.fields
    return (
        [field.name for field in fields] == ["key", "value"]
        and isinstance(fields[0].dataType, StringType)
        and isinstance(fields[1].dataType, BinaryType)
    )
