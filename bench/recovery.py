"""How long a start takes after a kill: `python bench/recovery.py [GB]`.

Part one: the rate at which what lies behind a recovery point is read, for small and for large batches. Part two:
opening so many GB (10 unless said otherwise) after a kill with the recovery points as far behind as they may be, in 1
and in 100 partitions. Full segments are sparse files with a real index, because a start reads nothing else of them.
"""

import os
import sys
import tempfile
import time

from oncelog.clock import Now
from oncelog.log.checkpoint import DEFAULT_LIMIT_BYTES, Checkpointer
from oncelog.log.config import LogConfig
from oncelog.log.disk import RealDisk
from oncelog.log.epochs import LeaderEpochs
from oncelog.log.handles import Handles
from oncelog.log.index import ENTRY
from oncelog.log.names import index_path, log_path
from oncelog.log.partition import PartitionLog
from oncelog.log.snapshots import RecoveryPoint, Snapshot, write_snapshot
from oncelog.producers import ProducerMap
from oncelog.records.build import build_batch
from oncelog.records.header import BatchHeader, read_header, restamp_crc

MIB = 1024 * 1024
GIB = 1024 * MIB
NOW = Now(1_700_000_000_000, 1)
PID = 7
NO_LIMIT = Checkpointer(1 << 60)


def opened(folder: str, checkpointer: Checkpointer, handles: Handles | None = None) -> PartitionLog:
    config = LogConfig(retention_ms=-1)
    return PartitionLog.open(RealDisk(), folder, config, ProducerMap(), NOW, checkpointer=checkpointer, handles=handles)


def append_up_to(log: PartitionLog, value_bytes: int, total_bytes: int) -> None:
    sequence = 0
    known = log.producers.highwater(PID)
    if known is not None:
        sequence = known[1] + 1
    begin = log.size_bytes
    while log.size_bytes < begin + total_bytes:
        for _ in range(min(64, 1 + total_bytes // (value_bytes + 70))):
            batch, header = one_batch(value_bytes, sequence)
            log.stage(batch, header, NOW)
            sequence += 1
        log.commit()


def one_batch(value_bytes: int, sequence: int) -> tuple[bytearray, BatchHeader]:
    batch = build_batch(
        [(None, bytes(value_bytes), (), NOW.wall_ms)], producer_id=PID, producer_epoch=0, base_sequence=sequence
    )
    return batch, read_header(batch)


def measure_scan(folder: str, value_bytes: int, total_bytes: int) -> None:
    log = opened(folder, NO_LIMIT)
    append_up_to(log, value_bytes, total_bytes)
    size = len(one_batch(value_bytes, 0)[0])
    log.segments.active.handles.close()
    begin = time.perf_counter()
    log = opened(folder, NO_LIMIT)
    took = time.perf_counter() - begin
    assert log.offline is None and log.recovered.scanned_bytes == log.size_bytes
    rate = log.size_bytes / took / 1e6
    print(f"scan    {size:8} byte batches: {rate:7.0f} MB/s, {log.next_offset / took:9.0f} batches/s")
    log.abandon()


def make_full_segments(folder: str, count: int, size_bytes: int) -> int:
    """Segments as a roll leaves them, but with holes for contents; answers the offset after them."""
    os.makedirs(folder)
    interval_bytes = 4096
    per_segment = size_bytes // interval_bytes
    for number in range(count):
        base = number * per_segment
        with open(log_path(folder, base), "wb") as log:
            log.truncate(size_bytes)
        with open(index_path(folder, base), "wb") as index:
            entries = (ENTRY.pack(base + at, at * interval_bytes, NOW.wall_ms) for at in range(per_segment))
            index.write(b"".join(entries) + ENTRY.pack(base + per_segment, size_bytes, NOW.wall_ms))
    return count * per_segment


def make_partition(folder: str, full_bytes: int, behind_bytes: int, value_bytes: int) -> None:
    """Full segments, then an active one with its recovery point, then what came after that point."""
    segment_bytes = min(GIB, full_bytes)
    next_offset = make_full_segments(folder, full_bytes // segment_bytes, segment_bytes)
    with open(log_path(folder, next_offset), "wb") as log_file:
        batch, _ = one_batch(value_bytes, 0)
        batch[0:8] = next_offset.to_bytes(8, "big")
        batch[12:16] = bytes(4)
        restamp_crc(batch, 0, len(batch))
        log_file.write(batch)
    write_point(folder, next_offset, len(batch))
    log = opened(folder, NO_LIMIT)
    assert log.offline is None, log.offline
    append_up_to(log, value_bytes, behind_bytes)
    log.segments.active.handles.close()


def write_point(folder: str, base_offset: int, size_bytes: int) -> None:
    producers = ProducerMap()
    producers.accept(PID, 0, 0, 1, base_offset, NOW.wall_ms, NOW)
    point = RecoveryPoint(base_offset + 1, base_offset, size_bytes, 0, NOW.wall_ms)
    write_snapshot(RealDisk(), folder, Snapshot(point, LeaderEpochs([(0, 0)]), producers.encode(NOW)))


def measure_start(folder: str, partitions: int, total_bytes: int, value_bytes: int) -> None:
    for number in range(partitions):
        make_partition(
            f"{folder}/p-{number}", total_bytes // partitions, DEFAULT_LIMIT_BYTES // partitions, value_bytes
        )
    handles, checkpointer = Handles(RealDisk()), Checkpointer()
    begin = time.perf_counter()
    logs = [opened(f"{folder}/p-{number}", checkpointer, handles) for number in range(partitions)]
    took = time.perf_counter() - begin
    assert all(log.offline is None for log in logs), [log.offline for log in logs]
    size = sum(log.size_bytes for log in logs)
    scanned = sum(log.recovered.scanned_bytes for log in logs)
    batch_bytes = len(one_batch(value_bytes, 0)[0])
    print(
        f"killed  {size / GIB:5.1f} GiB in {partitions:4} partitions, {scanned / MIB:4.0f} MiB behind in batches of "
        f"{batch_bytes:7} bytes: {took:5.2f} s"
    )
    for log in logs:
        log.close()
    begin = time.perf_counter()
    logs = [opened(f"{folder}/p-{number}", Checkpointer(), handles) for number in range(partitions)]
    print(f"clean   the same after a clean stop: {time.perf_counter() - begin:5.2f} s")


def main() -> None:
    total_bytes = int(float(sys.argv[1]) * GIB) if len(sys.argv) > 1 else 10 * GIB
    with tempfile.TemporaryDirectory() as folder:
        measure_scan(f"{folder}/scan-small", 100, 64 * MIB)
        measure_scan(f"{folder}/scan-large", 1_000_000, 256 * MIB)
        for partitions in (1, 100):
            for value_bytes in (100, 16_000):
                measure_start(f"{folder}/{partitions}-{value_bytes}", partitions, total_bytes, value_bytes)


if __name__ == "__main__":
    main()
