"""The producer map as bytes: what a partition starts from instead of reading its whole log.

    head   magic "OLPM" | version u16 | two zero bytes | leased rows u32 | kafka rows u32
    rows   pid i64 | elapsed_ms i64 | timestamp_ms i64 | generation i16 | batches u8 | a zero byte | last sequence i32 |
           accepted records i32 | five times (first sequence i32, base offset i64), oldest first, unused ones zero
    tail   CRC-32C u32 of all before

Everything is big-endian and of fixed size. Times are kept as elapsed life, because a monotonic clock starts anew with
the machine: while nobody runs, nobody ages. Only this exact version is read; after an upgrade the log is read instead.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from crc32c import crc32c

from oncelog.clock import Now
from oncelog.producers.entries import Entries
from oncelog.producers.kafka_rules import BATCHES_REMEMBERED

MAGIC = b"OLPM"
VERSION = 1
_HEAD = struct.Struct(">4sH2xII")
_ROW = struct.Struct(">qqqhBxii" + "iq" * BATCHES_REMEMBERED)
_FIELDS = 7  # of a row, before the remembered batches
_CRC = struct.Struct(">I")

Row = tuple[int, ...]


class CorruptSnapshot(Exception):
    """Not a snapshot of this version, or not whole. Nothing is lost: the log holds everything that it held."""


class Tables(NamedTuple):
    leased: list[Row]
    kafka: list[Row]


class Producers(Protocol):
    """One kind of producers, as a snapshot sees it."""

    entries: Entries

    def __len__(self) -> int: ...

    def rows(self) -> Iterator[tuple[int, int]]: ...

    def insert(self, pid: int, generation: int, seen_ms: int) -> int: ...


def encode(leased: Producers, kafka: Producers, now: Now) -> bytes:
    out = bytearray(_HEAD.pack(MAGIC, VERSION, len(leased), len(kafka)))
    for kind in (leased, kafka):
        entries = kind.entries
        for pid, row in kind.rows():
            batches = entries.places(row)
            out += _ROW.pack(
                pid,
                max(0, now.monotonic_ms - entries.seen_ms[row]),
                entries.timestamp_ms[row],
                entries.generation[row],
                len(batches),
                entries.last_sequence[row],
                entries.accepted_records[row],
                *(field for at in batches for field in (entries.first_sequence[at], entries.base_offset[at])),
                *(0,) * (2 * (BATCHES_REMEMBERED - len(batches))),
            )
    out += _CRC.pack(crc32c(out))
    return bytes(out)


def decode(data: bytes) -> Tables:
    if len(data) < _HEAD.size + _CRC.size:
        raise CorruptSnapshot(f"{len(data)} bytes are too few for a producer snapshot")
    body = memoryview(data)[: -_CRC.size]
    (crc,) = _CRC.unpack_from(data, len(body))
    if crc32c(body) != crc:
        raise CorruptSnapshot("the CRC of the producer snapshot does not match its contents")
    magic, version, leased_rows, kafka_rows = _HEAD.unpack_from(data)
    if magic != MAGIC or version != VERSION:
        raise CorruptSnapshot(f"not a producer snapshot of version {VERSION}")
    if len(body) != _HEAD.size + (leased_rows + kafka_rows) * _ROW.size:
        raise CorruptSnapshot("the producer snapshot's length contradicts its number of rows")
    rows = list(_ROW.iter_unpack(body[_HEAD.size :]))
    return Tables(rows[:leased_rows], rows[leased_rows:])


def restore(rows: list[Row], producers: Producers, now: Now) -> None:
    entries = producers.entries
    for fields in rows:
        pid, elapsed_ms, timestamp_ms, generation, batches, last_sequence, accepted_records = fields[:_FIELDS]
        row = producers.insert(pid, generation, now.monotonic_ms - elapsed_ms)
        remembered = [(fields[at], fields[at + 1]) for at in range(_FIELDS, _FIELDS + 2 * batches, 2)]
        entries.put(row, last_sequence, accepted_records, timestamp_ms, remembered)
