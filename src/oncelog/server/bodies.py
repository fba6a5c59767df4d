"""Looking into what is produced: whether the records behind a good CRC are records, and have keys where they must.

Little is looked into where it lies. What may take longer than others should wait, because it is much or unfolds to
much, is looked into by a thread, while its connection stands still. Compiled loops do it where the extra `[columns]`
is installed: once so much comes in that they are worth their memory, they are fetched by a thread, too.
"""

import gc
import importlib.util
import logging
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from threading import Thread
from types import MappingProxyType
from typing import Any, NamedTuple

from oncelog.clock import MINUTE_MS
from oncelog.log.config import LogConfig
from oncelog.records.errors import InvalidRecord, TooLarge
from oncelog.records.header import CODEC_MASK, HEADER_BYTES, MIN_RECORD_BYTES, BatchHeader, Buffer, read_header
from oncelog.records.read import MOST_TIMES_UNFOLDED, body_of
from oncelog.records.trim import trim
from oncelog.records.walking import check_records, head_of_one
from oncelog.server.record_rules import NOTHING_REFUSED, Refused, refused_records

logger = logging.getLogger(__name__)

LIGHT_BYTES = 16 * 1024  # of the compressed batches of one request
LIGHT_UNFOLDED_BYTES = 256 * 1024  # of each of them
MOST_UNFOLDED_BYTES = 64 * 2**20
LIGHT_RECORDS = 10_000  # of one request: some milliseconds in Python
LIGHT_RECORDS_COMPILED = 1_000_000
FEW_RECORDS_BYTES = LIGHT_RECORDS * MIN_RECORD_BYTES  # fewer than that are in a batch of this size
WORTH_COMPILED_RECORDS = 4
WORTH_FETCHING_RECORDS = 1_000_000  # within a minute: half a second of it

ATTRIBUTES_AT = 22  # the byte that has the codec
_COUNT_AT = 57

Batch = tuple[int, int, LogConfig]  # where it begins and ends, and what its topic asks


class Trimmed(NamedTuple):
    """A batch without its first records, and what was found of the whole one."""

    dropped_records: int
    rest: bytearray
    refused: Refused


Verdict = Refused | InvalidRecord | Trimmed
Verdicts = dict[int, Verdict]  # by where a batch begins


def is_cut(known: Verdict | None, dropped_records: int) -> bool:
    """Whether a thread has cut that many records off a batch, or has found that it cannot."""
    return isinstance(known, InvalidRecord) or (isinstance(known, Trimmed) and known.dropped_records == dropped_records)


class Checks(StrEnum):
    """The check of bodies, and the code that does it."""

    COMPILED = "compiled"
    PYTHON = "python"
    OFF = "off"  # only where a topic asks something of each record


class Look:
    """The bodies of one request that a thread checks, before anything of the request is staged."""

    def __init__(
        self,
        bodies: "Bodies",
        buffer: bytearray,
        begin: int,
        batches: Iterable[Batch],
        wall_ms: int,
        known: Verdicts | None = None,
        dropped_records: Mapping[int, int] = MappingProxyType({}),
    ) -> None:
        """`dropped_records`: how many of each are there already, by where they begin: these are cut off as well."""
        self._bodies = bodies
        self._batches = [(start - begin, memoryview(buffer)[start:stop], config) for start, stop, config in batches]
        self._dropped_records = {start - begin: count for start, count in dropped_records.items()}
        self._wall_ms = wall_ms
        self._verdicts = [(start - begin, verdict) for start, verdict in (known or {}).items()]

    def keep(self) -> None:
        """The buffer will be used for something else meanwhile."""
        self._batches = [(place, memoryview(bytes(batch)), config) for place, batch, config in self._batches]

    def run(self) -> None:
        self._verdicts += [(place, self._verdict(place, batch, config)) for place, batch, config in self._batches]
        self._batches = []

    def _verdict(self, place: int, batch: memoryview, config: LogConfig) -> Verdict:
        verdict = self._bodies.verdict(batch, config, self._wall_ms)
        dropped = self._dropped_records.get(place, 0)
        if not dropped or not isinstance(verdict, Refused):
            return verdict
        try:
            return Trimmed(dropped, trim(batch, dropped, limit_bytes=MOST_UNFOLDED_BYTES), verdict)
        except InvalidRecord as damage:
            return _without_frames(damage)

    def verdicts(self, begin: int) -> Verdicts:
        """The verdicts of the same request, which begins there now."""
        return {begin + place: verdict for place, verdict in self._verdicts}


