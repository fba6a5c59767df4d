"""What the walk over a batch's records lets pass, every reader can read; Python and compiled code judge alike."""

import random
from collections.abc import Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from oncelog.records.build import build_batch
from oncelog.records.errors import InvalidRecord
from oncelog.records.header import HEADER_BYTES, BatchHeader, read_header
from oncelog.records.read import INT64_MAX, records_in
from oncelog.records.varint import zigzag
from oncelog.records.walk_loops import as_array, walk, walked
from oncelog.records.walking import check_records, head_of_one

BASE_MS = 1_700_000_000_000


def parts(
    records: Sequence[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int]],
) -> tuple[bytes, BatchHeader]:
    batch = bytes(build_batch([(key, value, headers, BASE_MS + ms) for key, value, headers, ms in records]))
    return batch[HEADER_BYTES:], read_header(batch)


def record(*numbers_and_bytes: int | bytes, attributes: bytes = b"\0") -> bytes:
    body = attributes + b"".join(zigzag(each) if isinstance(each, int) else each for each in numbers_and_bytes)
    return zigzag(len(body)) + body


def is_sound(body: bytes, header: BatchHeader) -> bool:
    """What Python says, after compiled code has said the same, also of records with others behind them."""
    behind = as_array(body + ONE * 20)
    passes, *facts = walk(behind, 0, len(body), header.record_count, header.base_timestamp)
    assert (tuple(facts) if passes else None) == walked(body, header)
    try:
        check_records(body, header)
    except InvalidRecord:
        assert not passes
        return False
    assert passes
    return True


def is_readable(body: bytes, header: BatchHeader) -> bool:
    try:
        found = records_in(body, header)
    except InvalidRecord:
        return False
    return [each.offset - header.base_offset for each in found] == list(range(header.record_count))


fields = st.one_of(st.none(), st.binary(max_size=5), st.integers(60, 300).map(bytes))
sound = st.lists(
    st.tuples(fields, fields, st.lists(st.tuples(st.text(max_size=3), fields), max_size=2), st.integers(-90, 20_000)),
    min_size=1,
    max_size=6,
)


@settings(deadline=None)
@given(sound)
def test_whatever_a_producer_makes_passes(
    records: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int]],
) -> None:
    body, header = parts(records)
    assert is_sound(body, header)
    facts = walked(body, header)
    assert facts is not None
    times = [BASE_MS + ms for *_, ms in records]
    assert facts == (sum(key is None for key, *_ in records), min(times), max(times))


@settings(max_examples=400, deadline=None)
@given(sound, st.data())
def test_what_passes_can_be_read_whatever_was_done_to_it(
    records: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int]], data: st.DataObject
) -> None:
    body, header = parts(records)
    changed = bytearray(body)
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, max(len(changed) - 1, 0)))
        kind = data.draw(st.sampled_from(["change", "insert", "remove"]))
        if kind == "insert":
            changed.insert(place, data.draw(st.integers(0, 255)))
        elif changed:
            changed[place : place + 1] = data.draw(st.binary(min_size=1, max_size=1)) if kind == "change" else b""
    assert not is_sound(bytes(changed), header) or is_readable(bytes(changed), header)


@settings(max_examples=300, deadline=None)
@example(b"", 1)
@given(st.binary(max_size=60), st.integers(1, 4))
def test_garbage_that_passes_can_be_read(body: bytes, count: int) -> None:
    _, header = parts([(None, None, [], 0)])
    header = header._replace(record_count=count, last_offset_delta=count - 1)
    assert not is_sound(body, header) or is_readable(body, header)


