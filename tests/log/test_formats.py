"""What is on the disk says which version it is; older ones are read, what is not known is handled."""

import struct
from copy import deepcopy
from dataclasses import replace

import pytest
from crc32c import crc32c

from oncelog.log import snapshots
from oncelog.log.config import Flush, LogConfig
from oncelog.log.disk import read_whole
from oncelog.log.index import ENTRY, ENTRY_BYTES, HEAD
from oncelog.log.names import log_path, snapshot_path
from oncelog.log.notes import read_flushed
from oncelog.log.partition import PartitionLog
from oncelog.log.partition_checking import check_partition
from oncelog.log.verdict import Written
from tests.log.memory_disk import MemoryDisk
from tests.log.support import FOLDER, LEASED, NOW, SMALL, open_log, put, values_in

LARGE = LogConfig(retention_ms=-1, index_interval_bytes=200)
EVERY = replace(LARGE, flush=Flush.EVERY)
COUNT = 40
VALUES = [b"%d" % number for number in range(COUNT)]


def filled(config: LogConfig = LARGE) -> tuple[MemoryDisk, PartitionLog]:
    disk = MemoryDisk()
    log = open_log(disk, config)
    for number, value in enumerate(VALUES):
        put(log, value, pid=LEASED, sequence=number)
    log.close()
    return disk.crash(keep_all=True), log


def change(disk: MemoryDisk, path: str, data: bytes) -> None:
    file = disk.open(path, write=True)
    file.truncate(0)
    file.pwritev([data], 0)


def as_snapshot(version: int, body: bytes) -> bytes:
    return struct.pack(">4sHxxI", b"OLSN", version, crc32c(body)) + body


def newest(disk: MemoryDisk) -> tuple[str, bytes]:
    path = f"{FOLDER}/{COUNT:020d}.producers"
    return path, read_whole(disk, path)


def test_a_snapshot_without_sections_is_read() -> None:
    disk, _ = filled()
    path, data = newest(disk)
    snapshot = snapshots.read_snapshot(disk, FOLDER, COUNT)
    assert snapshot is not None
    change(disk, path, as_snapshot(1, data[12:52] + snapshot.epochs.encode() + snapshot.producers))
    assert snapshots.read_snapshot(disk, FOLDER, COUNT) is not None
    log = open_log(disk, LARGE)
    assert (log.recovered.scanned_bytes, log.producers.highwater(LEASED)) == (0, (0, COUNT - 1))


@pytest.mark.parametrize(("kind", "is_used"), [(3, True), (0x7FFF, True), (0x8000, False), (0xFFFF, False)])
def test_of_sections_that_are_not_known_some_are_passed_over_and_some_mean_to_read_the_log(
    kind: int, is_used: bool
) -> None:
    disk, _ = filled()
    path, data = newest(disk)
    change(disk, path, as_snapshot(2, data[12:] + struct.pack(">HxxI", kind, 5) + b"later"))
    log = open_log(disk, LARGE)
    assert (log.recovered.scanned_bytes == 0) is is_used
    assert (log.offline, log.producers.highwater(LEASED)) == (None, (0, COUNT - 1))


def test_a_snapshot_of_a_later_version_is_not_used_and_its_name_still_counts() -> None:
    disk, _ = filled()
    path, data = newest(disk)
    change(disk, path, as_snapshot(3, data[12:]))
    assert open_log(disk, LARGE).next_offset == COUNT
    assert max(snapshots.stored_offsets(disk, FOLDER)) == COUNT


def of_earlier_versions(disk: MemoryDisk, snapshot: snapshots.Snapshot) -> None:
    """Without the sections that they had not: the last two, of 16 bytes each."""
    snapshots.write_snapshot(disk, FOLDER, snapshot)
    path = snapshot_path(FOLDER, snapshot.point.offset)
    change(disk, path, as_snapshot(2, read_whole(disk, path)[12:-32]))


