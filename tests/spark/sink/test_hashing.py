"""The ordered hash: the same rows come to the same, however they are cut; anything else does not."""

import itertools
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.records.arrow import HEADERS
from oncelog.spark.sink.hashing import RowHash

cells = st.none() | st.binary(max_size=6)
headers = st.none() | st.lists(st.tuples(st.text(max_size=3), cells), max_size=2)
rows = st.lists(st.tuples(cells, cells, headers, st.none() | st.integers(0, 9)), max_size=12)
Row = tuple[Any, Any, Any, Any]


def batch(some: list[Row]) -> pa.RecordBatch:
    pairs = [None if each is None else [{"key": key, "value": value} for key, value in each] for _, _, each, _ in some]
    return pa.RecordBatch.from_arrays(
        [
            pa.array([row[0] for row in some], pa.binary()),
            pa.array([row[1] for row in some], pa.binary()),
            pa.array(pairs, HEADERS),
            pa.array([row[3] for row in some], pa.int32()),
        ],
        ["key", "value", "headers", "partition"],
    )


def digest(*batches: pa.RecordBatch) -> str:
    found = RowHash()
    for each in batches:
        found.add(each)
    return found.digest()


def plain(row: Row) -> Row:
    """A null list of headers is an empty one."""
    key, value, pairs, partition = row
    return key, value, pairs or [], partition


@given(some=rows, cuts=st.lists(st.integers(0, 12), max_size=4))
def test_it_does_not_matter_how_rows_are_cut(some: list[Row], cuts: list[int]) -> None:
    whole = batch(some)
    bounds = sorted({0, len(some), *(cut for cut in cuts if cut < len(some))})
    made_apart = [batch(some[start:stop]) for start, stop in itertools.pairwise(bounds)]
    sliced = [whole.slice(start, stop - start) for start, stop in itertools.pairwise(bounds)]
    assert digest(whole) == digest(*made_apart) == digest(*sliced)


@given(some=rows, others=rows)
def test_other_rows_or_another_order_come_to_something_else(some: list[Row], others: list[Row]) -> None:
    is_same = [plain(row) for row in some] == [plain(row) for row in others]
    assert (digest(batch(some)) == digest(batch(others))) == is_same


def test_text_and_binary_of_the_same_bytes_are_the_same() -> None:
    """So that a query may cast what it writes, or not."""
    text, binary = (
        pa.record_batch([pa.array(["a", None, "bc"], kind)], ["value"]) for kind in (pa.string(), pa.binary())
    )
    assert digest(text) == digest(binary)


def test_bytes_that_arrow_keeps_behind_a_null_do_not_count() -> None:
    ends = pa.array([0, 3, 5], pa.int32()).buffers()[1]
    hidden = pa.Array.from_buffers(pa.binary(), 2, [pa.py_buffer(b"\x02"), ends, pa.py_buffer(b"xyzab")])
    assert hidden.to_pylist() == [None, b"ab"]
    assert digest(pa.record_batch([hidden], ["value"])) == digest(pa.record_batch([pa.array([None, b"ab"])], ["value"]))


@pytest.mark.parametrize("unit", ["ms", "us"])
def test_times_count(unit: str) -> None:
    times = [pa.record_batch([pa.array([1, at]).view(pa.timestamp(unit, "UTC"))], ["timestamp"]) for at in (2, 3)]
    assert digest(times[0]) != digest(times[1])
    assert digest(times[0].slice(0, 1), times[0].slice(1)) == digest(times[0])


def test_no_rows_are_no_hash_whatever_their_columns() -> None:
    assert digest() == digest(batch([])) == ""