ONE = record(0, 0, -1, 1, b"v", 0)
LONG_ZERO = b"\x80" * 4 + b"\0"
WRONG = {
    "two records with one offset": (ONE * 2, 2, 0),
    "an offset left out": (ONE + record(0, 2, -1, 1, b"v", 0), 2, 0),
    "fewer records than announced": (ONE, 2, 0),
    "more records than announced": (ONE + record(0, 1, -1, 1, b"v", 0), 1, 0),
    "a byte behind the last record": (ONE + b"\0", 1, 0),
    "a byte behind the headers": (record(0, 0, -1, 1, b"v", 0, b"\0"), 1, 0),
    "a record that ends in its value": (record(0, 0, -1, 3, b"v"), 1, 0),
    "a key of minus two bytes": (record(0, 0, -2, 1, b"v", 0), 1, 0),
    "a value of minus two bytes": (record(0, 0, -1, -2, 0), 1, 0),
    "a key of minus two bytes, with one": (record(0, 0, -2, b"k", 1, b"v", 0), 1, 0),
    "a value of minus two bytes, with one": (record(0, 0, -1, -2, b"v", 0), 1, 0),
    "a record of minus so many bytes": (bytes([ONE[0] | 1]) + ONE[1:], 1, 0),
    "a key's second byte of length left out": (record(0, 0, b"\x82\1", b"k" * 64, b"\4\x7e\x7e", 0), 1, 0),
    "a third byte of a time": (record(b"\x80\x80", 0, -1, 1, b"v", 0), 1, 0),
    "a third byte of a value's length": (record(0, 0, -1, b"\x80\x80", 0), 1, 0),
    "a header without a name": (record(0, 0, -1, -1, 1, -1, -1), 1, 0),
    "minus one headers": (record(0, 0, -1, -1, -1), 1, 0),
    "an empty record": (b"\0", 1, 0),
    "a record of minus one bytes": (b"\1", 1, 0),
    "a length of six bytes": (record(0, 0, -1, b"\x82\x80\x80\x80\x80\0", b"v", 0), 1, 0),
    "a time of eleven bytes": (record(b"\x80" * 10 + b"\0", 0, -1, -1, 0), 1, 0),
    "a time beyond 64 bits": (record(1, 0, -1, -1, 0), 1, INT64_MAX),
    "a time before 64 bits": (record(-2, 0, -1, -1, 0), 1, -INT64_MAX),
}
RIGHT = {
    "numbers longer than they need be": (
        record(b"\x80" * 9 + b"\0", LONG_ZERO, b"\x81\0", b"\x81\x80\0", LONG_ZERO),
        1,
        0,
    ),
    "attributes that mean nothing": (record(0, 0, -1, -1, 0, attributes=b"\xff"), 1, 0),
    "the greatest time": (record(INT64_MAX, 0, -1, -1, 0), 1, 0),
    "the least time": (record(-INT64_MAX - 1, 0, -1, -1, 0), 1, 0),
}


@pytest.mark.parametrize(("body", "count", "base_ms"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_refused(body: bytes, count: int, base_ms: int) -> None:
    _, header = parts([(None, None, [], 0)])
    assert not is_sound(body, header._replace(record_count=count, base_timestamp=base_ms))


@pytest.mark.parametrize(("body", "count", "base_ms"), RIGHT.values(), ids=RIGHT)
def test_what_is_only_odd_passes(body: bytes, count: int, base_ms: int) -> None:
    _, header = parts([(None, None, [], 0)])
    assert is_sound(body, header._replace(record_count=count, base_timestamp=base_ms))


def test_offset_deltas_of_every_width_are_told_apart() -> None:
    """Plain numbers end at two bytes; a batch of many records goes beyond that."""
    body, header = parts([(None, b"", [], 0)] * 8_300)
    assert is_sound(body, header)
    chance = random.Random(1)
    for _ in range(20):
        changed = bytearray(body)
        changed[chance.randrange(len(body))] ^= 1 << chance.randrange(1, 8)
        assert not is_sound(bytes(changed), header) or is_readable(bytes(changed), header)


def test_a_fourth_byte_of_an_offset_delta_is_seen() -> None:
    """Where its first three are the number that is expected, the fourth may not be taken for the length of the key."""
    before = b"".join(zigzag(5 + len(delta)) + b"\0\0" + delta + b"\1\1\0" for delta in map(zigzag, range(2**20)))
    for behind, passes in ((b"\1\1\1\0", True), (b"\1\1\0", False)):
        last = b"\0\0\x80\x80\x80" + behind
        body = before + zigzag(len(last)) + last
        assert walk(as_array(body + ONE * 20), 0, len(body), 2**20 + 1, 0)[0] == passes


@pytest.mark.parametrize("size_bytes", [*range(7, 200), 8_190, 8_191, 8_192, 8_193, 8_194, 8_195, 8_196, 70_000])
def test_the_plainest_record_of_a_size_is_known_by_its_head(size_bytes: int) -> None:
    head = head_of_one(size_bytes)
    body = head + bytes(size_bytes - len(head))
    _, header = parts([(None, None, [], 0)])
    if body.startswith(b"no record"):
        assert all(
            len(parts([(None, bytes(value_bytes), [], 0)])[0]) != size_bytes
            for value_bytes in range(max(size_bytes - 12, 0), size_bytes)
        )
    else:
        assert is_sound(body, header)
        assert records_in(body, header)[0][:3] == (None, bytes(len(body) - len(head) - 1), ())
