"""Keys get numbers, rows are gathered and numbers written as plain Python would, for whatever columns there are."""

from random import Random

import numpy as np
import pytest

from oncelog.records import key_columns, key_loops
from oncelog.records.column_types import BytesColumn, read_only
from oncelog.records.key_columns import CannotBeNumbered, KeyTable, as_text, by_part, partitions_of, taken
from oncelog.records.key_loops import number_keys
from oncelog.records.murmur2 import murmur2


def keys_of(chance: Random, count: int) -> list[bytes]:
    """Of all lengths, with those among them that begin like others."""
    return [chance.choice([b"", b"a", b"a" * 8, b"p"]) + b"%d" % chance.randrange(3_000) for _ in range(count)]


@pytest.mark.parametrize("seed", range(5))
def test_keys_are_numbered_in_the_order_in_which_they_come(seed: int) -> None:
    chance = Random(seed)
    table, known = KeyTable(), dict[bytes, int]()
    for _ in range(20):
        keys = keys_of(chance, chance.choice([1, 30, 1_500]))
        first = chance.randrange(len(keys))
        found = table.number(BytesColumn.of([b"before", *keys])[1 + first :])
        numbers = [known.setdefault(key, len(known)) for key in keys[first:]]
        assert found.numbers.tolist() == numbers
        assert found.distinct.tolist() == [*dict.fromkeys(numbers)]
        assert found.hits.tolist() == [numbers.count(number) for number in dict.fromkeys(numbers)]
        assert table.keys.to_list() == [*known]
        if chance.random() < 0.2:
            kept = chance.randrange(len(known))
            table.forget_from(kept)
            known = {key: number for key, number in known.items() if number < kept}
    assert len(table) == len(known) > 100


def test_keys_that_all_meet_in_one_place_are_given_up_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """As those would that somebody has chosen."""
    others = np.ones(1 << 12, np.uint64)  # a key that is another one in each place
    ends, room = np.array([0, 1], np.int32), [np.zeros(4, kind) for kind in (np.int32, np.uint8, np.int64, np.int32)]
    key_ends, key_data, seen, hits = room
    numbers, distinct = np.empty(1, np.int32), np.empty(1, np.int32)
    column = (read_only(ends), read_only(np.frombuffer(b"a", np.uint8)))
    found = number_keys(*column, np.uint64(1), others, key_ends, key_data, 1, seen, 1, numbers, distinct, hits)
    assert found == (1, 0, 0)
    monkeypatch.setattr(key_loops, "number_keys", lambda *about: found)
    with pytest.raises(CannotBeNumbered, match="1000 keys meet in one place"):
        KeyTable().number(BytesColumn.of([b"a"]))


def test_keys_of_more_bytes_than_a_column_has_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_columns, "MOST_BYTES", 10)
    table = KeyTable()
    table.number(BytesColumn.of([b"12345"]))
    with pytest.raises(CannotBeNumbered, match="more than 10 bytes"):
        table.number(BytesColumn.of([b"123456"]))


def test_numbers_are_written_as_in_python() -> None:
    numbers = [0, 7, 10, 99, 100, -1, -10, (1 << 63) - 1, -(1 << 63), *(10**each for each in range(19))]
    assert as_text(np.array(numbers, np.int64)).to_list() == [b"%d" % each for each in numbers]
    assert max(map(len, map(str, numbers))) == key_loops.MOST_DIGITS
    assert as_text(np.array([], np.int64)).to_list() == []


def test_keys_are_placed_and_parted_in_their_order() -> None:
    chance = Random(3)
    cells: list[bytes | None] = [*keys_of(chance, 500)]
    column = BytesColumn.of(cells)
    parts = partitions_of(column, 7)
    assert parts.tolist() == [murmur2(cell or b"") % 7 for cell in cells]
    for part, rows in enumerate(by_part(parts, 7)):
        assert rows.tolist() == [row for row, each in enumerate(parts.tolist()) if each == part]
        assert taken(column, rows).to_list() == [cells[row] for row in rows]


def test_rows_are_taken_with_their_nulls() -> None:
    cells = [b"a", None, b"", b"bc", None]
    assert taken(BytesColumn.of(cells)[1:], np.array([3, 0, 2, 2, 1])).to_list() == [None, None, b"bc", b"bc", b""]


# --- columns as sequences


@pytest.mark.parametrize("cells", [[], [b"a"], [b"a", None, b"", b"bcd"], [None, None]])
def test_a_column_is_a_sequence_of_its_cells(cells: list[bytes | None]) -> None:
    column = BytesColumn.of(cells)
    assert [*column] == cells == column.to_list() == [column[row] for row in range(len(column))]
    assert column.nulls == column.count(None) == cells.count(None)
    assert (None in column) == (None in cells)
    assert (b"a" in column) == (b"a" in cells)
    assert column.size_bytes == sum(map(len, filter(None, cells)))
    for first in range(len(cells) + 1):
        for end in range(len(cells) + 2):
            part = column[first:end]
            assert [*part] == cells[first:end]
            assert part.size_bytes == sum(map(len, filter(None, cells[first:end])))
            assert part.count(None) == cells[first:end].count(None)


def test_columns_are_joined_with_what_lies_before_and_behind_them() -> None:
    cells = [b"a", None, b"bc", b"", b"def"]
    whole, sound = BytesColumn.of(cells), BytesColumn.of([b"x", b"yz"])
    joined = BytesColumn.joined([whole[1:3], sound[1:], whole[4:], sound[:0]])
    assert joined.to_list() == [None, b"bc", b"yz", b"def"]
    assert BytesColumn.joined([sound, sound]).valid is None
