"""Of each key the last record stays; offsets, sequences and producers stay as they were."""

import errno
from dataclasses import replace

import pytest

from oncelog.log.config import LogConfig
from oncelog.log.errors import LogStorageError
from oncelog.log.partition import PartitionLog
from oncelog.producers import Decision
from oncelog.records.build import build_batch
from oncelog.records.header import check_produced, read_header, restamp_crc
from oncelog.records.read import Record, records_of
from tests.log.memory_disk import MemoryDisk
from tests.log.support import (
    FOLDER,
    KAFKA_PID,
    LEASED,
    NOW,
    OTHER_LEASED,
    START_MS,
    append,
    at,
    batches_in,
    open_log,
    put,
    records_in,
)

HOUR_MS = 3_600_000
CONFIG = LogConfig(
    segment_bytes=700,
    index_interval_bytes=150,
    retention_ms=-1,
    cleanup_policy=("compact",),
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=HOUR_MS,
)


def put_keys(log: PartitionLog, keys: bytes, first: int = 0, codec: int = 0) -> None:
    for number, key in enumerate(keys):
        put(log, b"%d" % (first + number), key=bytes([key]), codec=codec, timestamp_ms=START_MS + first + number)


def close_active(log: PartitionLog) -> None:
    """Put what was appended into closed segments."""
    log.segments.roll()


def latest(log: PartitionLog) -> dict[bytes | None, tuple[int, bytes | None]]:
    return {record.key: (record.offset, record.value) for record in records_in(log)}


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_the_last_record_of_each_key_stays_at_its_offset(codec: int) -> None:
    disk = MemoryDisk()
    log = open_log(disk, CONFIG)
    put_keys(log, b"abcabcabcddda" * 8, codec=codec)
    before, size = latest(log), log.size_bytes
    close_active(log)
    assert log.compact(NOW)
    assert [record.key for record in records_in(log)] == [b"b", b"c", b"d", b"a"]
    assert log.segments.closed[-1].end_offset == log.next_offset
    assert latest(log) == before
    assert log.size_bytes < size / 5
    again = open_log(disk.crash(), CONFIG)
    assert again.offline is None, again.offline
    assert latest(again) == before
    assert again.next_offset == log.next_offset


def test_the_active_segment_is_left_alone() -> None:
    log = open_log(MemoryDisk(), replace(CONFIG, segment_bytes=1 << 20))
    put_keys(log, b"aaa")
    assert not log.compact(NOW)
    assert len(records_in(log)) == 3


def test_within_a_batch_single_records_are_taken_out() -> None:
    log = open_log(MemoryDisk(), CONFIG)
    rows = [(b"a", b"1", (), START_MS), (b"b", b"2", ((b"h", b"v"),), START_MS + 5), (b"a", b"3", (), START_MS + 2)]
    append(log, build_batch(rows, codec=4, producer_id=LEASED, producer_epoch=0, base_sequence=0))
    close_active(log)
    log.compact(NOW)
    stored = next(iter(batches_in(log)))
    header = read_header(stored)
    assert (header.base_offset, header.last_offset_delta, header.record_count) == (0, 2, 2)
    assert (header.base_sequence, header.max_timestamp) == (0, START_MS + 5)
    assert [(record.key, record.value, record.offset, record.timestamp_ms) for record in records_of(stored)] == [
        (b"b", b"2", 1, START_MS + 5),
        (b"a", b"3", 2, START_MS + 2),
    ]


def test_small_segments_become_one() -> None:
    log = open_log(MemoryDisk(), CONFIG)
    put_keys(log, b"abcdefgh" * 20)
    close_active(log)
    assert len(log.segments) > 10
    for _ in range(6):
        put_keys(log, b"i")
        close_active(log)
        log.compact(NOW)
    assert len(log.segments) <= 4


def test_a_tombstone_stays_for_a_time_after_the_first_pass_and_then_goes() -> None:
    log = open_log(MemoryDisk(), CONFIG)
    put(log, b"1", key=b"a")
    put(log, None, key=b"a")
    close_active(log)
    log.compact(at(0))
    assert latest(log) == {b"a": (1, None)}
    for hours, keys in ((0.5, {b"a", b"x"}), (1.5, {b"x"})):
        put(log, b"1", key=b"x")
        close_active(log)
        log.compact(at(int(hours * HOUR_MS)))
        assert set(latest(log)) == keys


