"""Batches passed on: what a broker may be given, with every record as it stood."""

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.records import passing_columns as passing
from oncelog.records.build import NewRecord, build_batch
from oncelog.records.errors import InvalidRecord
from oncelog.records.header import (
    CONTROL,
    HEADER,
    TRANSACTIONAL,
    check_produced,
    read_header,
    restamp_crc,
    stamp_append_time,
    stamp_producer,
)
from oncelog.records.passing_columns import Passing, pass_on
from oncelog.records.read import records_of
from oncelog.records.trim import retain
from tests.records.samples import TIMESTAMP_MS, codecs, new_records, some_records

APPEND_MS = TIMESTAMP_MS + 77_000

Cells = tuple[bytes | None, bytes | None, tuple[tuple[bytes, bytes | None], ...], int]


class Made(NamedTuple):
    """Stored batches, and their records by offset."""

    data: bytearray
    records: dict[int, Cells]


kinds = st.sampled_from(["plain", "plain", "holes", "append time", "control", "transactional", "empty"])
stored_batches = st.lists(st.tuples(new_records, codecs, kinds), min_size=1, max_size=8)


def stored(parts: list[tuple[list[NewRecord], int, str]], first_offset: int = 100) -> Made:
    made = Made(bytearray(), {})
    offset = first_offset
    for records, codec, kind in parts:
        batch = build_batch(records, codec=codec, base_offset=offset, producer_id=9, producer_epoch=3, base_sequence=7)
        if kind in ("transactional", "control"):
            marked(batch, TRANSACTIONAL | (CONTROL if kind == "control" else 0))
        if kind == "append time":
            stamp_append_time(batch, 0, APPEND_MS)
        if kind in ("holes", "empty"):
            batch = retain(batch, [kind == "holes" and at % 3 != 1 for at in range(len(records))])
        made.data.extend(batch)
        if kind != "control":
            made.records.update((each.offset, each[:4]) for each in records_of(batch))
        offset += len(records)
    return made


def marked(batch: bytearray, attributes: int) -> None:
    header = read_header(batch)
    HEADER.pack_into(batch, 0, *header._replace(attributes=header.attributes | attributes))
    restamp_crc(batch, 0, len(batch))


def produced(found: Passing) -> list[Cells]:
    """What stands in the batches, each of them checked as a broker does."""
    cells: list[Cells] = []
    for each in found.batches:
        stamp_producer(each.data, 0, 5, 0, len(cells))
        header = check_produced(each.data)
        assert header.record_count == each.record_count
        records = records_of(each.data)
        assert header.max_timestamp == max(record.timestamp_ms for record in records)
        cells += [record[:4] for record in records]
    return cells


def offsets(found: Passing) -> list[int]:
    return [offset for first, count in found.runs for offset in range(first, first + count)]


@given(parts=stored_batches, is_writable=st.booleans())
def test_every_record_passes_as_it_stood(parts: list[tuple[list[NewRecord], int, str]], is_writable: bool) -> None:
    made = stored(parts)
    found = pass_on(made.data if is_writable else bytes(made.data))
    assert produced(found) == list(made.records.values())
    assert offsets(found) == list(made.records)
    assert found.record_count == len(made.records)
    assert found.next_offset == 100 + sum(len(records) for records, _, _ in parts)


@given(parts=stored_batches, bounds=st.tuples(st.integers(90, 400), st.integers(90, 400)).map(sorted))
def test_a_range_cuts_its_first_and_last_batch(
    parts: list[tuple[list[NewRecord], int, str]], bounds: list[int]
) -> None:
    made = stored(parts)
    start, end = bounds
    found = pass_on(bytes(made.data), start_offset=start, end_offset=end)
    wanted = {offset: cells for offset, cells in made.records.items() if start <= offset < end}
    assert produced(found) == list(wanted.values())
    assert offsets(found) == list(wanted)


def test_what_can_travel_as_it_is_stays_where_it_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passing, "SMALL_BYTES", 0)
    monkeypatch.setattr(passing, "SMALL_COMPRESSED_BYTES", 0)
    monkeypatch.setattr(passing, "decode", None)
    made = stored([(some_records(30), codec, "plain") for codec in range(5)])
    before = bytes(made.data)
    found = pass_on(made.data)
    assert [each.record_count for each in found.batches] == [30] * 5
    assert all(isinstance(each.data, memoryview) and each.data.obj is made.data for each in found.batches)
    at = 0
    for each in found.batches:
        assert bytes(each.data[61:]) == before[at + 61 : at + len(each.data)]
        at += len(each.data)


def test_bytes_that_cannot_be_written_to_are_left_alone() -> None:
    made = stored([(some_records(30), 0, "plain")])
    data = bytes(made.data)
    produced(pass_on(data))
    assert data == bytes(made.data)


def test_small_neighbours_are_put_together_in_one_batch_of_their_codec() -> None:
    made = stored([(some_records(5), codec, "plain") for codec in (0, 0, 0, 2, 2, 0)])
    found = pass_on(made.data)
    assert [(read_header(each.data).codec, each.record_count) for each in found.batches] == [(0, 15), (2, 10), (0, 5)]


def test_what_is_larger_than_a_batch_may_be_goes_in_several() -> None:
    made = stored([(some_records(200), 0, "plain")])
    found = pass_on(made.data, most_bytes=50_000)
    assert len(found.batches) > 4
    assert max(len(each.data) for each in found.batches) <= 50_000 + 100
    assert produced(found) == list(made.records.values())


def test_the_mark_of_compaction_is_not_passed_on() -> None:
    made = stored([(some_records(3), 0, "plain")])
    marked(made.data, 0x40)  # it has a delete horizon (KIP-534)
    (only,) = pass_on(made.data).batches
    assert read_header(only.data).attributes == 0
    assert records_of(only.data)


@pytest.mark.parametrize("kind", ["plain", "holes", "control", "empty"])
def test_a_damaged_batch_is_refused_whatever_it_says_to_be(kind: str) -> None:
    made = stored([(some_records(3), 0, kind), (some_records(3), 0, kind)])
    made.data[50] ^= 1
    with pytest.raises(InvalidRecord):
        pass_on(made.data)


def test_a_batch_that_was_cut_off_is_left_for_the_next_fetch() -> None:
    made = stored([(some_records(3), 0, "plain"), (some_records(3), 0, "plain")])
    found = pass_on(made.data[:-1])
    assert (offsets(found), found.next_offset) == ([100, 101, 102], 103)
