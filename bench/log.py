"""What the log costs by itself, without sockets: `python bench/log.py`.

Prints microseconds a batch for stage + commit, and the rate of 1 MB reads beside a bare pread loop over the same file.
"""

import os
import tempfile
import time

from oncelog.clock import Now, SystemClock
from oncelog.log.config import LogConfig
from oncelog.log.disk import RealDisk
from oncelog.log.partition import PartitionLog
from oncelog.producers import ProducerMap
from oncelog.records.build import build_batch
from oncelog.records.header import BatchHeader, read_header

MIB = 1024 * 1024
LEASED_PID = 7
KAFKA_PID = (1 << 32) + 7


def batches(count: int, pid: int, value: bytes) -> list[tuple[bytearray, BatchHeader]]:
    made = []
    for sequence in range(count):
        base_sequence = sequence if pid > 0 else -1
        batch = build_batch(
            [(None, value, (), 1)], producer_id=pid, producer_epoch=0, base_sequence=base_sequence, timestamp_ms=1
        )
        made.append((batch, read_header(batch)))
    return made


def measure_appends(folder: str, pid: int, depth: int, value: bytes, count: int = 80_000) -> float:
    """The best of five rounds, in microseconds a batch."""
    log = PartitionLog.open(RealDisk(), folder, LogConfig(), ProducerMap(), SystemClock().now())
    made = batches(count, pid, value)
    now = SystemClock().now()
    best = float("inf")
    per_round = count // 5
    for start in range(0, count, per_round):
        begin = time.perf_counter()
        for first in range(start, start + per_round, depth):
            for batch, header in made[first : first + depth]:
                log.stage(batch, header, now)
            log.commit()
        best = min(best, (time.perf_counter() - begin) / per_round)
    log.close()
    return best * 1e6


def measure_bare_writes(folder: str, depth: int, value: bytes, count: int = 16_000) -> float:
    """What the operating system takes for the same writes."""
    made = [batch for batch, _ in batches(count, 0, value)]
    fd = os.open(f"{folder}/bare", os.O_RDWR | os.O_CREAT)
    begin = time.perf_counter()
    position = 0
    for first in range(0, count, depth):
        position += os.pwritev(fd, made[first : first + depth], position)
    took = time.perf_counter() - begin
    os.close(fd)
    return took / count * 1e6


def fill(folder: str, batch_bytes: int, total_bytes: int) -> PartitionLog:
    log = PartitionLog.open(RealDisk(), folder, LogConfig(), ProducerMap(), SystemClock().now())
    batch = build_batch([(None, bytes(batch_bytes), (), 1)], timestamp_ms=1)
    header, now = read_header(batch), Now(1, 1)
    copies = [bytearray(batch) for _ in range(64)]
    while log.size_bytes < total_bytes:
        for copy in copies:
            log.stage(copy, header, now)
        log.commit()
    return log


def measure_reads(log: PartitionLog) -> tuple[float, float]:
    """MB/s through the log by offsets as a consumer knows them, and by bare pread; in turns, the best of five."""
    path = log.segments[0].log_path
    size = log.segments[0].size_bytes
    fd = os.open(path, os.O_RDONLY)
    best_log = best_bare = 0.0
    offsets = []
    offset = 0
    while offset < log.segments[0].end_offset:
        data = log.read(offset, MIB)
        offsets.append(offset)
        offset = last_offset(data) + 1
    for _ in range(5):
        begin = time.perf_counter()
        total = 0
        for offset in offsets:
            total += len(log.read(offset, MIB))
        best_log = max(best_log, total / (time.perf_counter() - begin))
        begin = time.perf_counter()
        total = 0
        for position in range(0, size, MIB):
            total += len(os.pread(fd, MIB, position))
        best_bare = max(best_bare, total / (time.perf_counter() - begin))
    os.close(fd)
    return best_log / 1e6, best_bare / 1e6


def last_offset(data: bytes) -> int:
    at, last = 0, -1
    while at + 61 <= len(data):
        header = read_header(data, at)
        if at + header.size_bytes > len(data):
            break
        last = header.last_offset
        at += header.size_bytes
    return last


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for value_bytes in (100, 16_000):
            value = bytes(value_bytes)
            for depth in (1, 16):
                bare = measure_bare_writes(folder, depth, value)
                for name, pid in (("none", -1), ("leased", LEASED_PID), ("kafka", KAFKA_PID)):
                    count = 80_000 if value_bytes < 1000 else 5_000
                    took = measure_appends(f"{folder}/a-{value_bytes}-{depth}-{name}", pid, depth, value, count)
                    print(
                        f"append  {value_bytes:6} bytes  depth {depth:2}  pid {name:6}  {took:6.2f} us a batch, "
                        f"{bare:5.2f} of it the bare write"
                    )
        for batch_bytes in (100, 16_000, 900_000):
            log = fill(f"{folder}/r-{batch_bytes}", batch_bytes, 256 * MIB)
            through_log, bare = measure_reads(log)
            print(
                f"read    {batch_bytes:6} byte batches, 1 MiB a read: {through_log:6.0f} MB/s, "
                f"bare pread {bare:6.0f} MB/s, ratio {through_log / bare:.2f}"
            )
            log.close()


if __name__ == "__main__":
    main()