@pytest.mark.parametrize("pid", [LEASED, KAFKA_PID])
def test_the_last_batch_of_a_live_producer_stays_as_an_empty_one(pid: int) -> None:
    disk = MemoryDisk()
    log = open_log(disk, CONFIG)
    put(log, b"1", b"2", key=b"a", pid=pid, generation=3, sequence=0)
    put(log, b"3", b"4", key=b"a", pid=pid, generation=3, sequence=2)
    put_keys(log, b"a")
    close_active(log)
    log.compact(NOW)
    kept = [read_header(each) for each in batches_in(log)]
    assert [(each.base_offset, each.record_count, each.last_offset) for each in kept] == [(2, 0, 3), (4, 1, 4)]
    found = disk.crash(keep_all=True)
    for name in found.listdir(FOLDER):
        if name.endswith(".producers"):
            found.unlink(f"{FOLDER}/{name}")
    again = open_log(found, CONFIG)
    assert again.offline is None
    assert again.producers.highwater(pid) == (3, 3)
    duplicate = put(again, b"3", b"4", key=b"a", pid=pid, generation=3, sequence=2)
    assert (duplicate.decision, duplicate.base_offset) == (Decision.DUPLICATE, 2)


def test_a_fence_in_force_stays_and_an_older_one_goes() -> None:
    log = open_log(MemoryDisk(), CONFIG)
    put(log, b"1", key=b"a", pid=LEASED, sequence=0)
    put(log, b"1", key=b"a", pid=OTHER_LEASED, sequence=0)
    log.fence(LEASED, 1, NOW)
    log.fence(LEASED, 2, NOW)
    close_active(log)
    log.compact(NOW)
    fences = [read_header(each) for each in batches_in(log) if read_header(each).is_control]
    assert [(each.producer_id, each.producer_epoch) for each in fences] == [(LEASED, 2)]


def test_a_segment_tells_where_it_ends_after_its_last_records_are_gone() -> None:
    disk = MemoryDisk()
    log = open_log(disk, CONFIG)
    put_keys(log, b"abc")
    put(log, b"without a key")
    log.segments.roll()
    log.compact(NOW)
    put_keys(log, b"d")
    before = latest(log)
    disk = disk.crash(keep_all=True)
    for name in disk.listdir(FOLDER):
        if name.endswith((".producers", ".index")):
            disk.unlink(f"{FOLDER}/{name}")
    for _ in range(3):
        log = open_log(disk, CONFIG)
        assert log.offline is None
        assert latest(log) == before
        disk = disk.crash(keep_all=True)


def test_more_keys_than_one_pass_remembers_take_several_passes() -> None:
    log = open_log(MemoryDisk(), replace(CONFIG, key_map_limit=10))
    keys = [b"%d" % (number % 37) for number in range(150)]
    for number, key in enumerate(keys):
        put(log, b"%d" % number, key=key)
    before = latest(log)
    close_active(log)
    passes = 0
    while log.compact(NOW):
        passes += 1
        assert latest(log) == before
    assert passes > 3
    assert len(records_in(log)) == 37


