"""How far a lane got, before anything is sent: by what is written down, what the broker remembers, and the log itself.

What was written since the lane's last record is read back and compared with the source, so a copy that went wrong in
any way stops here. Records that compaction has taken on either side meanwhile cannot be compared, and are not missed:
which record fills which slot was written down before it was sent.
"""

from collections.abc import Iterator
from threading import Event
from typing import Final, NamedTuple

import numpy as np

from oncelog.client.door import (
    Range,
    Warm,
    cool,
    end_offsets,
    read_batches,
    read_columns,
    remembered_or_none,
    surely_remembered_ms,
    warm,
)
from oncelog.clock import monotonic_s, wall_s
from oncelog.producers.sequences import SEQUENCE_MASK, SEQUENCE_WINDOW
from oncelog.records.column_types import Columns, Int64s
from oncelog.records.decode_columns import decode
from oncelog.records.header import headers
from oncelog.slots import HighWater, Place, Span
from oncelog.slots.chain import SavedPartition
from oncelog.slots.comparing_columns import Rows, first_difference
from oncelog.slots.questions import Says
from oncelog.slots.resuming import memory_says, refusal
from oncelog.slots.scan import belongs_to
from oncelog.slots.standing import filled_since
from oncelog.spark.copying.job import CopyRefused, Job
from oncelog.spark.copying.lane import Lane
from oncelog.spark.copying.mapping import NotMapped

PATIENCE_S: Final = 60.0
PAUSE_S: Final = 0.1


class Resumed(NamedTuple):
    lane: Lane
    filled: int  # the next record fills this slot
    offset: int  # of the source: the next record is this one, or the first behind it
    next_offset: int  # nothing of what the lane is yet to write lies below, in the destination


class Written(NamedTuple):
    """One batch of the lane in the destination."""

    base_offset: int
    last_offset: int
    first_slot: int


def resume(job: Job, lane: Lane) -> Resumed:
    client = warm(job.destination.reading)
    try:
        return _Resuming(job, lane, client).resumed()
    finally:
        cool(client)


def check_written(job: Job, lane: Lane, filled: int) -> None:
    """Read back what stands in the slots from `lane.done` on and compare it, as a resumed copy would."""
    client = warm(job.destination.reading)
    try:
        resuming = _Resuming(job, lane, client)
        resuming.read_back(resuming.end_offset())
        if resuming.filled < filled:
            raise resuming.refusal(f"slots {resuming.filled} to {filled} were acknowledged, and are not there")
    finally:
        cool(client)


