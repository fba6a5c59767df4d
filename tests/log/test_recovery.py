"""What a start makes of the files it finds."""

import logging
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest

from oncelog.log.checkpoint import Checkpointer
from oncelog.log.config import LogConfig
from oncelog.log.disk import RealDisk
from oncelog.log.errors import LogStorageError
from oncelog.log.names import SNAPSHOT, offsets_of
from oncelog.log.partition import PartitionLog
from oncelog.log.partition_checking import check_partition
from oncelog.producers import Decision
from oncelog.records.header import check_produced, read_header
from tests.log.memory_disk import MemoryDisk
from tests.log.support import FOLDER, LEASED, NOW, SMALL, batch, open_log, put, records_in, values_in

FIRST_LOG = f"{FOLDER}/{0:020d}.log"
FIRST_INDEX = f"{FOLDER}/{0:020d}.index"
LARGE = LogConfig(retention_ms=-1)


def filled(
    disk: MemoryDisk,
    count: int,
    *,
    checkpoint_at: int = -1,
    config: LogConfig = SMALL,
    checkpointer: Checkpointer | None = None,
) -> PartitionLog:
    log = open_log(disk, config, checkpointer=checkpointer)
    for number in range(count):
        put(log, b"%d" % number, pid=LEASED, sequence=number)
        if number == checkpoint_at:
            log.checkpoint(NOW)
    return log


def test_only_what_lies_behind_the_recovery_point_is_read() -> None:
    disk = MemoryDisk()
    log = filled(disk, 100, checkpoint_at=89, config=LARGE)
    behind = log.size_bytes * 10 // 100
    log = open_log(disk.crash(keep_all=True), LARGE)
    assert behind * 0.9 < log.recovered.scanned_bytes < behind * 1.2
    assert values_in(log) == [b"%d" % number for number in range(100)]
    assert log.producers.highwater(LEASED) == (0, 99)


