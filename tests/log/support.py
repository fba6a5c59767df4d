"""What the tests of the log share: batches, a log on a disk, and what is in it."""

import os
from collections.abc import Iterable

from oncelog.clock import Now
from oncelog.log.checkpoint import Checkpointer
from oncelog.log.config import LogConfig
from oncelog.log.disk import Disk
from oncelog.log.partition import PartitionLog, Staged
from oncelog.log.partition_checking import check_partition
from oncelog.producers import ProducerMap
from oncelog.records.build import build_batch
from oncelog.records.errors import InvalidRecord
from oncelog.records.header import body_crc, check_produced, headers, read_header
from oncelog.records.read import Record, records_of

FOLDER = "data/orders-0"
START_MS = 1_700_000_000_000
LEASED = 7
OTHER_LEASED = 8
KAFKA_PID = (1 << 32) + 7
SMALL = LogConfig(segment_bytes=600, index_interval_bytes=150, retention_ms=-1)


def seed() -> int:
    """Set ONCELOG_SEED to the seed that a failure names, to see it again."""
    return int(os.environ.get("ONCELOG_SEED", "1"))


def at(ms: int) -> Now:
    return Now(START_MS + ms, ms)


NOW = at(0)


def batch(
    *values: bytes | None,
    pid: int = -1,
    generation: int = 0,
    sequence: int = -1,
    key: bytes | None = None,
    timestamp_ms: int = START_MS,
    codec: int = 0,
    is_transactional: bool = False,
) -> bytearray:
    return build_batch(
        [(key, value, (), timestamp_ms) for value in values],
        producer_id=pid,
        producer_epoch=generation if pid >= 0 else -1,
        base_sequence=sequence,
        timestamp_ms=timestamp_ms,
        codec=codec,
        is_transactional=is_transactional,
    )


def open_log(
    disk: Disk,
    config: LogConfig = SMALL,
    now: Now = NOW,
    *,
    checkpointer: Checkpointer | None = None,
    replicated: bool = False,
    leader_epoch: int | None = None,
    folder: str = FOLDER,
    stayed_up: bool = False,
    owner: str = "",
) -> PartitionLog:
    return PartitionLog.open(
        disk,
        folder,
        config,
        ProducerMap(),
        now,
        topic="orders",
        checkpointer=checkpointer,
        replicated=replicated,
        leader_epoch=leader_epoch,
        stayed_up=stayed_up,
        owner=owner,
    )


def append(log: PartitionLog, buffer: bytearray, now: Now = NOW) -> Staged:
    return log.append(buffer, check_produced(buffer), now)


def put(log: PartitionLog, *values: bytes | None, now: Now = NOW, **facts: object) -> Staged:
    return append(log, batch(*values, **facts), now)  # type: ignore[arg-type]


def batches_in(log: PartitionLog, max_bytes: int = 1 << 20) -> Iterable[bytes]:
    """Read as a consumer does, from the start to the high watermark."""
    offset = log.log_start_offset
    while offset < log.high_watermark:
        data = log.read(offset, max_bytes)
        if not data:
            return
        for position, header in headers(data):
            yield data[position : position + header.size_bytes]
            offset = header.last_offset + 1


def records_in(log: PartitionLog, max_bytes: int = 1 << 20) -> list[Record]:
    """By a reader that checks CRCs, also of what it then passes over."""
    found: list[Record] = []
    for each in batches_in(log, max_bytes):
        header = read_header(each)
        if body_crc(each, 0, len(each)) != header.crc:
            raise InvalidRecord(f"the CRC of the batch of offset {header.base_offset} is wrong")
        if not header.is_control:
            found += [record for record in records_of(each) if record.offset >= log.log_start_offset]
    return found


def values_in(log: PartitionLog, max_bytes: int = 1 << 20) -> list[bytes | None]:
    return [record.value for record in records_in(log, max_bytes)]


def note_end(log: PartitionLog) -> None:
    note = log.begin_note()
    if note is not None:
        note()


def put_in_the_place_of(path: str, disk: Disk, data: bytes) -> None:
    """As somebody does who copies another file there."""
    file = disk.open(path, write=True)
    file.truncate(0)
    file.pwritev([data], 0)


def check_refused(disk: Disk, config: LogConfig, why: str, *, stayed_up: bool) -> None:
    """A check says so, a start as well, and nothing is changed."""
    before = contents(disk)
    (damage,) = check_partition(disk, FOLDER, stayed_up=stayed_up).damage
    assert why in damage
    offline = open_log(disk, config, stayed_up=stayed_up).offline
    assert offline is not None and why in offline
    assert contents(disk) == before


def contents(disk: Disk) -> dict[str, bytes]:
    names = [name for name in disk.listdir(FOLDER) if name.endswith((".log", ".producers")) or name == "flushed"]
    return {name: disk.open(f"{FOLDER}/{name}").pread(1 << 30, 0) for name in names}