def test_records_younger_than_the_lag_stay() -> None:
    log = open_log(MemoryDisk(), replace(CONFIG, min_compaction_lag_ms=HOUR_MS))
    put_keys(log, b"aaaaaaaaaaaaaaaaaaaa")
    close_active(log)
    assert not log.compact(at(HOUR_MS // 2))
    assert log.compact(at(2 * HOUR_MS))


def test_little_dirt_is_not_worth_it_unless_it_is_old() -> None:
    log = open_log(MemoryDisk(), replace(CONFIG, min_cleanable_dirty_ratio=0.5))
    put_keys(log, bytes(range(65, 105)))
    close_active(log)
    assert log.compact(NOW)
    put_keys(log, b"A")
    close_active(log)
    assert not log.compact(NOW)
    log.configure(replace(log.config, max_compaction_lag_ms=HOUR_MS))
    assert not log.compact(NOW)
    assert log.compact(at(2 * HOUR_MS))


def test_damage_below_the_recovery_point_takes_the_partition_offline() -> None:
    disk = MemoryDisk()
    log = open_log(disk, CONFIG)
    put_keys(log, b"abc" * 10)
    close_active(log)
    disk.flip(f"{FOLDER}/{0:020d}.log", 100)
    log.compact(NOW)
    assert log.offline is not None
    assert "the CRC of the batch of offset 1 is wrong" in log.offline
    assert not [name for name in disk.listdir(FOLDER) if "cleaned" in name]


def test_a_full_disk_leaves_the_log_as_it_was() -> None:
    disk = MemoryDisk()
    log = open_log(disk, CONFIG)
    put_keys(log, b"abcdefgh" * 10)
    close_active(log)
    before = latest(log), log.size_bytes
    job = log.begin_compaction(NOW)
    assert job is not None
    disk.capacity_bytes = (1 << 40) - disk.free_bytes("data") + 20
    job.run()
    with pytest.raises(LogStorageError):
        log.finish_compaction(job)
    assert (latest(log), log.size_bytes) == before
    assert not [name for name in disk.listdir(FOLDER) if "cleaned" in name]
    disk.heal()
    assert log.compact(NOW)
    assert latest(log) == before[0]


@pytest.mark.parametrize("batches", [0, 1, 17, 30, 31, 45, 59])
def test_a_job_that_is_stopped_ends_before_its_next_batch_and_changes_nothing(
    batches: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = MemoryDisk()
    log = open_log(disk, CONFIG)
    put_keys(log, b"abc" * 10)
    close_active(log)
    job = log.begin_compaction(NOW)
    assert job is not None
    before = latest(log), log.size_bytes, sorted(disk.listdir(FOLDER))
    looked_at: list[bytes] = []  # each of the thirty once for its keys, and once to be cleaned

    def look(batch: bytes) -> list[Record] | None:
        looked_at.append(batch)
        if len(looked_at) == batches:
            job.stop()
        return records_of(batch)

    monkeypatch.setattr("oncelog.log.cleaning.records_or_none", look)
    if batches == 0:
        job.stop()
    job.run()
    assert len(looked_at) == batches
    log.finish_compaction(job)
    assert (latest(log), log.size_bytes, sorted(disk.listdir(FOLDER))) == before
    assert log.offline is None
    assert log.compact(NOW)
    assert latest(log) == before[0] and log.size_bytes < before[1]


def test_appends_go_on_while_a_job_runs_and_a_job_on_what_is_gone_is_dropped() -> None:
    log = open_log(MemoryDisk(), CONFIG)
    put_keys(log, b"abc" * 20)
    close_active(log)
    job = log.begin_compaction(NOW)
    assert job is not None
    put_keys(log, b"abc" * 20, first=60)
    job.run()
    log.finish_compaction(job)
    assert latest(log)[b"c"] == (119, b"119")
    close_active(log)
    job = log.begin_compaction(NOW)
    assert job is not None
    job.run()
    log.truncate_to(70)
    before = latest(log)
    log.finish_compaction(job)
    assert latest(log) == before


def test_a_body_that_is_no_records_is_left_as_it_is() -> None:
    log = open_log(MemoryDisk(), CONFIG)
    made = build_batch([(b"a", b"1", (), START_MS)])
    made[61] ^= 0x55
    restamp_crc(made, 0, len(made))
    log.append(made, check_produced(made), NOW)
    put_keys(log, b"aa")
    close_active(log)
    log.compact(NOW)
    assert [read_header(each).base_offset for each in batches_in(log)] == [0, 2]


@pytest.mark.parametrize("codec", [0, 1, 4])
def test_an_emptied_batch_of_a_live_producer_names_no_codec_since_clients_would_unfold_nothing(codec: int) -> None:
    log = open_log(MemoryDisk(), CONFIG)
    put(log, b"old", key=b"k", pid=LEASED, sequence=0, codec=codec)
    put(log, b"new", key=b"k")
    close_active(log)
    log.compact(NOW)
    emptied = read_header(next(iter(batches_in(log))))
    assert (emptied.record_count, emptied.producer_id, emptied.codec) == (0, LEASED, 0)


def test_the_latest_record_is_found_behind_a_later_batch_that_was_emptied() -> None:
    log = open_log(MemoryDisk(), CONFIG)
    put(log, b"1", key=b"a", timestamp_ms=START_MS + 5)
    put(log, b"2" * 200, key=b"b", timestamp_ms=START_MS + 1)
    put(log, b"3", key=b"k", timestamp_ms=START_MS + 9, pid=LEASED, sequence=0)
    put(log, b"4", key=b"k", timestamp_ms=START_MS)
    close_active(log)
    log.compact(NOW)
    latest_record = log.max_timestamp()
    assert latest_record is not None and latest_record.timestamp_ms == START_MS + 5


@pytest.mark.parametrize("step", ["decide_swap", "finish_swap"])
def test_a_swap_that_the_disk_stops_never_shows_anything_but_the_log(
    step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "refused")

    disk = MemoryDisk()
    log = open_log(disk, CONFIG)
    put_keys(log, b"abcabcabcddda" * 8)
    close_active(log)
    before = latest(log)
    with monkeypatch.context() as patched:
        patched.setattr(f"oncelog.log.compaction.{step}", fail)
        with pytest.raises(LogStorageError):
            log.compact(NOW)
    if step == "decide_swap":
        assert latest(log) == before and log.compact(NOW)
    else:
        assert log.offline is not None and "half-way" in log.offline
        with pytest.raises(LogStorageError):
            log.read(0, 1 << 20)
    assert latest(open_log(disk, CONFIG)) == before
