"""The records of a producer, read back from the log itself.

The broker may have forgotten a producer; the log has not. A partition is read from the saved offset on, a few megabytes
at a time, up to the high watermark as it was when the reading began. Nothing above that counts: it could still vanish.
"""

from collections import deque
from collections.abc import AsyncIterator
from datetime import timedelta
from math import inf
from typing import TYPE_CHECKING, Final

from oncelog.client.errors import KafkaError, KafkaException, exception_of
from oncelog.client.fetching.values import EARLIEST
from oncelog.client.net.leaders import named, refusal
from oncelog.client.net.offsets import end_offsets
from oncelog.client.net.retry import NoAnswer, Patience, ask
from oncelog.client.register.partition import fetch_once
from oncelog.client.saving.errors import in_words
from oncelog.client.saving.stored import StoredBatch, batches_in
from oncelog.clock import monotonic_s
from oncelog.error_codes import ErrorCodes as Code
from oncelog.producers.sequences import sequence_after
from oncelog.records.header import HEADER_BYTES, Buffer, headers, read_header
from oncelog.slots import Identity, Place, Span
from oncelog.slots.chain import SavedPartition
from oncelog.slots.messages import StoredSpan
from oncelog.slots.replay import Slot
from oncelog.slots.resuming import LogRead
from oncelog.slots.scan import SlotScan, belongs_to
from oncelog.slots.standing import gone

if TYPE_CHECKING:
    from oncelog.client.net.brokers import Brokers

FETCH_BYTES: Final = 4 << 20
LARGEST_FETCH_BYTES: Final = 1 << 30
FETCH_WAIT: Final = timedelta(milliseconds=500)
NO_WAIT: Final = timedelta(0)
MOST_SPANS: Final = 100_000
DAMAGED_S: Final = 5.0  # so long a broker says so before that is believed: another replica may lead by then


async def filled(
    brokers: "Brokers", place: Place, saved: SavedPartition, up_to: int, *, any_generation: bool
) -> LogRead:
    """The number of filled slots from the due one on, by the headers of the batches from the saved offset on."""
    scan = SlotScan(*place, saved.last.identity, saved.last.next_sequence, any_generation)
    fetching = _Fetching(brokers, place, saved.next_offset, up_to, scan)
    async for records in fetching:
        with in_words():
            fetching.go_on(scan.count(records, up_to))
    return LogRead(scan.records, up_to)


async def slots(
    brokers: "Brokers", topic: str, partition: int, span: Span, from_offset: int, *, any_generation: bool = False
) -> AsyncIterator[list[Slot]]:
    """The records of a span as they stand, in portions of one fetch each; `span.records` of them at most."""
    place = Place(topic, partition)
    up_to = (await end_offsets(brokers, [place]))[place]
    scan = SlotScan(*place, span.identity, span.next_sequence, any_generation)
    fetching = _Fetching(brokers, place, from_offset, up_to, scan)
    async for records in fetching:
        with in_words():
            found, place_after = scan.slots(records, up_to)
        over = 0 if span.records is None else max(0, scan.records - span.records)
        fetching.go_on(up_to if over or scan.records == span.records else place_after)
        if found:
            yield found[: len(found) - over]


async def stored_spans(
    brokers: "Brokers", place: Place, identity: Identity, from_offset: int, *, any_generation: bool
) -> list[StoredSpan]:
    """The identity's last batches up to the high watermark."""
    up_to = (await end_offsets(brokers, [place]))[place]
    fetching = _Fetching(brokers, place, from_offset, up_to)
    found: deque[StoredSpan] = deque(maxlen=MOST_SPANS)
    async for records in fetching:
        for _, header in headers(records):
            fetching.go_on(min(header.last_offset + 1, up_to) if header.base_offset < up_to else up_to)
            if header.base_offset >= up_to:
                break
            if belongs_to(header, identity, any_generation=any_generation):
                last = sequence_after(header.base_sequence, header.last_offset_delta)
                found.append(StoredSpan(header.base_sequence, last, header.base_offset))
    return list(found)


async def stored_batches(
    brokers: "Brokers", place: Place, from_offset: int, wait: timedelta = NO_WAIT
) -> AsyncIterator[list[StoredBatch]]:
    """All batches from an offset on, up to the high watermark as the first answer has it, in portions of one fetch
    each. Where there are none, the broker may wait for one, and holds up a connection that is for nothing else. What
    the broker says is damaged is _BAD_MSG, as what is found to be."""
    fetching = _Fetching(brokers, place, from_offset, None, wait=wait, damaged_s=DAMAGED_S)
    async for data in fetching:
        end, up_to = 0, fetching.up_to
        for at, header in headers(data):
            if header.base_offset >= up_to:
                fetching.go_on(up_to)
                break
            fetching.go_on(header.last_offset + 1)
            end = at + header.size_bytes
        yield list(batches_in(place, memoryview(data)[:end]))


