"""Which records of a produced batch have no key: a compacted topic takes none of those, since none would ever go.

To know it the body has to be read, which only compacted topics ask for. It is walked without making anything of the
records, within bounds: what a client sent may unfold to far more than it was. Offsets must go up one by one, as the
header has promised: else a few kilobytes could unfold to a million equal records, all to be walked while others wait.
"""

from oncelog.records.errors import InvalidRecord
from oncelog.records.header import BatchHeader, Buffer
from oncelog.records.read import body_of, field_end, number

MAX_UNFOLDED_BYTES = 32 * 2**20
MAX_NAMED = 100
ATTRIBUTES_BYTES = 1


def records_without_key(batch: Buffer, header: BatchHeader) -> list[int]:
    """The first of them, by their place in the batch. Raises InvalidRecord for a body that cannot be read."""
    body = bytes(body_of(batch, 0, header, MAX_UNFOLDED_BYTES))
    found: list[int] = []
    at = 0
    for index in range(header.record_count):
        record_end, at = field_end(body, at, len(body))
        _, at = number(body, at + ATTRIBUTES_BYTES, record_end)  # timestamp delta
        offset_delta, at = number(body, at, record_end)
        if offset_delta != index:
            raise InvalidRecord(f"record {index} has the offset delta {offset_delta}")
        key_bytes, _ = number(body, at, record_end)
        if key_bytes == -1:
            found.append(index)
            if len(found) == MAX_NAMED:
                break
        at = record_end
    return found
