"""Which record fills which slot: against a plain list of offsets."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.spark.copying.mapping import OPEN, Mapping, NotMapped, Stretch

runs = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 9)), min_size=1, max_size=8)


def placed(found: list[tuple[int, int]], first_offset: int) -> list[tuple[int, int]]:
    """Holes and lengths as runs of offsets."""
    offset, out = first_offset, []
    for hole, count in found:
        out.append((offset + hole, count))
        offset += hole + count
    return out


def listed(found: list[tuple[int, int]]) -> list[int]:
    return [offset for first, count in found for offset in range(first, first + count)]


@given(runs, st.integers(0, 50), st.integers(0, 100), st.booleans())
def test_slots_and_offsets_are_those_of_the_list(
    drawn: list[tuple[int, int]], slot: int, offset: int, is_open: bool
) -> None:
    found = placed(drawn, offset)
    offsets = listed(found)
    mapping = Mapping().with_runs(slot, found, is_open=is_open)
    assert mapping.offsets(slot, len(offsets)).tolist() == offsets
    assert [mapping.offset_of(slot + at) for at in range(len(offsets))] == offsets
    assert mapping.says(slot, found)
    assert Mapping.from_value(json.loads(json.dumps(mapping.to_value()))) == mapping
    for at in range(len(offsets)):
        rest = mapping.since(slot + at)
        assert rest.offsets(slot + at, len(offsets) - at).tolist() == offsets[at:]
    behind = slot + len(offsets)
    if is_open:
        assert mapping.offset_of(behind + 3) == offsets[-1] + 4
    else:
        with pytest.raises(NotMapped):
            mapping.offset_of(behind)


@given(runs, runs, st.integers(0, 30), st.integers(0, 3))
def test_what_is_written_down_later_replaces_what_lies_behind_its_slot(
    first: list[tuple[int, int]], second: list[tuple[int, int]], at: int, later: int
) -> None:
    offsets = listed(placed(first, 0))
    at = min(at, len(offsets))
    before = offsets[at - 1] + 1 if at else 0
    more = placed(second, before + later)
    mapping = Mapping().with_runs(0, placed(first, 0), is_open=False).with_runs(at, more, is_open=False)
    assert mapping.offsets(0, at + len(listed(more))).tolist() == offsets[:at] + listed(more)


@given(runs, runs, st.integers(0, 6), st.integers(0, 6), st.booleans())
def test_two_maps_agree_where_no_slot_is_another_record(
    first: list[tuple[int, int]], second: list[tuple[int, int]], slot: int, since: int, is_open: bool
) -> None:
    one = Mapping().with_runs(0, placed(first, 0), is_open=is_open)
    two = Mapping().with_runs(slot, placed(second, slot), is_open=False)
    mine = dict(enumerate(listed(placed(first, 0))))
    if is_open:
        last = max(mine)
        mine |= {last + more: mine[last] + more for more in range(100)}
    others = dict(enumerate(listed(placed(second, slot)), slot))
    agree = all(mine[at] == others[at] for at in mine.keys() & others.keys() if at >= since)
    assert one.agrees(two, since) == two.agrees(one, since) == agree


def test_other_runs_are_not_what_is_written_down() -> None:
    mapping = Mapping((Stretch(0, 10, 5), Stretch(5, 20, OPEN)))
    assert mapping.says(3, [(13, 2), (20, 100)])
    assert not mapping.says(3, [(13, 3)])
    assert not mapping.says(3, [(13, 2), (21, 1)])
    assert not Mapping().says(0, [(0, 1)])
    assert Mapping().says(0, [])


@pytest.mark.parametrize(
    "value",
    [None, "x", [1], [1, 2], [1, 2, 3, 4], [1, 2, 0], [-1, 2, 3], [1, 2, -1, 0, 3], [1, 2, 3, -1, 4], [1, 2, True]],
)
def test_what_is_no_map_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"map|stretch"):
        Mapping.from_value(value)
