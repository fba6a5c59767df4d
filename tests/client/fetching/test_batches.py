"""What the headers of fetched batches tell, and aborted transactions left out."""

import random
import struct

import pytest
from crc32c import crc32c

from oncelog.client.fetching.batches import survey, without_aborted
from oncelog.records.build import build_batch
from oncelog.records.errors import InvalidRecord
from oncelog.records.header import TRANSACTIONAL, headers, stamp
from oncelog.records.read import records_of

COMMIT, ABORT = 1, 0


def data_batch(
    base_offset: int, count: int = 1, *, pid: int = -1, epoch: int = 0, transactional: bool = False
) -> bytes:
    records = [(None, b"%d" % (base_offset + i), (), 1) for i in range(count)]
    batch = build_batch(records, base_offset=base_offset, producer_id=pid, producer_epoch=0, base_sequence=0)
    return _stamped(batch, epoch, TRANSACTIONAL if transactional else 0)


def marker(base_offset: int, pid: int, kind: int) -> bytes:
    key = struct.pack(">hh", 0, kind)
    batch = build_batch(
        [(key, struct.pack(">hi", 0, 0), (), 1)],
        base_offset=base_offset,
        producer_id=pid,
        producer_epoch=0,
        is_control=True,
    )
    return _stamped(batch, 0, TRANSACTIONAL)


def _stamped(batch: bytearray, epoch: int, attributes: int) -> bytes:
    stamp(batch, 0, int.from_bytes(batch[:8], "big"), epoch)
    batch[22] |= attributes
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    return bytes(batch)


def values(records: bytes | bytearray | memoryview) -> list[bytes]:
    return [
        each.value or b""
        for at, header in headers(records)
        if not header.is_control
        for each in records_of(records, at)
    ]


def test_a_survey_counts_whole_batches_and_names_where_leaders_changed() -> None:
    data = data_batch(5, 3, epoch=1) + data_batch(8, 2, epoch=1) + data_batch(12, 1, epoch=4)
    seen = survey(data + data_batch(13)[:-1])
    assert (seen.whole_bytes, seen.next_offset, seen.record_count) == (len(data), 13, 6)
    assert seen.epochs == [(1, 5), (4, 12)]


def test_a_survey_of_nothing_whole_says_so() -> None:
    assert survey(b"")[:3] == (0, -1, 0)
    assert survey(data_batch(5)[:-1])[:3] == (0, -1, 0)


def test_a_length_that_cannot_be_is_left_to_whoever_decodes() -> None:
    sound, broken = data_batch(5), bytearray(data_batch(6))
    struct.pack_into(">i", broken, 8, -1)
    assert survey(sound + broken)[:2] == (len(sound) + len(broken), 6)


def test_aborted_transactions_are_left_out_and_what_stands_between_them_stays() -> None:
    data = b"".join(
        [
            data_batch(0),
            data_batch(1, 2, pid=7, transactional=True),  # aborted
            data_batch(3, pid=8, transactional=True),
            data_batch(4, pid=7, transactional=True),  # aborted
            marker(5, 7, ABORT),
            data_batch(6, pid=7, transactional=True),
            marker(7, 8, COMMIT),
            marker(8, 7, COMMIT),
            data_batch(9, pid=7, transactional=True),  # aborted
            marker(10, 7, ABORT),
            data_batch(11),
        ]
    )
    assert values(without_aborted(data, [(7, 1), (7, 9)])) == [b"0", b"3", b"6", b"11"]
    # The order of the broker's list does not matter.
    assert values(without_aborted(data, [(7, 9), (7, 1)])) == [b"0", b"3", b"6", b"11"]


def test_a_transaction_that_began_before_what_was_fetched_is_left_out_too() -> None:
    data = data_batch(50, pid=7, transactional=True) + marker(51, 7, ABORT) + data_batch(52, pid=7, transactional=True)
    assert values(without_aborted(data, [(7, 3)])) == [b"52"]


def test_plain_records_of_a_producer_with_an_aborted_transaction_stay() -> None:
    data = data_batch(0, pid=7) + data_batch(1, pid=7, transactional=True) + marker(2, 7, ABORT)
    assert values(without_aborted(data, [(7, 0)])) == [b"0"]


def test_without_aborted_transactions_the_same_bytes_come_back() -> None:
    data = data_batch(0) + data_batch(1, pid=7, transactional=True) + marker(2, 7, COMMIT)
    assert without_aborted(data, []) is data
    assert without_aborted(data, [(9, 0)]) is data


@pytest.mark.parametrize("at", [46, 50, 60, 62])
def test_damage_is_not_taken_for_an_aborted_transaction(at: int) -> None:
    batch = bytearray(data_batch(0, pid=7, transactional=True))
    batch[at] ^= 1
    pid = int.from_bytes(batch[43:51], "big")
    with pytest.raises(InvalidRecord, match="CRC"):
        without_aborted(bytes(batch), [(pid, 0)])
    assert values(without_aborted(bytes(batch), [(pid, 0)], check_crc=False)) == []


def test_any_mix_of_transactions_gives_exactly_what_was_committed() -> None:
    for seed in range(200):
        chance = random.Random(seed)
        data = b""
        expected: list[bytes] = []
        aborted: list[tuple[int, int]] = []
        open_since: dict[int, tuple[int, list[bytes]]] = {}
        offset = 0
        for _ in range(60):
            pid = chance.randint(1, 4)
            if pid in open_since and chance.random() < 0.4:
                first, written = open_since.pop(pid)
                kind = chance.choice((COMMIT, ABORT))
                data += marker(offset, pid, kind)
                if kind == ABORT:
                    aborted.append((pid, first))
                    expected = [each for each in expected if each not in written]
                offset += 1
            else:
                count = chance.randint(1, 3)
                data += data_batch(offset, count, pid=pid, transactional=True)
                written = [b"%d" % (offset + i) for i in range(count)]
                expected += written
                open_since.setdefault(pid, (offset, []))[1].extend(written)
                offset += count
        chance.shuffle(aborted)
        assert values(without_aborted(data, aborted)) == expected, f"seed {seed}"
