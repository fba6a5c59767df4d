"""Keys go where librdkafka and Java's producer send them, row by row or by the column."""

import json
from pathlib import Path

import confluent_kafka
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.client.partition_loops import KEYLESS, partitions_of
from oncelog.client.partitioners import KeylessCounter, StickyChoice, crc32, fnv1a, partitioner
from oncelog.client.properties.producer import PARTITIONERS
from oncelog.records.murmur2 import murmur2
from tests.depth import scaled

# Made by `python -m tests.client.partition_table`, which lets the real librdkafka and the real Java send them.
TABLE = json.loads((Path(__file__).parent / "partition_table.json").read_text())
KEYS = [bytes.fromhex(key) for key in TABLE["keys"]]
HASHED = ("consistent", "consistent_random", "murmur2", "murmur2_random", "fnv1a", "fnv1a_random")
keys = st.lists(st.one_of(st.none(), st.binary(max_size=70)), max_size=40)


@pytest.mark.parametrize("name", HASHED)
def test_the_keys_that_librdkafka_sent_go_to_the_same_partitions(name: str) -> None:
    sent = dict(zip(KEYS, TABLE["librdkafka"][name], strict=True))
    assert len(sent) > 300
    placed = {key: partitioner(name).place(key, TABLE["partitions"]) for key in KEYS}
    assert placed == sent | ({b"": None} if name == "consistent_random" else {})


def test_the_keys_that_java_sent_go_to_the_same_partitions() -> None:
    for count, table in TABLE["java"].items():
        assert [partitioner("murmur2_random").place(key, int(count)) for key in KEYS] == table


@given(key=st.binary(max_size=300), count=st.integers(1, 2**31 - 1))
def test_any_key_goes_where_librdkafkas_own_function_puts_it(key: bytes, count: int) -> None:
    assert partitioner("consistent").place(key, count) == confluent_kafka.consistent(key, count)
    assert partitioner("murmur2").place(key, count) == confluent_kafka.murmur2(key, count)
    assert partitioner("fnv1a").place(key, count) == confluent_kafka.fnv1a(key, count)


def test_hashes_that_kafka_and_sarama_publish() -> None:
    java = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536, b"abc": 479470107}
    assert {key: murmur2(key) for key in java} == {key: hash & 0x7FFFFFFF for key, hash in java.items()}
    assert (fnv1a(b"kafka"), fnv1a(b"giberish123456789"), fnv1a(b"")) == (0xD33C4E1, 0x77A58295, 0x7EE3623B)
    assert crc32(b"123456789") == 0xCBF43926


def test_an_absolute_value_that_has_no_positive_number_is_still_a_partition() -> None:
    found = next(key for key in (b"\x84\xe5\x1c\x03", *_with_fnv_of_minimum()) if fnv1a(key) == 2**31)
    assert partitioner("fnv1a").place(found, 7) == confluent_kafka.fnv1a(found, 7)


def _with_fnv_of_minimum() -> list[bytes]:
    """Keys whose hash is the one signed number without a positive twin, found by going the hash backwards."""
    inverse = pow(0x01000193, -1, 2**32)
    forward = {
        (((0x811C9DC5 ^ a) * 0x01000193 ^ b) * 0x01000193) & 0xFFFFFFFF: bytes((a, b))
        for a in range(256)
        for b in range(256)
    }
    found = []
    for c in range(256):
        for d in range(256):
            for e in range(256):
                state = ((((2**31 * inverse) ^ e) * inverse ^ d) * inverse ^ c) & 0xFFFFFFFF
                if state in forward:
                    found.append(forward[state] + bytes((c, d, e)))
                    return found
    return found