class _Resuming:
    def __init__(self, job: Job, lane: Lane, client: Warm) -> None:
        self.filled = lane.done
        self._job = job
        # A lane that is at rest has nothing under way; should there be something all the same, it is another copy's.
        self._is_at_rest = lane.is_at_rest
        self._lane = lane.opened() if lane.is_at_rest and not job.is_compacted else lane
        self._client = client
        self._place = Place(job.destination_topic, lane.partition)
        self._is_cut = False  # retention took something of what would have to be read back

    def resumed(self) -> Resumed:
        lane = self._lane
        give_up_s = monotonic_s() + PATIENCE_S
        while True:
            # In this order: what the producer fills after it was asked about lies above this.
            end = self.end_offset()
            if end < lane.end_offset:
                words = f"it ends at offset {end}, and {lane.end_offset} was acknowledged before"
                raise self.refusal(f"{words} (an unclean leader election, or a restored disk)")
            ahead = self._ahead()
            if ahead == 0 or (end == lane.end_offset and not ahead):
                return Resumed(lane, lane.done, lane.offset, end)
            self.filled, self._is_cut = lane.done, False
            self.read_back(end)
            if ahead and self._is_cut and self.filled == lane.done:
                self.filled = lane.done + ahead  # all of it has been below the high watermark, and is gone by retention
            if ahead is None or self.filled >= lane.done + ahead:
                break
            # The leader has more than its followers have; it may still vanish.
            if monotonic_s() > give_up_s:
                raise self.refusal(f"slots {self.filled} to {lane.done + ahead} are not below the high watermark")
            Event().wait(PAUSE_S)
        if self._is_cut and self.filled == lane.done and not self._is_at_rest:
            raise self.refusal(
                f"nobody can tell any more what was written from offset {lane.end_offset} on, since the log was cut"
            )
        return Resumed(lane, self.filled, self._offset_behind(), end)

    def _offset_behind(self) -> int:
        if self.filled == self._lane.done:
            return self._lane.offset
        try:
            return self._lane.mapping.offset_of(self.filled - 1) + 1
        except NotMapped as reason:
            raise self.refusal(str(reason)) from None

    def refusal(self, words: str) -> CopyRefused:
        topic, index = self._place
        return CopyRefused(
            f"{topic}-{index}: {words}. Nothing more is written; copy under another --name, into a topic that is empty"
        )

    # --- what the brokers say

    def end_offset(self) -> int:
        brokers = self._client.brokers

        async def ask() -> int:
            await brokers.refresh([self._place.topic])
            return (await end_offsets(brokers, [self._place]))[self._place]

        return self._client.thread.run(ask())

    def _ahead(self) -> int | None:
        """How many slots were filled behind those that are written down as filled, by what the leader remembers; None
        where that proves nothing."""
        lane, brokers = self._lane, self._client.brokers

        async def ask() -> tuple[HighWater | None, int]:
            known = await remembered_or_none(brokers, {self._place: lane.pid})
            return known[self._place], int(wall_s() * 1000) - await surely_remembered_ms(brokers)

        known, since_ms = self._client.thread.run(ask())
        span = Span(lane.identity, lane.done & SEQUENCE_MASK)
        says = memory_says(span, known, since_ms)
        if says in (Says.BEHIND, Says.OTHER_EPOCH):
            raise self.refusal(
                refusal(says, self._place, SavedPartition(next_offset=lane.end_offset, spans=(span,)), known).what
            )
        if known is None or says is Says.STALE:
            return None
        return filled_since(known.last_sequence, span.next_sequence)

    # --- what the log says

    def read_back(self, end: int) -> None:
        lane = self._lane
        asked = Range(*self._place, lane.end_offset, end)
        for first, buffer in read_batches(self._job.destination.reading, asked, on_loss=self._cut):
            written = list(self._of_this_lane(buffer, end))
            if written:
                columns = decode(buffer, start_offset=max(first, written[0].base_offset), end_offset=end)
                self._compare(columns, written)

    def _cut(self, words: str) -> None:
        self._is_cut = True

    def _of_this_lane(self, buffer: memoryview, end: int) -> Iterator[Written]:
        lane = self._lane
        for _, header in headers(buffer):
            is_ours = belongs_to(header, lane.identity, any_generation=False)
            if not is_ours or header.last_offset < lane.end_offset or header.base_offset >= end:
                continue
            slot = self._slot(header.base_sequence)
            if slot > self.filled and not self._is_cut and not self._job.is_destination_compacted:
                raise self.refusal(f"slot {self.filled} is due, and the next one that the log holds is {slot}")
            self.filled = max(self.filled, slot + header.last_offset_delta + 1)
            yield Written(header.base_offset, header.last_offset, slot)

    def _slot(self, sequence: int) -> int:
        """Sequences wrap; slots do not."""
        behind = (self.filled - sequence) & SEQUENCE_MASK
        return self.filled - behind if behind < SEQUENCE_WINDOW else self.filled + SEQUENCE_MASK + 1 - behind

    def _compare(self, columns: Columns, written: list[Written]) -> None:
        assert columns.offset is not None
        bases = np.array([each.base_offset for each in written])
        which = np.searchsorted(bases, columns.offset, side="right") - 1
        lasts = np.array([each.last_offset for each in written])
        slots = np.array([each.first_slot for each in written])[which] + columns.offset - bases[which]
        rows = np.flatnonzero((which >= 0) & (columns.offset <= lasts[which]) & (slots >= self._lane.done))
        if len(rows):
            self._compare_rows(Rows(columns, rows), slots[rows])

    def _compare_rows(self, copied: Rows, slots: Int64s) -> None:
        first, last = int(slots[0]), int(slots[-1])
        try:
            wanted = self._lane.mapping.offsets(first, last + 1 - first)[slots - first]
        except NotMapped as reason:
            raise self.refusal(str(reason)) from None
        asked = Range(self._job.source_topic, self._lane.partition, int(wanted[0]), int(wanted[-1]) + 1)
        for columns in read_columns(self._job.source.reading, asked, on_loss=_ignored):
            assert columns.offset is not None
            pairs = np.searchsorted(wanted, columns.offset)
            is_there = wanted[np.minimum(pairs, len(wanted) - 1)] == columns.offset
            if len(wanted) == last + 1 - first and not np.all(is_there):
                missing = int(columns.offset[np.argmin(is_there)])
                raise self.refusal(f"the record at offset {missing} of {asked.topic}-{asked.partition} was left out")
            mine = Rows(copied.columns, copied.rows[pairs[is_there]])
            source = Rows(columns, np.flatnonzero(is_there))
            found = first_difference(mine, source)
            if found is not None:
                here, there = mine.offsets[found.pair], source.offsets[found.pair]
                where = f"{asked.topic}-{asked.partition} has at {there}"
                raise self.refusal(f"offset {here} is to be what {where}, and is not: {found.words}")


def _ignored(words: str) -> None:
    """What is gone cannot be compared."""
