"""The producer map as bytes: what a partition starts from instead of reading its whole log.

    head    magic "OLPM" | version u16 | two zero bytes | monotonic_ms i64 | leases u32 | their rows u32 |
            Kafka pids u32 | their rows u32
    floor   from version 3 on: pid u32 | raised_ms i64
    blind   from version 4 on: i64, monotonic; who wrote before that is not known. Version 5: -2^63 where all are known
    tables  first of the leases, then of the Kafka pids: pid i64 and row u32 of each producer, then what the rows hold,
            column by column: generation i16 | last sequence i32 | accepted records i32 | seen_ms i64 | timestamp_ms i64
            | batches u8 | five first sequences i32 | five base offsets i64
    txns    in version 5: u32 how many transactions are open, u32 how many coordinators are known; pid i64 and first
            offset i64 of each that is open, pid i64 and epoch i32 of each coordinator
    tail    CRC-32C u32 of all before

Everything is big-endian. Columns go out and come in whole, because the appending thread waits for it; rows that nobody
has any more go along unless they are many. The pids of leases are as their ring counts them, modulo 2^32 - 1.
Times are kept as elapsed life, as of the head's reading of a monotonic clock, which starts anew with the machine: while
nobody runs, nobody ages. Version 2 is read too; for any other the log is read instead. Versions 4 and 5 are written
only where there is something to say in them.
"""

import struct
import sys
from array import array
from typing import NamedTuple, Protocol

from crc32c import crc32c

from oncelog.clock import Now
from oncelog.producers.entries import COLUMNS, ROW_BYTES, Columns, Entries
from oncelog.producers.leased_producers import Floor
from oncelog.producers.transactions import Kept

MAGIC = b"OLPM"
WITHOUT_FLOOR, WITHOUT_BLIND, WITHOUT_TRANSACTIONS, VERSION = 2, 3, 4, 5
NO_TRANSACTIONS: Kept = (), ()
_HEAD = struct.Struct(">4sH2xqIIII")
_FLOOR = struct.Struct(">Iq")
_BLIND = struct.Struct(">q")
_TRANSACTIONS = struct.Struct(">II")
_OPEN = struct.Struct(">qq")
_COORDINATOR = struct.Struct(">qi")
_SIGHTED = -(2**63)
_CRC = struct.Struct(">I")
_PLACE_BYTES = 12  # pid and row
_SPARSE = 4  # where fewer than one row in this many is anybody's, those are picked out


class CorruptSnapshot(Exception):
    """Not a snapshot of this version, or not whole. Nothing is lost: the log holds everything that it held."""


class Table(NamedTuple):
    """One kind of producers."""

    pids: "array[int]"
    rows: "array[int]"
    columns: Columns


class Tables(NamedTuple):
    taken_ms: int  # monotonic
    floor: Floor
    blind_ms: int | None
    leased: Table
    kafka: Table
    transactions: Kept


class Producers(Protocol):
    """One kind of producers, as a snapshot sees it."""

    entries: Entries

    def places(self) -> "tuple[array[int], array[int]]":
        """The pids and their rows."""
        ...

    def put_back(self, pids: "array[int]", rows: "array[int]", entries: Entries) -> None: ...


def encode(
    leased: Producers,
    kafka: Producers,
    floor: Floor,
    blind_ms: int | None,
    now: Now,
    transactions: Kept = NO_TRANSACTIONS,
) -> bytes:
    tables = (_table(leased), _table(kafka))
    counts = (count for table in tables for count in (len(table.pids), len(table.columns[0])))
    version, blind = (WITHOUT_BLIND, b"") if blind_ms is None else (WITHOUT_TRANSACTIONS, _BLIND.pack(blind_ms))
    if transactions != NO_TRANSACTIONS:
        version, blind = VERSION, _BLIND.pack(_SIGHTED if blind_ms is None else blind_ms)
    parts = [_HEAD.pack(MAGIC, version, now.monotonic_ms, *counts), _FLOOR.pack(*floor), blind]
    parts += (_big_endian(column) for table in tables for column in (table.pids, table.rows, *table.columns))
    if version == VERSION:
        opened, coordinators = transactions
        parts.append(_TRANSACTIONS.pack(len(opened), len(coordinators)))
        parts += (_OPEN.pack(*each) for each in opened)
        parts += (_COORDINATOR.pack(*each) for each in coordinators)
    out = b"".join(parts)
    return out + _CRC.pack(crc32c(out))