class _Fetching:
    """Fetches one partition from its leader, from an offset up to another. The log may begin later than that by now:
    the `scan` says whether that matters; without one it always does."""

    def __init__(
        self,
        brokers: "Brokers",
        place: Place,
        from_offset: int,
        up_to: int | None,
        scan: SlotScan | None = None,
        *,
        wait: timedelta = NO_WAIT,
        damaged_s: float = inf,
    ) -> None:
        """Without an end, reading goes up to the one that the first answer says."""
        self._brokers = brokers
        self._place = place
        self._offset = from_offset
        self._up_to = up_to
        self._wait = wait
        self._damaged_s = damaged_s
        self._damaged_since_s: float | None = None
        self._scan = scan
        self._max_bytes = FETCH_BYTES

    def __aiter__(self) -> "_Fetching":
        return self

    async def __anext__(self) -> Buffer:
        found = await ask(self._next_batches, Patience(), refresh=self._refresh, gave_up=self._gave_up)
        if found is None:
            if self._scan is not None:
                with in_words():
                    self._scan.ended()
            raise StopAsyncIteration
        return found

    async def _next_batches(self) -> Buffer | None:
        while self._up_to is None or self._offset < self._up_to:
            leader, _ = self._brokers.metadata.leader(*self._place)
            if leader < 0:
                raise exception_of(KafkaError.LEADER_NOT_AVAILABLE)
            records = await self._fetch(leader)
            if _holds_a_batch(records):
                return records
            if records:
                self._max_bytes = min(self._max_bytes * 2, LARGEST_FETCH_BYTES)
        return None

    async def _refresh(self) -> None:
        await self._brokers.refresh([self._place.topic])

    def _gave_up(self, trouble: KafkaError | None) -> NoAnswer:
        why = "the leader answered with nothing" if trouble is None else trouble.str()
        words = f"{named([self._place])} could not be read back from offset {self._offset} to {self._up_to}: {why}"
        return NoAnswer(KafkaError(KafkaError._TIMED_OUT, words))

    @property
    def up_to(self) -> int:
        assert self._up_to is not None, "something was fetched"
        return self._up_to

    def go_on(self, offset: int) -> None:
        """Read on from this offset: what was answered before it is dealt with."""
        self._offset = max(self._offset, offset)
        self._max_bytes = FETCH_BYTES

    async def _fetch(self, leader: int) -> Buffer:
        wait, purpose = (FETCH_WAIT, "") if self._up_to is not None else (self._wait, self._purpose)
        found = await fetch_once(
            self._brokers, leader, self._place, self._offset, self._max_bytes, wait, purpose=purpose
        )
        code = int(found.error_code)
        if code == Code.OFFSET_OUT_OF_RANGE and self._up_to is None:
            self._up_to = (await end_offsets(self._brokers, [self._place]))[self._place]
            return b""
        if code == Code.OFFSET_OUT_OF_RANGE:
            self._begin_at((await end_offsets(self._brokers, [self._place], EARLIEST))[self._place])
            return b""
        if getattr(found, "log_start_offset", -1) > self._offset:
            self._begin_at(found.log_start_offset)
            return b""
        self._check_damage(code)
        if refused := refusal(code, self._place):
            raise refused
        if self._up_to is None:
            self._up_to = found.high_watermark
        return found.records or b""

    def _check_damage(self, code: int) -> None:
        now_s, since_s = monotonic_s(), self._damaged_since_s
        self._damaged_since_s = (now_s if since_s is None else since_s) if code == KafkaError.INVALID_MSG else None
        if self._damaged_since_s is not None and now_s - self._damaged_since_s >= self._damaged_s:
            words = f"{named([self._place])} is damaged at offset {self._offset}, as its broker says (CORRUPT_MESSAGE)"
            raise KafkaException(KafkaError(KafkaError._BAD_MSG, words))

    @property
    def _purpose(self) -> str:
        """A broker that waits for records answers nothing else on a connection meanwhile."""
        return f"waits for {self._place.topic}-{self._place.partition}" if self._wait else ""

    def _begin_at(self, log_start_offset: int) -> None:
        with in_words():
            if self._scan is None:
                raise gone(self._place, self._offset, self._up_to, log_start_offset)
            self._scan.begins_at(log_start_offset, self._offset, self._up_to)
        self._offset = log_start_offset


def _holds_a_batch(records: Buffer) -> bool:
    return len(records) >= HEADER_BYTES and read_header(records).size_bytes <= len(records)
