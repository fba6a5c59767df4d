"""Rows as Spark gets them: what it could not hold, or would not count, is refused and not changed."""

import pytest
from pyspark.sql.types import StructType

from oncelog.records.build import build_batch
from oncelog.records.columns import decode
from oncelog.spark.option import BadOption
from oncelog.spark.source.columns import TYPES, RowMaker, check_schema, to_decode
from oncelog.spark.source.errors import SourceError

TIMES = StructType().add("timestamp", TYPES["timestamp"])
MOST_MS = (2**63 - 1) // 1000


def microseconds(*times_ms: int) -> list[int]:
    batch = build_batch([(None, b"v", (), time_ms) for time_ms in times_ms])
    rows = RowMaker(TIMES, "topic", 0).batch(decode(batch, columns=to_decode(TIMES)))
    return [cell.value for cell in rows.column("timestamp")]


def test_timestamps_as_far_as_spark_reaches_are_read() -> None:
    assert microseconds(MOST_MS, -1, -MOST_MS) == [MOST_MS * 1000, -1000, -MOST_MS * 1000]


@pytest.mark.parametrize("time_ms", [MOST_MS + 1, -MOST_MS - 1, 1_700_000_000_000_000_000])
def test_a_timestamp_beyond_is_refused_and_the_way_round_told(time_ms: int) -> None:
    with pytest.raises(SourceError, match=rf"{time_ms} ms, .*`timestamp`.*\.schema"):
        microseconds(1, time_ms, 2)


def test_a_schema_without_columns_is_refused() -> None:
    """Spark takes rows without columns for no rows."""
    with pytest.raises(BadOption, match="names no column; there are key, value"):
        check_schema(StructType())
