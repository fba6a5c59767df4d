"""The note of how far compaction has come: believed as it was written, or not at all."""

import pytest

from oncelog.log.cleaner_state import CleanerState

STATE = CleanerState(1234, [(1000, 1_700_000_000_000), (1234, 1_700_000_060_000)])
LINES = b"1234 2\n1000 1700000000000\n1234 1700000060000\n"


def test_it_is_read_back_and_so_is_that_of_an_earlier_version() -> None:
    assert CleanerState.decode(STATE.encode()) == STATE
    assert CleanerState.decode(LINES) == STATE
    assert STATE.encode().startswith(LINES)
    assert CleanerState.decode(CleanerState().encode()) == CleanerState()


def test_no_bit_of_it_can_be_another_unseen() -> None:
    data = STATE.encode()
    for place in range(8 * len(data)):
        harmed = bytearray(data)
        harmed[place // 8] ^= 1 << place % 8
        with pytest.raises(ValueError, match=r".+"):
            CleanerState.decode(bytes(harmed))


def test_half_of_it_is_none() -> None:
    data = STATE.encode()
    for size_bytes in range(len(data)):
        if size_bytes == len(LINES):
            continue  # as an earlier version wrote it
        with pytest.raises(ValueError, match=r".+"):
            CleanerState.decode(data[:size_bytes])
