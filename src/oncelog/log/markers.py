"""The batches that end a transaction: made here, and told from other control batches."""

from oncelog.producers.markers import Marker, marker_headers, marker_key, marker_value, read_marker
from oncelog.records.build import build_batch
from oncelog.records.errors import InvalidRecord
from oncelog.records.header import Buffer
from oncelog.records.read import records_of


def marker_batch(pid: int, epoch: int, marker: Marker, timestamp_ms: int) -> bytearray:
    return build_batch(
        [(marker_key(marker), marker_value(marker), marker_headers(marker), timestamp_ms)],
        producer_id=pid,
        producer_epoch=epoch,
        timestamp_ms=timestamp_ms,
        is_control=True,
        is_transactional=True,
    )


def marker_of(batch: Buffer) -> Marker | None:
    """The marker of a control batch; None for one of another kind, and for one that compaction left empty."""
    try:
        records = records_of(batch, check_crc=False)
    except InvalidRecord:
        return None
    return read_marker(*records[0][:3]) if records else None
