"""Arrow batches made into what a producer takes."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.spark.sink.rows import chosen, columns_of, portions

TIME = pa.timestamp("us", "UTC")


def batch(**columns: Any) -> pa.RecordBatch:
    types = {"topic": pa.string(), "value": pa.string(), "partition": pa.int32(), "timestamp": TIME}
    return pa.RecordBatch.from_arrays([pa.array(cells, types[name]) for name, cells in columns.items()], list(columns))


@given(
    topics=st.lists(st.sampled_from("abc"), min_size=1, max_size=20),
    times=st.lists(st.none() | st.integers(0, 9), min_size=20, max_size=20),
)
def test_every_row_is_in_one_portion_under_its_number_and_in_order(topics: list[str], times: list[int | None]) -> None:
    rows = batch(topic=topics, value=[str(at) for at in range(len(topics))], timestamp=times[: len(topics)])
    seen: dict[str, list[int]] = {}
    for portion in portions(rows, None, 1000):
        cells = portion.rows.to_pylist()
        for at, cell in enumerate(cells):
            number = portion.number(at) - 1000
            assert cell["value"] == str(number) and topics[number] == portion.topic
            assert ("timestamp" in cell) == (times[number] is not None)
            seen.setdefault(portion.topic, []).append(number)
    assert sorted(number for numbers in seen.values() for number in numbers) == list(range(len(topics)))
    assert all(numbers == sorted(numbers) for numbers in seen.values())


def test_the_option_goes_before_the_column() -> None:
    rows = batch(topic=["a", None], value=["1", "2"])
    assert columns_of(rows, "b") == ("value",)
    (portion,) = portions(chosen(rows, columns_of(rows, "b")), "b", 0)
    assert portion.topic == "b" and portion.rows.num_rows == 2


def test_a_null_topic_and_a_negative_partition_are_told_by_the_row() -> None:
    with pytest.raises(ValueError, match="row 12: null topic present in the data"):
        list(portions(batch(topic=["a", "a", None], value=["1", "2", "3"]), None, 10))
    with pytest.raises(ValueError, match="row 11: there is no partition -1; null leaves the choice"):
        list(portions(batch(value=["1", "2"], partition=[None, -1]), "a", 10))


def test_columns_are_found_whatever_their_case_and_others_are_left_out() -> None:
    rows = pa.RecordBatch.from_arrays([pa.array([b"v"]), pa.array([1]), pa.array([b"k"])], ["Value", "offset", "KEY"])
    assert chosen(rows, columns_of(rows, "a")).schema.names == ["key", "value"]