@pytest.mark.parametrize(
    ("name", "without", "empty"),
    [
        ("random", True, True),
        ("consistent", False, False),
        ("consistent_random", True, True),
        ("murmur2", False, False),
        ("murmur2_random", True, False),
        ("fnv1a", False, False),
        ("fnv1a_random", True, False),
    ],
)
def test_which_records_leave_the_choice(name: str, without: bool, empty: bool) -> None:
    assert (partitioner(name).place(None, 9) is None) == without
    assert (partitioner(name).place(b"", 9) is None) == empty


@pytest.mark.parametrize("name", PARTITIONERS)
@settings(max_examples=scaled(15))
@given(rows=keys, count=st.integers(1, 1000), wide=st.booleans())
def test_a_column_is_placed_as_its_rows_are(name: str, rows: list[bytes | None], count: int, wide: bool) -> None:
    data, ends, valid = _column(rows)
    placed = partitions_of(partitioner(name), data, ends.astype(np.int64 if wide else np.int32), count, valid)
    one_by_one = [partitioner(name).place(row, count) for row in rows]
    assert [None if place == KEYLESS else place for place in placed.tolist()] == one_by_one
    assert placed.dtype == np.int32


def test_a_column_without_nulls_needs_no_validity() -> None:
    data, ends, _ = _column([b"kafka", b"", b"abc"])
    placed = partitions_of(partitioner("murmur2_random"), data, ends, 12)
    assert placed.tolist() == [partitioner("murmur2_random").place(key, 12) for key in (b"kafka", b"", b"abc")]


@pytest.mark.parametrize("ends", [[0, 5, 3], [0, 5, 12], [-1, 5, 10]])
def test_ends_that_cannot_be_are_refused_before_anything_is_read(ends: list[int]) -> None:
    with pytest.raises(ValueError, match="do not grow or exceed"):
        partitions_of(partitioner("murmur2"), np.zeros(10, np.uint8), np.array(ends), 3)


def _column(rows: list[bytes | None]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    lengths = [len(row or b"") for row in rows]
    data = np.frombuffer(b"".join(row or b"" for row in rows), np.uint8)
    return data, np.cumsum([0, *lengths]), np.array([row is not None for row in rows], np.bool_)


def test_a_sticky_choice_stays_for_its_time_and_then_changes() -> None:
    picks = iter([4, 1, 2])
    sticky = StickyChoice(linger_ms=10)
    chosen = [sticky.choose(6, now_ms, lambda count: next(picks)) for now_ms in (0, 5, 9, 10, 19, 20)]
    assert chosen == [4, 4, 4, 1, 1, 2]


def test_a_sticky_choice_without_a_linger_is_a_new_one_each_time() -> None:
    picks = iter([4, 1, 2])
    sticky = StickyChoice(linger_ms=0)
    assert [sticky.choose(6, 0, lambda count: next(picks)) for _ in range(3)] == [4, 1, 2]


def test_a_sticky_choice_that_is_no_longer_a_partition_is_made_again() -> None:
    sticky = StickyChoice(linger_ms=10, chosen=5, until_ms=100)
    assert sticky.choose(3, 0, lambda count: count - 1) == 2


def test_a_saved_counter_goes_on_where_it_was() -> None:
    whole = KeylessCounter()
    all_at_once = [whole.choose(3) for _ in range(8)]
    first = KeylessCounter()
    begun = [first.choose(3) for _ in range(5)]
    resumed = KeylessCounter(first.counter)
    assert begun + [number % 3 for number in resumed.choose_many(3)] == all_at_once
    assert resumed.counter == whole.counter == 8


def test_records_share_a_partition_for_a_run_wherever_the_counter_was_saved() -> None:
    whole = KeylessCounter(run=4)
    placed = [whole.choose(3) for _ in range(20)]
    assert placed == [0] * 4 + [1] * 4 + [2] * 4 + [0] * 4 + [1] * 4
    for saved_at in range(20):
        resumed = KeylessCounter(saved_at, run=4)
        assert [number // 4 % 3 for number in resumed.choose_many(20 - saved_at)] == placed[saved_at:]
