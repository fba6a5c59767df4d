"""Wrong batches by the thousand, given to the pure reader and to the loops, which must agree on each.

`python -m tests.records.hostile` runs them all and prints how many; the tests run that once more with numba's own
bounds check compiled into every loop, which turns a read or write out of bounds into an error.
"""

import random
import struct
import sys
from collections.abc import Callable, Iterator

import numpy as np

from oncelog.records.build import build_batch
from oncelog.records.columns import HeadersColumn, decode, encode
from oncelog.records.errors import InvalidRecord
from oncelog.records.header import HEADER_BYTES, check_produced, headers, read_header
from oncelog.records.read import records_of
from oncelog.records.varint import zigzag
from tests.records.samples import (
    GOLDEN,
    TIMESTAMP_MS,
    Row,
    columns_of,
    rows_of_columns,
    some_records,
    with_true_crc,
)

LIMIT_BYTES = 1 << 20
SEED = 20_240_117


def samples() -> list[bytes]:
    """Small batches of every codec with every kind of field, ours and Kafka's."""
    rich = [
        (b"k", None, [("n", b"1"), ("", None)], TIMESTAMP_MS),
        (None, b"value", (), TIMESTAMP_MS + 300),
        (b"", b"v" * 70, [("ü", b"")], 0),
    ]
    ours = [
        bytes(build_batch(rich, codec=codec, producer_id=1, producer_epoch=0, base_sequence=0)) for codec in range(5)
    ]
    compacted = (GOLDEN / "compacted.log").read_bytes()
    return ours + [compacted[at : at + header.size_bytes] for at, header in headers(compacted)][:4]


def by_reader(batch: bytes) -> list[Row] | None:
    """The rows, or None where the batch is refused."""
    try:
        return [Row(*record) for record in records_of(batch, limit_bytes=LIMIT_BYTES, check_crc=False)]
    except InvalidRecord:
        return None


def by_loops(batch: bytes) -> list[Row] | None:
    try:
        columns = decode(batch, check_crc=False, limit_bytes=LIMIT_BYTES)
    except InvalidRecord:
        return None
    return rows_of_columns(columns) if columns.consumed_bytes == len(batch) else None


def agree(batch: bytes) -> bool:
    """Whether the batch is taken at all; both readers must say the same of it."""
    read, looped = by_reader(batch), by_loops(batch)
    if read_header(batch).is_control:
        return not looped  # consumers never look into one
    if read != looped:
        raise AssertionError(f"the reader gives {read}, the loops {looped}: {batch.hex()}")
    return read is not None


def flipped_bits(batch: bytes) -> Iterator[bytes]:
    """Every bit but those of the batch's length: another length is a truncation, which comes below."""
    for place in range(len(batch)):
        if 8 <= place < 12:
            continue
        for bit in range(8):
            changed = bytearray(batch)
            changed[place] ^= 1 << bit
            yield bytes(with_true_crc(changed))


def truncated(batch: bytes) -> Iterator[bytes]:
    """Cut anywhere, under a header that says just that length and a CRC that is right."""
    for size in range(HEADER_BYTES, len(batch)):
        yield _reframed(batch[:size])


def _reframed(batch: bytes) -> bytes:
    changed = bytearray(batch)
    struct.pack_into(">i", changed, 8, len(changed) - 12)
    return bytes(with_true_crc(changed))


NASTY_NUMBERS = [
    zigzag(value)
    for value in (-1, -2, 0, 1, 63, 64, 1 << 20, (1 << 31) - 1, -(1 << 31), 1 << 31, (1 << 63) - 1, -(1 << 63))
] + [b"\x80" * 9 + b"\x01", b"\x80" * 9 + b"\x02", b"\x80" * 10 + b"\x01", b"\xff" * 12, b"\x80", b"\x80\x00"]


def nasty_numbers(batch: bytes) -> Iterator[bytes]:
    """In place of every byte of the records, numbers at the edges of what there is."""
    for place in range(HEADER_BYTES, len(batch)):
        for number in NASTY_NUMBERS:
            yield _reframed(batch[:place] + number + batch[place + 1 :])


def nasty_headers(batch: bytes) -> Iterator[bytes]:
    """In every field of the header, numbers at the edges of what there is."""
    fields = ((0, 8), (12, 4), (16, 1), (21, 2), (23, 4), (27, 8), (35, 8), (43, 8), (51, 2), (53, 4), (57, 4))
    for place, width in fields:
        most = (1 << (8 * width - 1)) - 1
        for value in (0, 1, 2, 3, 4, 100, -1, -2, most, most - 1, -most - 1):
            changed = bytearray(batch)
            changed[place : place + width] = (value & ((1 << 8 * width) - 1)).to_bytes(width, "big")
            yield bytes(with_true_crc(changed))


def shuffled(batch: bytes) -> Iterator[bytes]:
    """Several wounds at once, drawn from a seed."""
    chance = random.Random(SEED + len(batch))
    for _ in range(400):
        body = bytearray(batch[HEADER_BYTES:])
        for _ in range(chance.randint(1, 4)):
            place = chance.randrange(len(body) + 1)
            wound = chance.choice((b"", bytes((chance.randrange(256),)), chance.choice(NASTY_NUMBERS)))
            body[place : place + chance.randint(0, 4)] = wound
        yield _reframed(batch[:HEADER_BYTES] + bytes(body))


KINDS: tuple[Callable[[bytes], Iterator[bytes]], ...] = (
    flipped_bits,
    truncated,
    nasty_numbers,
    nasty_headers,
    shuffled,
)


def run() -> tuple[int, int]:
    """How many batches were tried, and how many of them were taken."""
    tried = taken = 0
    for batch in [*samples(), bytes(build_batch(some_records(3), codec=4))]:
        for kind in KINDS:
            for changed in kind(batch):
                tried += 1
                taken += agree(changed)
    return tried, taken


def wrong_columns(count: int = 3000) -> int:
    """Columns whose ends were spoiled: refused, or encoded to sound batches. Returns how many were refused."""
    chance = random.Random(SEED)
    refused = 0
    for _ in range(count):
        arguments = columns_of(some_records(6))
        headers: HeadersColumn = arguments["headers"]
        ends = chance.choice(
            [column.ends for column in (arguments["key"], arguments["value"], headers, headers.names, headers.values)]
        )
        ends[chance.randrange(len(ends))] = chance.choice((-1, 0, 1, 3, 5, 100, (1 << 31) - 1, -(1 << 31)))
        parts = chance.choice((None, np.array([chance.choice((-1, 0, 1, 2, 3)) for _ in range(6)], np.int32)))
        try:
            batches = encode(**arguments, parts=parts, part_count=3, target_bytes=chance.choice((100, 10_000)))
        except ValueError:
            refused += 1
            continue
        for batch in batches:
            check_produced(batch.data)
            records_of(batch.data)
    return refused


if __name__ == "__main__":
    tried, taken = run()
    sys.stdout.write(f"{tried} tried, {taken} taken, {wrong_columns()} wrong columns\n")
