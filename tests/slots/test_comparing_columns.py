"""The first record that is not the same: against a comparison record by record."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from oncelog.records.build import NewRecord, build_batch
from oncelog.records.decode_columns import decode
from oncelog.records.header import stamp_append_time
from oncelog.slots.comparing_columns import Rows, first_difference

cell = st.none() | st.binary(max_size=3)
record = st.tuples(cell, cell, st.lists(st.tuples(st.sampled_from(["a", "b"]), cell), max_size=2), st.integers(1, 3))
pairs = st.lists(st.tuples(record, st.none() | record, st.booleans(), st.booleans()), min_size=1, max_size=30)


@given(pairs)
def test_the_first_pair_that_differs_is_found(drawn: list[tuple[NewRecord, NewRecord | None, bool, bool]]) -> None:
    """Each side holds records that the other one lacks."""
    copied: list[NewRecord] = []
    source: list[NewRecord] = []
    mine, theirs = [], []
    first = None
    for number, (one, other, pad_copied, pad_source) in enumerate(drawn):
        if pad_copied:
            copied.append((None, b"only here", [], 1))
        if pad_source:
            source.append((None, b"only there", [], 1))
        mine.append(len(copied))
        theirs.append(len(source))
        copied.append(one)
        source.append(one if other is None else other)
        if other is not None and other != one and first is None:
            first = number
    found = first_difference(
        Rows(decode(bytes(build_batch(copied))), np.array(mine)),
        Rows(decode(bytes(build_batch(source))), np.array(theirs)),
    )
    assert (None if found is None else found.pair) == first
    if found is not None:
        assert " where " in found.words


def rows(records: list[NewRecord], chosen: list[int]) -> Rows:
    return Rows(decode(bytes(build_batch(records))), np.array(chosen))


def test_the_time_that_a_log_gave_is_as_good_as_any() -> None:
    records: list[NewRecord] = [(None, b"value", [], 1)]
    given_time, own_time = build_batch(records), build_batch(records)
    stamp_append_time(own_time, 0, 99)
    rows = np.array([0])
    here, there = Rows(decode(bytes(own_time)), rows), Rows(decode(bytes(given_time)), rows)
    assert first_difference(here, there) is None
    found = first_difference(there, here)
    assert found is not None
    assert found.words == "the timestamp is 99 where 1 stands"