@pytest.mark.parametrize("cut_bytes", [1, 9, 30, 60, 68])
def test_a_torn_tail_is_cut_off_and_said(cut_bytes: int, caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryDisk()
    filled(disk, 10, config=LARGE)
    found = disk.crash(keep_all=True)
    file = found.open(FIRST_LOG, write=True)
    file.truncate(file.size() - cut_bytes)
    log = open_log(found, LARGE)
    assert log.offline is None
    assert log.next_offset == 9
    assert "are cut off" in caplog.text
    assert put(log, b"9", pid=LEASED, sequence=9).base_offset == 9
    log = open_log(found.crash(keep_all=True), LARGE)
    assert values_in(log) == [b"%d" % number for number in range(10)]


@pytest.mark.parametrize("position", [5, 10, 16, 18, 25, 30, 45, 60, 65])
def test_a_wrong_byte_behind_the_recovery_point_ends_the_log_there(position: int) -> None:
    disk = MemoryDisk()
    log = filled(disk, 30, checkpoint_at=9, config=LARGE)
    place = log.segments[0].find(20)
    assert place is not None
    found = disk.crash(keep_all=True)
    found.flip(FIRST_LOG, place[0] + position)
    log = open_log(found, LARGE)
    assert log.offline is None
    assert (log.next_offset, log.producers.highwater(LEASED)) == (20, (0, 19))
    assert put(log, b"20", pid=LEASED, sequence=20).base_offset == 20


def test_a_hole_inside_a_large_batch_is_seen_by_its_crc() -> None:
    disk = MemoryDisk()
    log = open_log(disk, LARGE)
    put(log, b"small")
    put(log, b"x" * 9_000_000)
    found = disk.crash(keep_all=True)
    found.flip(FIRST_LOG, 8_000_000)
    assert open_log(found, LARGE).next_offset == 1


def test_a_batch_larger_than_what_is_read_at_once_is_recovered() -> None:
    disk = MemoryDisk()
    log = open_log(disk, LARGE)
    put(log, b"x" * 9_000_000)
    put(log, b"y")
    log = open_log(disk.crash(keep_all=True), LARGE)
    assert log.next_offset == 2


def test_damage_before_the_recovery_point_takes_the_partition_offline_and_touches_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = MemoryDisk()
    filled(disk, 60, checkpoint_at=59)
    found = disk.crash(keep_all=True)
    found.open(FIRST_LOG, write=True).truncate(found.size(FIRST_LOG) - 3)
    sizes = {name: found.size(f"{FOLDER}/{name}") for name in found.listdir(FOLDER)}
    with caplog.at_level(logging.ERROR):
        log = open_log(found)
    assert log.offline is not None
    assert FIRST_LOG in log.offline and "were written" in log.offline
    assert caplog.text.count("is offline") == 1
    with pytest.raises(LogStorageError):
        put(log, b"x")
    with pytest.raises(LogStorageError):
        log.read(0, 100)
    log.close()
    assert {name: found.size(f"{FOLDER}/{name}") for name in found.listdir(FOLDER)} == sizes


def test_a_missing_segment_takes_the_partition_offline() -> None:
    for number in (0, 1, 2):
        disk = MemoryDisk()
        log = filled(disk, 60)
        log.checkpoint(NOW)
        base = log.segments[1 + number].base_offset
        found = disk.crash(keep_all=True)
        found.unlink(f"{FOLDER}/{base:020d}.log")
        log = open_log(found)
        assert log.offline is not None and str(base) in log.offline


def test_a_first_segment_that_is_missing_right_below_a_recovery_point_is_missed() -> None:
    """Retention leaves a snapshot with the same name where it takes segments away."""
    disk = MemoryDisk()
    log = open_log(disk)
    while len(log.segments) == 1:
        log.checkpoint(NOW)
        put(log, b"x" * 20)
    base = log.segments[1].base_offset
    assert base in offsets_of(disk.listdir(FOLDER), SNAPSHOT)
    found = disk.crash(keep_all=True)
    assert open_log(deepcopy(found)).offline is None
    found.unlink(FIRST_LOG)
    assert check_partition(found, FOLDER).damage == [f"the segments before offset {base} are missing"]
    log = open_log(found)
    assert log.offline is not None and f"lacks the segments before {base}" in log.offline


@pytest.mark.parametrize("number", [0, 1, -1], ids=["closed", "the last that is closed", "active"])
def test_a_folder_in_the_place_of_an_index_takes_the_partition_offline_as_a_check_says(
    tmp_path: Path, number: int
) -> None:
    folder = f"{tmp_path}/orders-0"
    log = open_log(RealDisk(), folder=folder)
    while len(log.segments) < 3:
        put(log, b"x" * 20)
    path = log.segments[number].index.path
    log.close()
    Path(path).unlink()
    Path(path).mkdir()
    name = Path(path).name
    damage = check_partition(RealDisk(), folder).damage
    assert damage == [f"{name} is a folder. Move it away; the index is made anew"]
    log = open_log(RealDisk(), folder=folder)
    assert log.offline is not None and name in log.offline and "Move it away" in log.offline
    log.close()
    Path(path).rmdir()
    log = open_log(RealDisk(), folder=folder)
    assert log.offline is None
    log.close()


def test_a_folder_that_belongs_to_another_is_not_opened_and_not_touched() -> None:
    disk = MemoryDisk()
    log = open_log(disk, owner="orders/0")
    put(log, b"x")
    log.close()
    found = disk.crash(keep_all=True)
    for owner in ("orders/1", "payments/0"):
        found.open(f"{FOLDER}/left.tmp", create=True).pwritev([b"x"], 0)  # a start would remove it
        log = open_log(found, owner=owner)
        assert log.offline is not None
        assert f"{FOLDER} belongs to orders/0 (topic id/partition) and stands in the place of {owner}" in log.offline
        assert check_partition(found, FOLDER, owner=owner).damage == [log.offline]
        with pytest.raises(LogStorageError):
            put(log, b"y")
        log.close()
        assert f"{FOLDER}/left.tmp".rpartition("/")[2] in found.listdir(FOLDER)
    assert check_partition(found, FOLDER, owner="orders/0").damage == []
    log = open_log(found, owner="orders/0")
    assert values_in(log) == [b"x"]
    log.close()
    found.unlink(f"{FOLDER}/leader-epoch")  # what the message names
    assert values_in(open_log(found, owner="payments/0")) == [b"x"]


def test_a_folder_that_says_not_whose_it_is_is_taken_for_what_it_is_named() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    put(log, b"x")
    log.close()
    found = disk.crash(keep_all=True)
    log = open_log(found, owner="orders/0")
    assert (log.offline, values_in(log), log.leader_epoch) == (None, [b"x"], 1)
    log.close()
    assert open_log(found, owner="orders/1").offline is not None


def test_without_a_good_snapshot_the_bad_byte_below_it_is_still_damage() -> None:
    disk = MemoryDisk()
    log = filled(disk, 60, checkpoint_at=49, config=LARGE)
    place = log.segments[0].find(20)
    assert place is not None
    found = disk.crash(keep_all=True)
    found.flip(FIRST_LOG, place[0] + 65)
    found.flip(f"{FOLDER}/{50:020d}.producers", 30)
    log = open_log(found, LARGE)
    assert log.offline is not None and "nothing is cut off" in log.offline


def test_a_damaged_snapshot_gives_way_to_an_older_one_and_the_log_says_so(caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryDisk()
    log = open_log(disk, LARGE)
    for number in range(90):
        put(log, b"%d" % number, pid=LEASED, sequence=number)
        if number % 30 == 29:
            log.checkpoint(NOW)
    for damaged in ([90], [90, 60], [90, 60, 30]):
        found = disk.crash(keep_all=True)
        for offset in damaged:
            name = f"{FOLDER}/{offset:020d}.producers"
            if found.exists(name):
                found.flip(name, 50)
        caplog.clear()
        log = open_log(found, LARGE)
        assert log.offline is None
        assert f"{90:020d}.producers cannot be read" in caplog.text
        assert log.producers.highwater(LEASED) == (0, 89)
        assert put(log, b"89", pid=LEASED, sequence=89).decision is Decision.DUPLICATE


@pytest.mark.parametrize("damage", ["missing", "empty", "torn", "garbage"])
def test_an_index_is_made_anew(damage: str) -> None:
    for clean in (True, False):
        disk = MemoryDisk()
        log = filled(disk, 60)
        log.checkpoint(NOW)
        bases = [segment.base_offset for segment in log.segments]
        if clean:
            log.close()
        found = disk.crash(keep_all=True)
        for base in bases:
            path = f"{FOLDER}/{base:020d}.index"
            if damage == "missing":
                found.unlink(path)
                continue
            file = found.open(path, write=True)
            size = file.size()
            if damage == "garbage":
                file.pwritev([b"\x01" * (size // 2)], 0)
            else:
                file.truncate(0 if damage == "empty" else max(0, size - 7))
        log = open_log(found)
        assert log.offline is None, log.offline
        assert values_in(log) == [b"%d" % number for number in range(60)]
        for record in records_in(log):
            again = log.offset_for_time(record.timestamp_ms)
            assert again is not None and again.offset == 0


def test_leftovers_of_a_crash_are_removed() -> None:
    disk = MemoryDisk()
    filled(disk, 5).close()
    for name in ("x.tmp", f"{0:020d}.log.{5:020d}.cleaned", f"{0:020d}.index.{5:020d}.swap", f"{77:020d}.index"):
        disk.open(f"{FOLDER}/{name}", create=True)
    log = open_log(disk)
    assert log.next_offset == 5
    assert not [name for name in disk.listdir(FOLDER) if name.endswith((".tmp", ".cleaned", ".swap")) or "77" in name]


def test_a_snapshot_beyond_the_end_is_deleted() -> None:
    disk = MemoryDisk()
    log = filled(disk, 20, config=LARGE)
    log.checkpoint(NOW)
    for number in range(20, 40):
        put(log, b"%d" % number, pid=LEASED, sequence=number)
    log.checkpoint(NOW)
    log.truncate_to(30)
    assert f"{40:020d}.producers" not in disk.listdir(FOLDER)
    log = open_log(disk.crash(keep_all=True), LARGE)
    assert (log.next_offset, log.producers.highwater(LEASED)) == (30, (0, 29))


def test_old_batches_behind_a_torn_write_do_not_come_back() -> None:
    """Their leader epoch is older than that of the batch before them."""
    disk = MemoryDisk()
    filled(disk, 3, config=LARGE)
    found = disk.crash(keep_all=True)
    old_tail = found.open(FIRST_LOG).pread(1 << 20, 0)
    third = found.size(FIRST_LOG) * 2 // 3
    file = found.open(FIRST_LOG, write=True)
    file.truncate(third - 1)
    log = open_log(found, LARGE)
    assert log.next_offset == 1
    put(log, b"x", pid=LEASED, sequence=1)
    log.checkpoint(NOW)
    file.pwritev([old_tail[third:]], third)
    log = open_log(found.crash(keep_all=True), LARGE)
    assert values_in(log) == [b"0", b"x"]


def test_recovery_points_stay_within_their_bound_for_all_partitions_together() -> None:
    disk = MemoryDisk()
    limit_bytes = 20_000
    checkpointer = Checkpointer(limit_bytes)
    logs = [open_log(disk, LARGE, checkpointer=checkpointer, folder=f"data/orders-{number}") for number in range(5)]
    for number in range(600):
        put(logs[number * number % 5], b"x" * 100)
        assert checkpointer.behind_bytes < limit_bytes
    found = disk.crash(keep_all=True)
    again = [open_log(found, LARGE, folder=f"data/orders-{number}") for number in range(5)]
    assert sum(log.recovered.scanned_bytes for log in again) <= limit_bytes
    assert sum(log.next_offset for log in again) == 600


def test_a_log_with_staged_batches_is_left_out_of_a_checkpoint() -> None:
    """Its producers are ahead of what is written."""
    disk = MemoryDisk()
    checkpointer = Checkpointer()
    log = open_log(disk, LARGE, checkpointer=checkpointer)
    put(log, b"before", pid=LEASED, sequence=0)
    made = batch(b"staged", pid=LEASED, sequence=1)
    log.stage(made, check_produced(made), NOW)
    checkpointer.begin(NOW, everything=True).run()
    assert log.behind.size_bytes > 0
    assert open_log(disk.crash(keep_all=True), LARGE).producers.highwater(LEASED) == (0, 0)


def test_a_flush_of_what_was_cut_off_in_the_meantime_leaves_no_trace() -> None:
    disk = MemoryDisk()
    checkpointer = Checkpointer()
    log = filled(disk, 20, config=LARGE, checkpointer=checkpointer)
    late = checkpointer.begin(NOW, everything=True)
    log.truncate_to(10)
    late.run()
    for number in range(10, 15):
        put(log, b"other", pid=LEASED, sequence=number)
    log = open_log(disk.crash(keep_all=True), LARGE)
    assert (log.next_offset, log.producers.highwater(LEASED)) == (15, (0, 14))


def test_what_was_cut_off_does_not_come_back_after_a_power_failure() -> None:
    for seed in range(20):
        disk = MemoryDisk(seed)
        log = filled(disk, 40)
        log.checkpoint(NOW)
        log.truncate_to(25)
        assert open_log(disk.crash()).next_offset == 25, f"seed {seed}"


def test_an_index_that_points_to_a_wrong_place_is_made_anew() -> None:
    disk = MemoryDisk()
    log = filled(disk, 200, config=replace(LARGE, index_interval_bytes=200))
    log.checkpoint(NOW)
    for entry in range(1, 10):
        disk.flip(FIRST_INDEX, entry * 24 + 15, bit=1)
    for offset in (150, 3, 40, 199):
        assert read_header(log.read(offset, 1)).base_offset == offset


def test_an_index_has_an_entry_for_every_interval() -> None:
    disk = MemoryDisk()
    log = filled(disk, 200, config=replace(LARGE, index_interval_bytes=500))
    log.checkpoint(NOW)
    head = 1
    assert log.size_bytes // 600 <= disk.size(FIRST_INDEX) // 24 - head <= log.size_bytes // 500 + 1


def test_everything_flushed_survives_a_power_failure() -> None:
    for seed in range(20):
        disk = MemoryDisk(seed)
        log = filled(disk, 40)
        log.flush()
        put(log, b"unflushed", pid=LEASED, sequence=40)
        log = open_log(disk.crash())
        assert log.offline is None, f"seed {seed}: {log.offline}"
        assert values_in(log)[:40] == [b"%d" % number for number in range(40)], f"seed {seed}"


def test_the_log_start_survives_a_power_failure_right_after_it_moved() -> None:
    for seed in range(20):
        disk = MemoryDisk(seed)
        filled(disk, 40).flush()
        log = open_log(disk)
        log.delete_before(17)
        assert open_log(disk.crash()).log_start_offset == 17, f"seed {seed}"


def test_a_log_that_is_shorter_than_what_was_flushed_is_damaged_even_if_its_last_batch_is_whole() -> None:
    disk = MemoryDisk()
    log = filled(disk, 40, config=LARGE)
    found = log.segments.active.find(30)
    assert found is not None
    log.checkpoint(NOW)
    crashed = disk.crash(keep_all=True)
    crashed.flip(f"{FOLDER}/{40:020d}.producers", 50)
    crashed.open(FIRST_LOG, write=True).truncate(found[0])
    log = open_log(crashed, LARGE)
    assert log.offline is not None and "up to offset 40 were on the disk" in log.offline


def test_a_kill_while_a_log_starts_over_forgets_no_producer_of_its_last_snapshot() -> None:
    disk = MemoryDisk()
    log = filled(disk, 10, config=LARGE)
    log.checkpoint(NOW)
    for number in range(10, 20):
        put(log, b"%d" % number, pid=LEASED, sequence=number)
    log.delete_before(20)
    # A power failure took what was deleted, the next start removes the rest and is killed.
    for path in (FIRST_LOG, FIRST_LOG.replace(".log", ".index")):
        disk.unlink(path)
    log = open_log(disk, LARGE)
    assert (log.offline, log.next_offset, log.producers.highwater(LEASED)) == (None, 20, (0, 9))
    assert open_log(disk.crash(keep_all=True), LARGE).producers.highwater(LEASED) == (0, 9)