def decode(data: bytes) -> Tables:
    try:
        return _decoded(data)
    except struct.error as error:
        raise CorruptSnapshot(f"the producer snapshot ends within a number: {error}") from error


def _decoded(data: bytes) -> Tables:
    if len(data) < _HEAD.size + _CRC.size:
        raise CorruptSnapshot(f"{len(data)} bytes are too few for a producer snapshot")
    body = memoryview(data)[: -_CRC.size]
    (crc,) = _CRC.unpack_from(data, len(body))
    if crc32c(body) != crc:
        raise CorruptSnapshot("the CRC of the producer snapshot does not match its contents")
    magic, version, taken_ms, leases, lease_rows, pids, pid_rows = _HEAD.unpack_from(data)
    if magic != MAGIC or not WITHOUT_FLOOR <= version <= VERSION:
        raise CorruptSnapshot(f"not a producer snapshot of version {WITHOUT_FLOOR} to {VERSION}")
    floor, blind_ms, tables_at = Floor(), None, _HEAD.size
    if version > WITHOUT_FLOOR:
        floor, tables_at = Floor._make(_FLOOR.unpack_from(data, tables_at)), tables_at + _FLOOR.size
    if version > WITHOUT_BLIND:
        (blind_ms,), tables_at = _BLIND.unpack_from(data, tables_at), tables_at + _BLIND.size
        blind_ms = None if blind_ms == _SIGHTED else blind_ms
    end = tables_at + (leases + pids) * _PLACE_BYTES + (lease_rows + pid_rows) * ROW_BYTES
    transactions = NO_TRANSACTIONS if version < VERSION else _read_transactions(body, end)
    if version < VERSION and len(body) != end:
        raise CorruptSnapshot("the producer snapshot's length contradicts its number of rows")
    leased, at = _read_table(body, tables_at, leases, lease_rows)
    kafka, _ = _read_table(body, at, pids, pid_rows)
    return Tables(taken_ms, floor, blind_ms, leased, kafka, transactions)


def _read_transactions(body: memoryview, at: int) -> Kept:
    if len(body) < at + _TRANSACTIONS.size:
        raise CorruptSnapshot("the producer snapshot ends before its transactions")
    opened, coordinators = _TRANSACTIONS.unpack_from(body, at)
    at += _TRANSACTIONS.size
    between = at + opened * _OPEN.size
    if len(body) != between + coordinators * _COORDINATOR.size:
        raise CorruptSnapshot("the producer snapshot's length contradicts its number of transactions")
    return tuple(_OPEN.iter_unpack(body[at:between])), tuple(_COORDINATOR.iter_unpack(body[between:]))


def restore(table: Table, producers: Producers, taken_ms: int, now: Now) -> None:
    entries = Entries.of(producers.entries.capacity, table.columns, table.rows)
    entries.shift_seen(now.monotonic_ms - taken_ms)
    producers.put_back(table.pids, table.rows, entries)


def _table(producers: Producers) -> Table:
    pids, rows = producers.places()
    entries = producers.entries
    if len(rows) * _SPARSE < entries.rows:
        return Table(pids, array("I", range(len(rows))), entries.picked(rows))
    return Table(pids, rows, entries.columns)


def _read_table(body: memoryview, at: int, producers: int, rows: int) -> tuple[Table, int]:
    columns: list[array[int]] = []
    for kind, items in (("q", producers), ("I", producers), *((kind, rows * width) for kind, width in COLUMNS)):
        column = array(kind)
        size_bytes = items * column.itemsize
        column.frombytes(body[at : at + size_bytes])
        if sys.byteorder == "little":
            column.byteswap()
        columns.append(column)
        at += size_bytes
    pids, numbers, *held = columns
    if len(set(numbers)) != producers or (producers and max(numbers) >= rows):
        raise CorruptSnapshot("the producer snapshot gives a row to two producers, or one that is not there")
    return Table(pids, numbers, tuple(held)), at


def _big_endian(column: "array[int]") -> bytes:
    if sys.byteorder == "little":
        column = column[:]
        column.byteswap()
    return column.tobytes()
