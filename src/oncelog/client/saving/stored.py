"""Batches as they stand in a log, with the records that compaction has left of them: by compiled loops where these are
many."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Final, NamedTuple

from oncelog.client.consumer.decoding import HAS_COLUMNS, Damaged, columns_of
from oncelog.client.errors import KafkaError, KafkaException
from oncelog.records.header import BatchHeader
from oncelog.records.read import batches_with_records, records_of
from oncelog.slots import Identity, Place

MANY: Final = 5_000  # records: for less the loops are not loaded
MOST_BYTES: Final = 1 << 30
WANTED: Final = frozenset({"key", "value"})


class StoredBatch(NamedTuple):
    base_offset: int
    last_offset: int
    identity: Identity
    keys: list[bytes | None]
    values: list[bytes | None]


def batches_in(place: Place, data: memoryview) -> Iterator[StoredBatch]:
    """All but control batches. `data` is whole batches."""
    try:
        found = list(batches_with_records(data))
        if HAS_COLUMNS and sum(header.record_count for _, header in found) >= MANY:
            yield from _by_columns(data)
        else:
            yield from (_plain(data, at, header) for at, header in found)
    except (Damaged, ValueError) as why:
        words = f"{place.topic}-{place.partition} is damaged: {why}"
        raise KafkaException(KafkaError(KafkaError._BAD_MSG, words)) from None


def _plain(data: memoryview, at: int, header: BatchHeader) -> StoredBatch:
    records = records_of(data, at, limit_bytes=MOST_BYTES)
    identity = Identity(header.producer_id, header.producer_epoch)
    keys, values = [each.key for each in records], [each.value for each in records]
    return StoredBatch(header.base_offset, header.last_offset, identity, keys, values)


def _by_columns(data: memoryview) -> Iterator[StoredBatch]:
    for columns in columns_of(data, 0, check_crcs=True, wanted=WANTED):
        count, batches = columns.row_count, columns.batches
        assert columns.key is not None and columns.value is not None
        keys, values = columns.key.to_list(), columns.value.to_list()
        about = (batches.base_offset, batches.last_offset, batches.producer_id, batches.producer_epoch)
        rows = pairwise([*batches.first_row.tolist(), count])
        for base, last, pid, epoch, (first, end) in zip(*(each.tolist() for each in about), rows, strict=True):
            yield StoredBatch(base, last, Identity(pid, epoch), keys[first:end], values[first:end])