class TrimFirst(Exception):
    """To cut a batch may take long; nothing of it was staged."""

    def __init__(self, dropped_records: int) -> None:
        super().__init__(f"{dropped_records} records are there already")
        self.dropped_records = dropped_records


def may_be_trimmed_at_once(batch: Buffer, start: int, stop: int) -> bool:
    return stop - start <= LIGHT_BYTES and not batch[start + ATTRIBUTES_AT] & CODEC_MASK


def trim_at_once(batch: Buffer, dropped_records: int) -> bytearray:
    if not may_be_trimmed_at_once(batch, 0, len(batch)):
        raise TrimFirst(dropped_records)
    return trim(batch, dropped_records)


class LookFirst(Exception):
    """Nothing of the request was staged: these bodies must be looked into first."""

    def __init__(self, look: Look) -> None:
        super().__init__("a request has to be looked into by a thread")
        self.look = look


class Bodies:
    def __init__(self, checks: str) -> None:
        self._checks = Checks(checks)
        self._loops: Any = None
        self._receive_buffer = bytearray(1)
        self._passes_received: Callable[[int, int, int, int], bool] | None = None  # the walk within it
        self._may_fetch = self._checks is Checks.COMPILED and _has_loops()
        self.is_off = self._checks is Checks.OFF  # then only that is looked into of which a topic asks something
        self.is_fetching = False
        self._walked_records = 0
        self._counted_since_ms = 0

    def lie_in(self, receive_buffer: bytearray) -> None:
        """Note the buffer that most batches lie in, and that never changes its size."""
        self._receive_buffer = receive_buffer
        self._passes_received = None if self._loops is None else self._loops.passes_in(receive_buffer)

    @property
    def is_compiled(self) -> bool:
        return self._loops is not None

    def is_good_at_once(
        self, buffer: bytearray, start: int, stop: int, header: BatchHeader, config: LogConfig, wall_ms: int
    ) -> bool:
        """Whether a batch of which its topic asks nothing is seen to be sound in a few steps, as most are."""
        _, _, _, _, _, attributes, _, base_ms, max_ms, _, _, _, count = header
        if max_ms - wall_ms > config.sure_ahead_ms:
            return False
        if self.is_off:
            return True
        if attributes & CODEC_MASK:
            return False
        body_at = start + HEADER_BYTES
        if count == 1:
            return buffer.startswith(head_of_one(stop - body_at), body_at) and not buffer[stop - 1]
        if self._loops is None or not WORTH_COMPILED_RECORDS <= count <= LIGHT_RECORDS_COMPILED:
            return False
        if buffer is self._receive_buffer and self._passes_received is not None:
            return self._passes_received(body_at, stop, count, base_ms)
        return bool(self._loops.walk(self._loops.as_array(buffer), body_at, stop, count, base_ms)[0])

    def look_first(
        self, buffer: bytearray, begin: int, batches: Iterable[Batch], wall_ms: int, known: Verdicts
    ) -> None:
        """Raises LookFirst for a request that begins there, where that is better left to a thread. What is light but
        compressed is looked into at once, so that it is unfolded once only; `known` takes the verdicts."""
        packed_bytes = records = 0
        packed, heavy = [], []
        unknown = [batch for batch in batches if batch[0] not in known]
        for batch in unknown:
            start, stop, _ = batch
            records += int.from_bytes(buffer[start + _COUNT_AT : start + HEADER_BYTES], "big")
            if buffer[start + ATTRIBUTES_AT] & CODEC_MASK:
                packed.append(batch)
                packed_bytes += stop - start
        light_records = LIGHT_RECORDS if self._loops is None else LIGHT_RECORDS_COMPILED
        if records > light_records or packed_bytes > LIGHT_BYTES:
            heavy = unknown
        else:
            for batch in packed:
                start, stop, config = batch
                verdict = self.verdict(memoryview(buffer)[start:stop], config, wall_ms, LIGHT_UNFOLDED_BYTES)
                if isinstance(verdict, TooLarge):
                    heavy.append(batch)
                else:
                    known[start] = verdict
        if heavy:
            raise LookFirst(Look(self, buffer, begin, heavy, wall_ms))

    def verdict(
        self, batch: memoryview, config: LogConfig, wall_ms: int, limit_bytes: int | None = None
    ) -> Refused | InvalidRecord:
        """The same as `refused`, which raises. What is wrong with the header is for others to say."""
        try:
            return self.refused(batch, read_header(batch), config, wall_ms, limit_bytes)
        except InvalidRecord as damage:
            return _without_frames(damage)

    def refused(
        self, batch: memoryview, header: BatchHeader, config: LogConfig, wall_ms: int, limit_bytes: int | None = None
    ) -> Refused:
        """The records that their topic does not take. Raises InvalidRecord where the body is not made of records."""
        count = header.record_count
        if limit_bytes is None and not config.compacts:  # else what compaction can read
            limit_bytes = max(MOST_UNFOLDED_BYTES, MOST_TIMES_UNFOLDED * len(batch))
        body = body_of(batch, 0, header, limit_bytes)
        asks = header.max_timestamp - wall_ms > config.sure_ahead_ms
        if self._loops is not None and count >= WORTH_COMPILED_RECORDS:
            walked = self._loops.walked(body, header)
            if walked is not None and not (asks and _may_refuse(walked, config, wall_ms)):
                return NOTHING_REFUSED
        body = bytes(body)
        check_records(body, header)
        if self._may_fetch and count >= WORTH_COMPILED_RECORDS:
            self._count(count, wall_ms)
        return refused_records(body, header, config, wall_ms) if asks else NOTHING_REFUSED

    def _count(self, records: int, wall_ms: int) -> None:
        if wall_ms - self._counted_since_ms > MINUTE_MS:
            self._counted_since_ms, self._walked_records = wall_ms, 0
        self._walked_records += records
        if self._walked_records >= WORTH_FETCHING_RECORDS and not self.is_fetching:
            self.is_fetching = True
            Thread(target=self._fetch, name="oncelog-loops", daemon=True).start()

    def _fetch(self) -> None:
        gc.disable()  # a collection would stop everything for longer than any other step
        try:
            from oncelog.records import walk_loops

            walk_loops.warm_up()
            self._passes_received = walk_loops.passes_in(self._receive_buffer)
            gc.freeze()
            self._loops = walk_loops
        except Exception:
            logger.exception("no compiled loops for the checks of records; Python goes on")
        finally:
            gc.enable()


def _without_frames(damage: InvalidRecord) -> InvalidRecord:
    """The same, to be kept: the frames that it was raised in hold all that was unfolded."""
    return type(damage)(*damage.args)


def _may_refuse(walked: tuple[int, int, int], config: LogConfig, wall_ms: int) -> bool:
    keyless, least_ms, most_ms = walked
    is_early = least_ms < wall_ms - config.behind_max_ms
    return is_early or most_ms > wall_ms + config.ahead_max_ms or (config.compacts and keyless > 0)


def _has_loops() -> bool:
    return all(importlib.util.find_spec(name) is not None for name in ("numba", "numpy"))
