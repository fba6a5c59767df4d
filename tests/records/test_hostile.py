"""Every truncation and every flipped bit is either detected or harmless; nothing is read out of bounds."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from oncelog.records.columns import decode
from oncelog.records.errors import InvalidRecord
from oncelog.records.read import records_of
from tests.records.hostile import KINDS, agree, by_reader, samples, wrong_columns
from tests.records.samples import ROOT, Row, rows_of_columns

SAMPLES = samples()
by_sample = pytest.mark.parametrize("batch", SAMPLES, ids=[f"sample-{number}" for number in range(len(SAMPLES))])


@by_sample
def test_with_the_crc_checked_a_flipped_bit_is_detected_or_outside_of_it(batch: bytes) -> None:
    rows = [Row(*record) for record in records_of(batch)]
    for place in range(len(batch)):
        for bit in range(8):
            changed = bytearray(batch)
            changed[place] ^= 1 << bit
            if 12 <= place < 16:  # the leader epoch
                assert rows_of_columns(decode(changed)) == rows
            elif 0 <= place < 8:  # the base offset; beyond what an offset can be, it is refused
                moved = _rows_or_none(changed)
                assert moved is None or [row[:4] for row in moved] == [row[:4] for row in rows]
            else:
                assert not _rows_or_none(changed), (place, bit)
                with pytest.raises(InvalidRecord):
                    records_of(changed)


def _rows_or_none(batch: bytes | bytearray) -> list[Row] | None:
    try:
        return rows_of_columns(decode(batch))
    except InvalidRecord:
        return None


@by_sample
def test_a_batch_cut_off_anywhere_is_left_for_the_next_fetch(batch: bytes) -> None:
    before = SAMPLES[0]
    whole = decode(before)
    for size in range(len(batch)):
        columns = decode(before + batch[:size])
        assert rows_of_columns(columns) == rows_of_columns(whole)
        assert (columns.consumed_bytes, columns.next_offset) == (len(before), whole.next_offset)
        with pytest.raises(InvalidRecord):
            records_of(batch[:size])


@by_sample
@pytest.mark.parametrize("kind", KINDS, ids=[kind.__name__ for kind in KINDS])
def test_with_a_true_crc_over_wrong_bytes_the_loops_and_the_reader_agree(batch: bytes, kind: type) -> None:
    changed = list(kind(batch))
    taken = sum(agree(one) for one in changed)
    assert changed or len(batch) == 61
    assert taken < len(changed) or not changed


def test_the_sound_samples_are_taken() -> None:
    for batch in SAMPLES:
        assert agree(batch)
    assert [len(by_reader(batch) or ()) for batch in SAMPLES] == [3, 3, 3, 3, 3, 4, 4, 0, 2]


def test_columns_with_spoiled_ends_are_refused_or_make_sound_batches() -> None:
    assert 0 < wrong_columns() < 3000


@pytest.mark.thorough
def test_nothing_is_read_or_written_out_of_bounds(tmp_path: Path) -> None:
    """The same wrong batches in a process whose loops are compiled anew, with every index checked by numba."""
    environment = {**os.environ, "NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
    order = [sys.executable, "-m", "tests.records.hostile"]
    done = subprocess.run(order, capture_output=True, text=True, timeout=280, check=False, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    found = re.fullmatch(r"(\d+) tried, (\d+) taken, (\d+) wrong columns\n", done.stdout)
    assert found and int(found[1]) > 20_000 and 0 < int(found[3]) < 3000, done.stdout
    assert list(tmp_path.rglob("*.nbi")), "the loops were not compiled into this folder"


@pytest.mark.thorough
def test_the_bounds_check_would_see_it(tmp_path: Path) -> None:
    """A loop that does read over the end stops the process: so the test above can fail."""
    code = (
        "import numpy as np\n"
        "from oncelog.records.block_loops import copy\n"
        "copy(np.zeros(4, np.uint8), 0, 5, np.zeros(8, np.uint8), 0)\n"
    )
    environment = {**os.environ, "NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=ROOT,
        env=environment,
    )
    assert "IndexError" in done.stderr
