"""Which records a batch has follows from its two offsets alone, each record once."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.client.consumer.ranges import Range
from oncelog.settings import LONG_MAX
from oncelog.slots import AnyPlace
from oncelog.spark.source.errors import SourceError
from oncelog.spark.source.positions import Offsets, Positions, Split, from_json, limited, ranges, split

PARTITIONS = st.tuples(st.sampled_from(["a", "b.c", "d_1-"]), st.integers(0, 12))
OFFSETS = st.dictionaries(PARTITIONS, st.integers(0, 1000), max_size=8)
NUMBERS = st.none() | st.integers(1, 50)
SPLITS = st.builds(Split, NUMBERS, NUMBERS)


@given(
    OFFSETS,
    OFFSETS,
    SPLITS,
    st.booleans(),
    st.dictionaries(st.sampled_from(["a", "b.c"]), st.sampled_from(["id 1", "id 2"])),
)
def test_an_offset_survives_the_checkpoint_to_the_letter(
    at: Offsets, starts: Offsets, by: Split, is_initial: bool, topic_ids: dict[str, str]
) -> None:
    before = Positions(at, starts, by, is_initial, topic_ids)
    text = json.dumps(before.to_json())
    after = from_json(json.loads(text))
    assert after == before
    assert json.dumps(after.to_json()) == text


@pytest.mark.parametrize("found", [17, [], None, {"t": 1}, {"t": {"x": 1}}, {"t": {"0": 1.5}}, {"$start": 3}])
def test_what_is_no_offset_is_refused_in_words(found: Any) -> None:
    with pytest.raises(SourceError, match=r"no offset of this source: .* begin with a new one"):
        from_json(found)


def test_an_offset_looks_as_that_of_sparks_own_source() -> None:
    assert Positions({("t", 10): 7, ("t", 2): 5, ("s", 0): 1}).to_json() == {"s": {"0": 1}, "t": {"2": 5, "10": 7}}


@given(st.lists(st.tuples(PARTITIONS, st.integers(0, 1000), st.integers(-5, 3000)), max_size=6), SPLITS)
def test_cut_ranges_hold_each_offset_once_and_in_order(whole: list[tuple[AnyPlace, int, int]], by: Split) -> None:
    given_ranges = [
        Range(*partition, start, start + size) for partition, start, size in {each[0]: each for each in whole}.values()
    ]
    found = split(given_ranges, by)
    for each in given_ranges:
        parts = [part for part in found if (part.topic, part.partition) == (each.topic, each.partition)]
        if each.end <= each.start:
            assert parts == []
            continue
        assert parts[0].start == each.start and parts[-1].end == each.end
        assert all(one.end == next_one.start for one, next_one in pairwise(parts))
        assert all(part.start < part.end for part in parts)
    if by.max_records is not None:
        assert all(part.end - part.start <= by.max_records for part in found)


def test_large_partitions_are_cut_until_there_are_about_as_many_tasks_as_wanted() -> None:
    large, small = Range("t", 0, 0, 9000), Range("t", 1, 0, 10)
    found = split([large, small], Split(min_partitions=4))
    assert found == [Range("t", 0, 0, 3000), Range("t", 0, 3000, 6000), Range("t", 0, 6000, 9000), small]
    assert split([large, small], Split(min_partitions=2)) == [large, small]
    assert split([large], Split(max_records=4000)) == [
        Range("t", 0, 0, 3000),
        Range("t", 0, 3000, 6000),
        Range("t", 0, 6000, 9000),
    ]


@given(OFFSETS, OFFSETS, st.dictionaries(PARTITIONS, st.integers(0, 500), max_size=8), SPLITS)
def test_a_batch_is_planned_from_its_end_where_that_says_more_than_its_start(
    start: Offsets, new: Offsets, sizes: Offsets, by: Split
) -> None:
    begin = start | new
    end = {each: offset + sizes.get(each, 0) for each, offset in begin.items()}
    planned = ranges(Positions(start), Positions(end, new, by))
    whole = [Range(*each, begin[each], end[each]) for each in sorted(end)]
    assert planned == split(whole, by)


def test_the_first_batch_begins_where_it_began_whatever_the_initial_offset_is_now() -> None:
    first_end = Positions({("t", 0): 20}, {("t", 0): 10})
    for now in (5, 10, 15, 99):
        assert ranges(Positions({("t", 0): now}, is_initial=True), first_end) == [Range("t", 0, 10, 20)]


def test_a_partition_that_is_gone_has_no_part_in_the_batch() -> None:
    assert ranges(Positions({("t", 0): 1, ("t", 1): 1}), Positions({("t", 0): 3})) == [Range("t", 0, 1, 3)]


@given(
    st.dictionaries(PARTITIONS, st.tuples(st.integers(0, 1000), st.integers(0, 1000)), min_size=1), st.integers(1, 5000)
)
def test_a_limit_is_shared_by_what_waits_and_starves_nobody(sizes: dict[AnyPlace, tuple[int, int]], most: int) -> None:
    begin = {each: start for each, (start, _) in sizes.items()}
    until = {each: start + size for each, (start, size) in sizes.items()}
    ends = limited(begin, until, most)
    rows = {each: ends[each] - begin[each] for each in ends}
    assert ends.keys() == until.keys()
    for each, (_, size) in sizes.items():
        assert 0 <= rows[each] <= size
        assert rows[each] > 0 or size == 0
    assert sum(rows.values()) <= max(most, len(sizes)) + len(sizes)


def test_a_limit_beyond_all_offsets_is_no_limit() -> None:
    assert limited({("t", 0): 5}, {("t", 0): 50}, LONG_MAX) == {("t", 0): 50}
