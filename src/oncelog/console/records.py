"""A few records out of a batch, however many it has. Pure; runs in a thread, as unfolding a batch may take its time."""

from bisect import bisect_left
from dataclasses import dataclass

from oncelog.console.limits import MOST_WALKED, UNFOLDED_BYTES
from oncelog.records.errors import InvalidRecord, TooLarge
from oncelog.records.header import BatchHeader
from oncelog.records.read import Record, batch_header, body_of, field_end, number, records_in


@dataclass(slots=True)
class Budget:
    """The cost of one answer in all: each batch has bounds of its own, but a hundred bombs are too many."""

    unfolded_bytes: int = 2 * UNFOLDED_BYTES
    records: int = 2 * MOST_WALKED


def records_from(
    batch: bytes, offset: int, most: int, *, newest: bool = False, budget: Budget | None = None
) -> list[Record]:
    """The first records from the offset on, or the last ones of those. Raises InvalidRecord for damage, TooLarge for a
    batch with more to unfold or to walk over than one answer may."""
    header = batch_header(batch, 0)
    body = _body(batch, header, Budget() if budget is None else budget)
    starts = _starts(body, header)
    first = bisect_left(
        range(header.record_count), offset - header.base_offset, key=lambda at: _offset_delta(body, starts[at])
    )
    end = header.record_count if newest else min(header.record_count, first + most)
    first = max(first, end - most) if newest else first
    if first >= end:
        return []
    return records_in(body[starts[first] : starts[end]], header._replace(record_count=end - first))


def _body(batch: bytes, header: BatchHeader, budget: Budget) -> bytes:
    if header.record_count > MOST_WALKED:
        raise TooLarge(f"{header.record_count:,} records in one batch, {MOST_WALKED:,} are walked over at most")
    if header.record_count > budget.records or budget.unfolded_bytes <= 0:
        raise TooLarge("enough has been unfolded for one list")
    budget.records -= header.record_count
    limit_bytes = min(UNFOLDED_BYTES, budget.unfolded_bytes)
    budget.unfolded_bytes -= limit_bytes  # also where it turns out to be too much: that costs as much
    body = bytes(body_of(batch, 0, header, limit_bytes))
    budget.unfolded_bytes += limit_bytes - len(body)
    return body


def _starts(body: bytes, header: BatchHeader) -> list[int]:
    """The beginnings of all records, and the last one's end. Sizes of one and of two bytes are read here: a call for
    each of many small records is most of what a list costs."""
    place, end = 0, len(body)
    starts = [0]
    for _ in range(header.record_count):
        low, high = body[place : place + 2] if place + 2 <= end else (1, 0)
        if not low & 0x81:
            place += 1 + (low >> 1)
        elif high < 0x80 and not low & 1:
            place += 2 + ((low & 0x7F | high << 7) >> 1)
        else:
            place, _ = field_end(body, place, end)
        starts.append(place)
    if place != end:
        raise InvalidRecord(f"the records take {place} bytes where {end} are there")
    return starts


def _offset_delta(body: bytes, start: int) -> int:
    end, place = field_end(body, start, len(body))
    _, place = number(body, place + 1, end)
    return number(body, place, end)[0]