def test_what_earlier_versions_removed_is_not_missed_and_what_goes_later_is() -> None:
    disk = MemoryDisk()
    log = open_log(disk, SMALL)
    for _ in range(3):
        put(log, b"value")
        log.segments.roll()
        log.checkpoint(NOW)
    log.delete_before(log.segments[1].base_offset)
    log.close()
    for snapshot in list(snapshots.newest_first(disk, FOLDER)):
        of_earlier_versions(disk, snapshot)
    disk = disk.crash(keep_all=True)
    log = open_log(disk, SMALL)
    assert (log.offline, log.log_start_offset) == (None, 1)
    assert check_partition(disk, FOLDER).damage == []
    put(log, b"more")
    log.close()
    first, second = log.segments.bases[:2]
    # What flushes of empty segments left is still there, and counts no more.
    assert second in snapshots.stored_offsets(disk, FOLDER)
    disk.unlink(log_path(FOLDER, first))
    assert check_partition(disk, FOLDER).damage == [f"the segments before offset {second} are missing"]
    assert f"lacks the segments before {second}" in (open_log(disk, SMALL).offline or "")


@pytest.mark.parametrize("config", [SMALL, LARGE])
def test_an_index_without_its_first_entry_is_read_and_written_on(config: LogConfig) -> None:
    disk, log = filled(config)
    for segment in log.segments:
        data = read_whole(disk, segment.index.path)
        assert ENTRY.unpack_from(data) == HEAD
        change(disk, segment.index.path, data[ENTRY_BYTES:])
    # The snapshots of that format counted one entry less; a start makes such an index anew, or believes what is there.
    assert check_partition(disk, FOLDER).damage == []
    again = open_log(disk, config)
    assert values_in(again) == VALUES
    put(again, b"more", pid=LEASED, sequence=COUNT)
    again.close()
    assert values_in(open_log(disk, config)) == [*VALUES, b"more"]
    assert check_partition(disk, FOLDER).notes == []


@pytest.mark.parametrize("config", [SMALL, LARGE])
def test_an_index_of_another_version_is_made_anew(config: LogConfig) -> None:
    disk, log = filled(config)
    for segment in log.segments:
        disk.flip(segment.index.path, 7, bit=5)
    assert len(check_partition(disk, FOLDER).notes) == len(log.segments)
    again = open_log(disk, config)
    assert values_in(again) == VALUES
    first = again.offset_for_time(NOW.wall_ms)
    assert first is not None and first.offset == 0
    assert all(segment.index.is_known for segment in again.segments)


def with_note(disk: MemoryDisk, data: bytes) -> MemoryDisk:
    """After a crash, with this in the place of what was noted as flushed."""
    path = f"{FOLDER}/flushed"
    disk.unlink(path)
    disk.open(path, create=True).pwritev([data], 0)
    return disk.crash(keep_all=True)


def check_written_anew(found: MemoryDisk) -> None:
    again = open_log(found, EVERY)
    assert (again.offline, again.next_offset) == (None, 1)
    put(again, b"1")
    again.flush()
    active = again.segments.active
    assert read_flushed(found, FOLDER) == (2, 0, active.size_bytes, active.last_crc)


def test_a_note_of_earlier_versions_of_what_is_flushed_is_read_and_written_anew() -> None:
    disk = MemoryDisk()
    log = open_log(disk, EVERY)
    put(log, b"0")
    log.flush()
    found = with_note(disk, b"%019d %08x\n" % (1, crc32c(b"1")))
    assert read_flushed(found, FOLDER) == Written(1)
    harmed = deepcopy(found)
    harmed.open(log.segments.active.log_path, write=True).truncate(0)
    assert "Records up to offset 1 were on the disk" in (open_log(harmed, EVERY).offline or "")
    check_written_anew(found)


def test_notes_of_earlier_versions_that_say_no_crc_are_read_and_written_anew() -> None:
    disk = MemoryDisk()
    log = open_log(disk, EVERY)
    put(log, b"0")
    log.flush()
    told = read_whole(disk, f"{FOLDER}/flushed").rsplit(b" ", 2)[0]
    found = with_note(disk, b"%b %08x\n" % (told, crc32c(told)))
    active = log.segments.active
    assert read_flushed(found, FOLDER) == Written(1, 0, active.size_bytes)
    assert check_partition(found, FOLDER).damage == []
    check_written_anew(found)


def test_where_nobody_waits_for_flushes_a_note_of_one_says_how_far_and_no_more() -> None:
    disk = MemoryDisk()
    log = open_log(disk, LARGE)
    put(log, b"0")
    log.flush()
    assert read_flushed(disk, FOLDER) == Written(1)
