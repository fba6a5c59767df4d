"""Finding records by time costs little, whatever clients put into headers and bodies."""

from dataclasses import replace
from typing import Any, TypeVar

import pytest

from oncelog.log import lookup
from oncelog.log.partition import PartitionLog
from oncelog.log.work_steps import Steps
from oncelog.records.header import HEADER, BatchHeader, read_header, restamp_crc
from oncelog.records.read import body_of
from tests.log.memory_disk import MemoryDisk
from tests.log.support import LEASED, SMALL, START_MS, append, at, batch, open_log, put

T = TypeVar("T")
ONE_SEGMENT = replace(SMALL, segment_bytes=1 << 20)
PROMISED_MS = START_MS + 1_000_000


@pytest.fixture
def bodies(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The offsets of the batches whose bodies were read."""
    read: list[int] = []

    def counted(buffer: bytes, at: int, header: BatchHeader) -> object:
        read.append(header.base_offset)
        return body_of(buffer, at, header)

    monkeypatch.setattr(lookup, "body_of", counted)
    return read


def put_promising(log: PartitionLog, promised_ms: int) -> None:
    """A batch whose header promises a later record than it holds: bodies are stored without a look into them."""
    made = batch(b"x", timestamp_ms=START_MS)
    header: BatchHeader = read_header(made)._replace(max_timestamp=promised_ms)
    HEADER.pack_into(made, 0, *header)
    restamp_crc(made, 0, len(made))
    append(log, made)


def test_headers_that_promise_what_bodies_lack_cost_one_body_not_all(bodies: list[int]) -> None:
    log = open_log(MemoryDisk(), ONE_SEGMENT)
    for _ in range(30):
        put_promising(log, PROMISED_MS)
    found = log.offset_for_time(START_MS + 1)
    assert found is not None and (found.offset, found.timestamp_ms) == (0, PROMISED_MS)
    assert len(bodies) == 1
    latest = log.max_timestamp()
    assert latest is not None and (latest.offset, latest.timestamp_ms) == (0, PROMISED_MS)
    assert len(bodies) == 2


@pytest.mark.parametrize("fenced", [False, True])
def test_the_latest_record_is_found_by_headers_and_one_body(bodies: list[int], fenced: bool) -> None:
    log = open_log(MemoryDisk(), ONE_SEGMENT)
    for number in range(60):
        put(log, b"%d" % number, pid=LEASED, sequence=number, timestamp_ms=START_MS + number)
    if fenced:
        log.fence(LEASED, 1, at(1000))
    latest = log.max_timestamp()
    assert latest is not None and (latest.offset, latest.timestamp_ms) == (59, START_MS + 59)
    assert bodies == [59]


def test_what_was_deleted_does_not_hide_or_make_the_latest_record(bodies: list[int]) -> None:
    log = open_log(MemoryDisk(), ONE_SEGMENT)
    for number in range(60):
        put(log, b"%d" % number, timestamp_ms=START_MS - number)
    made = batch(b"gone", b"there", timestamp_ms=START_MS + 5)
    append(log, made)
    log.delete_before(30)
    latest = log.max_timestamp()
    assert latest is not None and (latest.offset, latest.timestamp_ms) == (60, START_MS + 5)
    log.delete_before(61)
    latest = log.max_timestamp()
    assert latest is not None and latest.offset == 61
    assert len(bodies) <= 3


def test_of_equal_times_the_first_is_the_latest_record() -> None:
    log = open_log(MemoryDisk(), ONE_SEGMENT)
    for ms in [1, 9, *[5] * 40, 9, *[2] * 40]:
        put(log, b"x", timestamp_ms=START_MS + ms)
    latest = log.max_timestamp()
    assert latest is not None and (latest.offset, latest.timestamp_ms) == (1, START_MS + 9)


def test_the_latest_record_is_found_by_a_wrong_index_too() -> None:
    log = open_log(MemoryDisk(), ONE_SEGMENT)
    for number in range(60):
        put(log, b"%d" % number, timestamp_ms=START_MS + number % 50)
    index = log.segments.active.index
    index.cut_to_entries(0)
    index.add(7, 33, START_MS)  # no batch begins there
    latest = log.max_timestamp()
    assert latest is not None and (latest.offset, latest.timestamp_ms) == (49, START_MS + 49)


# In steps


def longest_step(monkeypatch: pytest.MonkeyPatch, steps: Steps[T]) -> tuple[T, int, int]:
    """What they come to, the most headers that one of them looks at, and how many bodies were left to a thread."""
    looked = [0]
    left = 0

    def counted(*arguments: Any) -> BatchHeader:
        looked[-1] += 1
        return read_header(*arguments)

    monkeypatch.setattr("oncelog.log.segment.read_header", counted)
    while True:
        try:
            step = next(steps)
        except StopIteration as end:
            return end.value, max(looked), left
        looked.append(0)
        if step is not None:
            left += 1
            step()


def test_a_log_whose_times_no_index_can_tell_is_walked_over_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """The record that its first segment is the latest for is deleted."""
    monkeypatch.setattr(lookup, "HEADERS_IN_A_STEP", 10)
    log = open_log(MemoryDisk(), ONE_SEGMENT)
    put(log, b"late", timestamp_ms=PROMISED_MS)
    for _ in range(300):
        put(log, b"x")
    log.delete_before(150)
    found, headers, _ = longest_step(monkeypatch, log.finding_time(PROMISED_MS))
    assert found is None
    assert headers <= 10
    found, headers, _ = longest_step(monkeypatch, log.finding_latest())
    assert found is not None and found.offset == 150
    assert headers <= 10


def test_before_what_was_deleted_no_header_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(MemoryDisk(), ONE_SEGMENT)
    put(log, b"late", timestamp_ms=PROMISED_MS)
    for _ in range(300):
        put(log, b"x")
    log.delete_before(300)
    _, headers, _ = longest_step(monkeypatch, log.finding_time(PROMISED_MS))
    assert headers < 10


@pytest.mark.parametrize(("values", "codec", "left"), [([b"x"], 0, 0), ([b"x"] * 1000, 0, 1), ([b"x"], 1, 1)])
def test_a_body_that_is_or_unfolds_to_much_is_left_to_a_thread(
    monkeypatch: pytest.MonkeyPatch, values: list[bytes], codec: int, left: int
) -> None:
    log = open_log(MemoryDisk(), ONE_SEGMENT)
    append(log, batch(*values, codec=codec))
    assert longest_step(monkeypatch, log.finding_time(START_MS))[0::2] == ((START_MS, 0, 0), left)
    assert longest_step(monkeypatch, log.finding_latest())[0::2] == ((START_MS, 0, 0), left)


def test_where_segments_go_meanwhile_the_search_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "HEADERS_IN_A_STEP", 1)
    log = open_log(MemoryDisk())
    for number in range(40):
        put(log, b"%d" % number, timestamp_ms=START_MS + number)
    steps = log.finding_time(START_MS + 3)
    assert next(steps) is None
    log.delete_before(30)
    found, _, _ = longest_step(monkeypatch, steps)
    assert found is not None and found.offset == 30
