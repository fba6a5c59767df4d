"""Batches as they stand in a log: the compiled loops and pure Python find the same."""

import struct

import pytest

from oncelog.client import KafkaException
from oncelog.client.saving import stored
from oncelog.records.build import build_batch
from oncelog.records.header import CONTROL, restamp_crc
from oncelog.slots import Identity, Place

ATTRIBUTES_LOW, LAST_OFFSET_DELTA = 22, 23  # where they stand in a header
PLACE = Place("journal", 3)


def batches() -> list[bytearray]:
    first = [(b"a", b"1", (), 5), (b"b", None, (), 6)]
    third = [(None, b"3", (("h", b"x"),), 7)]
    empty = build_batch([], base_offset=13, producer_id=9, producer_epoch=3, base_sequence=0)
    struct.pack_into(">i", empty, LAST_OFFSET_DELTA, 3)  # compaction took four records, and left who wrote last
    restamp_crc(empty, 0, len(empty))
    return [
        build_batch(rows, base_offset=base, producer_id=9, producer_epoch=epoch, base_sequence=0)
        for base, epoch, rows in ((10, 1, first), (12, 2, third))
    ] + [empty]


def all_of(monkeypatch: pytest.MonkeyPatch, data: bytes, many: int) -> list[stored.StoredBatch]:
    monkeypatch.setattr(stored, "MANY", many)
    return list(stored.batches_in(PLACE, memoryview(data)))


@pytest.mark.parametrize("many", [0, 1_000], ids=["by columns", "plain"])
def test_what_stands_there(monkeypatch: pytest.MonkeyPatch, many: int) -> None:
    assert all_of(monkeypatch, b"".join(batches()), many) == [
        stored.StoredBatch(10, 11, Identity(9, 1), [b"a", b"b"], [b"1", None]),
        stored.StoredBatch(12, 12, Identity(9, 2), [None], [b"3"]),
        stored.StoredBatch(13, 16, Identity(9, 3), [], []),
    ]


@pytest.mark.parametrize("many", [0, 1_000], ids=["by columns", "plain"])
def test_damage_is_named(monkeypatch: pytest.MonkeyPatch, many: int) -> None:
    data = bytearray(b"".join(batches()))
    data[-1] ^= 1
    with pytest.raises(KafkaException, match=r"journal-3 is damaged: .*CRC"):
        all_of(monkeypatch, bytes(data), many)


@pytest.mark.parametrize("many", [0, 1_000], ids=["by columns", "plain"])
def test_a_bit_that_makes_a_control_batch_of_one_is_damage(monkeypatch: pytest.MonkeyPatch, many: int) -> None:
    data = bytearray(b"".join(batches()))
    data[ATTRIBUTES_LOW] ^= CONTROL
    with pytest.raises(KafkaException, match=r"journal-3 is damaged: .*CRC"):
        all_of(monkeypatch, bytes(data), many)
