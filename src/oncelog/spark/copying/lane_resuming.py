"""The progress of a lane, before anything is sent: by its notes, by the broker's memory, and by the log itself.

What was written since the lane's last record is read back and compared with the source, so a copy that went wrong in
any way stops here. Records that compaction has taken on either side meanwhile cannot be compared, and are not missed:
which record fills which slot was written down before it was sent.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

import numpy as np

from oncelog.client import KafkaError, KafkaException
from oncelog.client.door import (
    Patience,
    Range,
    Warm,
    ask,
    cool,
    end_offsets,
    reach,
    read_batches,
    read_columns,
    remembered_or_none,
    surely_remembered_ms,
    warm,
)
from oncelog.clock import wall_s
from oncelog.producers.sequences import SEQUENCE_MASK
from oncelog.records.column_types import Columns, Int64s
from oncelog.records.decode_columns import decode
from oncelog.slots import Place
from oncelog.slots.chain import opened
from oncelog.slots.comparing_columns import Rows, first_difference
from oncelog.slots.errors import CannotTell
from oncelog.slots.questions import Ask, End
from oncelog.slots.resuming import LogRead, Resuming, check_end
from oncelog.slots.scan import Filled, SlotScan
from oncelog.spark.copying.job import CopyRefused, Job
from oncelog.spark.copying.lane import Lane
from oncelog.spark.copying.mapping import NotMapped

PATIENCE: Final = Patience(60.0)
REMEDY: Final = "Nothing more is written; copy under another --name, into a topic that is empty"


class Resumed(NamedTuple):
    lane: Lane
    filled: int  # the next record fills this slot
    offset: int  # of the source: the next record is this one, or the first behind it
    next_offset: int  # nothing of what the lane is yet to write lies below, in the destination


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
        with resuming.in_words():
            there = lane.done + resuming.read_back(resuming.end_offset()).records
        if there < filled:
            raise resuming.refusal(f"slots {there} to {filled} were acknowledged, and are not there")
    finally:
        cool(client)


class _Resuming:
    """Asks what `slots/resuming.py` wants to know, and compares what it reads."""

    def __init__(self, job: Job, lane: Lane, client: Warm) -> None:
        self._job = job
        # A lane that is at rest has nothing under way; should there be something all the same, it is another copy's.
        self._is_at_rest = lane.is_at_rest
        self._lane = lane.opened() if lane.is_at_rest and not job.is_compacted else lane
        self._client = client
        self._place = Place(job.destination_topic, lane.partition)
        self._due = lane.done & SEQUENCE_MASK

    def resumed(self) -> Resumed:
        with self.in_words():
            resuming, end = self._client.thread.run(ask(self._asked, PATIENCE))
            if resuming.asks is Ask.LOG:
                end = self.end_offset()
                resuming.answered(self.read_back(end))
        if resuming.asks is End.ASK_AGAIN:
            raise self._may_vanish()
        filled = resuming.resumed().records_to_drop
        return Resumed(self._lane, self._lane.done + filled, self._offset_behind(filled), end)

    def _offset_behind(self, filled: int) -> int:
        if not filled:
            return self._lane.offset
        try:
            return self._lane.mapping.offset_of(self._lane.done + filled - 1) + 1
        except NotMapped as reason:
            raise self.refusal(str(reason)) from None

    @contextmanager
    def in_words(self) -> Iterator[None]:
        try:
            yield
        except CannotTell as found:
            raise CopyRefused(f"{found.what}. {REMEDY}") from None

    def refusal(self, words: str) -> CopyRefused:
        return CopyRefused(f"{self._place.topic}-{self._place.partition}: {words}. {REMEDY}")

    def _may_vanish(self) -> KafkaException:
        words = f"{self._place.topic}-{self._place.partition}: what was copied is not below the high watermark yet"
        return KafkaException(KafkaError(KafkaError._TIMED_OUT, words, retriable=True))

    # --- what the brokers say

    def end_offset(self) -> int:
        return self._client.thread.run(self._end_offset())

    async def _end_offset(self) -> int:
        await self._client.brokers.refresh([self._place.topic])
        return (await end_offsets(self._client.brokers, [self._place]))[self._place]

    async def _asked(self) -> tuple[Resuming, int]:
        """Ask as far as the brokers can tell, and where the log ended before: what the producer fills after it was
        asked about lies above that."""
        lane, brokers, place = self._lane, self._client.brokers, self._place
        saved = opened(lane.identity, self._due, lane.end_offset)
        end = await self._end_offset()
        check_end(place, saved, end)
        leader = brokers.metadata.leader(*place)
        memory_ms = await surely_remembered_ms(brokers)
        resuming = Resuming(
            place,
            saved,
            int(wall_s() * 1000),
            is_leased=False,
            remembered_ms=memory_ms,
            compares=True,
            is_at_rest=self._is_at_rest,
        )
        resuming.answered((await remembered_or_none(brokers, {place: lane.pid}))[place])
        if resuming.asks is Ask.WATERMARK:
            resuming.answered(await reach(brokers, place, leader))
        if resuming.asks is End.ASK_AGAIN:
            raise self._may_vanish()
        return resuming, end

    # --- what the log says

    def read_back(self, end: int) -> LogRead:
        """The slots that were filled since, compared with the source."""
        lane, place = self._lane, self._place
        scan = SlotScan(
            *place,
            lane.identity,
            self._due,
            any_generation=False,
            has_holes=self._job.is_destination_compacted,
        )
        side, begins_behind = self._job.destination_side, -1
        asked = Range(*place, lane.end_offset, end, topic_id=side.topic_id)

        def cut(words: str) -> None:
            nonlocal begins_behind
            begins_behind = end
            scan.cut()

        for first, buffer in read_batches(self._job.destination.reading, asked, on_loss=cut):
            begins_behind = min(first, begins_behind)
            written = scan.batches(buffer, end)
            if written:
                columns = decode(buffer, start_offset=max(first, written[0].base_offset), end_offset=end)
                self._compare(columns, written)
        return LogRead(scan.records, end, begins_behind)

    def _compare(self, columns: Columns, written: list[Filled]) -> None:
        assert columns.offset is not None
        bases = np.array([each.base_offset for each in written])
        which = np.searchsorted(bases, columns.offset, side="right") - 1
        lasts = np.array([each.last_offset for each in written])
        firsts = np.array([self._lane.done + each.first for each in written])
        slots = firsts[which] + columns.offset - bases[which]
        rows = np.flatnonzero((which >= 0) & (columns.offset <= lasts[which]) & (slots >= self._lane.done))
        if len(rows):
            self._compare_rows(Rows(columns, rows), slots[rows])

    def _compare_rows(self, copied: Rows, slots: Int64s) -> None:
        first, last = int(slots[0]), int(slots[-1])
        try:
            wanted = self._lane.mapping.offsets(first, last + 1 - first)[slots - first]
        except NotMapped as reason:
            raise self.refusal(str(reason)) from None
        side, begin, end = self._job.source_side, int(wanted[0]), int(wanted[-1]) + 1
        asked = Range(side.topic, self._lane.partition, begin, end, topic_id=side.topic_id)
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
    """Records that are gone cannot be compared."""
