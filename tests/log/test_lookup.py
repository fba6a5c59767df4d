"""Finding records by time costs little, whatever clients put into headers and bodies."""

from dataclasses import replace

import pytest

from oncelog.log import lookup
from oncelog.log.partition import PartitionLog
from oncelog.records.header import HEADER, BatchHeader, read_header, restamp_crc
from oncelog.records.read import records_of
from tests.log.memory_disk import MemoryDisk
from tests.log.support import LEASED, SMALL, START_MS, append, at, batch, open_log, put

ONE_SEGMENT = replace(SMALL, segment_bytes=1 << 20)
PROMISED_MS = START_MS + 1_000_000


@pytest.fixture
def bodies(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The offsets of the batches whose bodies were read."""
    read: list[int] = []

    def counted(buffer: bytes, *arguments: object) -> object:
        read.append(read_header(buffer).base_offset)
        return records_of(buffer, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(lookup, "records_of", counted)
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
    segment = log.segments.active
    segment.index.cut_to_entries(0)
    segment.index.add(7, 33, START_MS)  # no batch begins there
    latest = log.max_timestamp()
    assert latest is not None and (latest.offset, latest.timestamp_ms) == (49, START_MS + 49)
