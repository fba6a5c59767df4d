"""Reading all that is stored, slowly and again and again, so that rot is found before a reader comes across it.

A round goes through every partition, by name, and begins `oncelog.scrub.interval.ms` after the one before. How far it
is stands in `scrub.state` in the data folder, with the damage that was found: after a start that is looked at first.

`step` reads one stretch in a thread, and answers how long to wait before the next one.
"""

import asyncio
import json
import logging
import threading
from collections import deque
from concurrent.futures import Executor
from typing import Any

from oncelog.clock import Clock
from oncelog.log.disk import Disk, read_whole, replace_file
from oncelog.log.errors import NO_DESCRIPTORS
from oncelog.log.partition import PartitionLog
from oncelog.log.scrubbing import Reached, Rotten, Stretch, read_stretch
from oncelog.log.segment import Segment
from oncelog.server.metrics import Metrics
from oncelog.server.settings import Settings
from oncelog.server.topics import Topics

logger = logging.getLogger(__name__)

STATE_FILE = "scrub.state"
VERSION = 1
IDLE_S = 5.0
BREATH_S = 0.0002  # how long the thread lets go of the interpreter
RESTS = 50  # times as long as it reads, where small batches take more of the processor than their bytes say
NOTED_EVERY_BYTES = 64 * 2**20
MOST_NOTED = 100  # places that are looked at first after a start


class Scrubber:
    def __init__(self, settings: Settings, topics: Topics, clock: Clock, disk: Disk, metrics: Metrics) -> None:
        self._metrics = metrics
        self._settings = settings
        self._topics = topics
        self._clock = clock
        self._disk = disk
        self._path = f"{settings.log_dir}/{STATE_FILE}"
        self._stop = threading.Event()
        self._left: deque[PartitionLog] = deque()  # of this round; the first is being looked at
        self._offset = 0  # the segment that holds it, or the next one, comes next
        self._segment: Segment | None = None
        self._reached = Reached(0, 0)
        self._unnoted_bytes = 0
        state = self._stored()
        self._began_wall_ms: int = state["began_wall_ms"]
        self._resume: tuple[str, int] | None = (state["name"], state["offset"]) if state["name"] else None
        self._noted: list[tuple[str, int, int]] = [(*each,) for each in state["damage"]]  # name, base offset, position
        self._to_check = deque(self._noted)

    def stop(self) -> None:
        self._stop.set()
        self._note()

    async def step(self, threads: Executor) -> float:
        bytes_per_s = self._settings.oncelog_scrub_bytes_per_second
        if bytes_per_s == 0:
            return IDLE_S
        known = self._known()
        chosen = known or self._next()
        if chosen is None:
            return IDLE_S
        log, segment, place = chosen
        size_bytes = segment.size_bytes
        began_ms = self._clock.now().monotonic_ms
        read = asyncio.get_running_loop().run_in_executor(
            threads, read_stretch, self._disk, segment.log_path, place, size_bytes, segment.has_gaps, self._give_way
        )
        try:
            stretch = await read
        except OSError as error:
            if error.errno in NO_DESCRIPTORS:  # nothing is wrong with what is stored: it is looked at again
                if known is not None:
                    self._put_back((log.name, segment.base_offset, place.position))
                return IDLE_S
            stretch = Stretch(Reached(size_bytes, -1), [Rotten(place.position, size_bytes, str(error))], 0)
        if self._stop.is_set():
            return IDLE_S
        if log.closed or not any(each is segment for each in log.segments):
            self._segment = (
                None if known is None else self._segment
            )  # retention or compaction took it; its offset tells where to go on
            return 0.0
        for rotten in stretch.rotten:
            self._found(log, segment, rotten)
        self._metrics.bytes_scrubbed += stretch.read_bytes
        self._unnoted_bytes += stretch.read_bytes
        if known is None:
            self._reached = stretch.reached
            if stretch.reached.position >= size_bytes:
                self._segment, self._offset = None, max(segment.end_offset, segment.base_offset + 1)
        if self._unnoted_bytes >= NOTED_EVERY_BYTES:
            self._note()
        took_ms = self._clock.now().monotonic_ms - began_ms
        return max(stretch.read_bytes / bytes_per_s, RESTS * took_ms / 1000)

    def _give_way(self) -> None:
        self._stop.wait(BREATH_S)

    def _found(self, log: PartitionLog, segment: Segment, rotten: Rotten) -> None:
        segment.rots(rotten.position, rotten.end)
        log.note_damage(str(segment.damaged(rotten.position, rotten.reason)))
        place = (log.name, segment.base_offset, rotten.position)
        if place not in self._noted and len(self._noted) < MOST_NOTED:
            self._noted.append(place)
            self._note()

    # What comes next

    def _known(self) -> tuple[PartitionLog, Segment, Reached] | None:
        """Damage that was found before the last start, and may have been mended since."""
        while self._to_check:
            name, base_offset, position = noted = self._to_check.popleft()
            self._noted.remove(noted)
            for log in self._topics.logs():
                for segment in log.segments if log.name == name and log.readable else ():
                    if segment.base_offset == base_offset and position < segment.size_bytes:
                        return log, segment, Reached(position, -1)
        return None

    def _put_back(self, noted: tuple[str, int, int]) -> None:
        self._to_check.appendleft(noted)
        self._noted.append(noted)

    def _next(self) -> tuple[PartitionLog, Segment, Reached] | None:
        if not self._left and not self._begin():
            return None
        while self._left:
            log = self._left[0]
            if self._segment is not None and any(each is self._segment for each in log.segments):
                return log, self._segment, self._reached
            self._segment = self._segment_at(log)
            if self._segment is not None:
                self._reached = Reached(0, self._segment.base_offset)
                return log, self._segment, self._reached
            self._left.popleft()
            self._offset = 0
        self._note()
        return None

    def _begin(self) -> bool:
        """Whether a round is due, or one goes on that a stop has interrupted."""
        now_ms = self._clock.now().wall_ms
        due_ms = self._began_wall_ms + self._settings.oncelog_scrub_interval_ms
        first, self._offset = self._resume or ("", 0)
        if self._resume is None:
            if self._began_wall_ms <= now_ms < due_ms:
                return False
            self._began_wall_ms = now_ms
        self._resume = None
        logs = sorted(self._topics.logs(), key=lambda log: log.name)
        self._left = deque(log for log in logs if log.name >= first)
        if not self._left or self._left[0].name != first:
            self._offset = 0
        self._note()
        return bool(self._left)

    def _segment_at(self, log: PartitionLog) -> Segment | None:
        """The one that holds the offset, or the first behind it."""
        if log.closed or not log.readable:
            return None
        behind = (each for each in log.segments if each.size_bytes and each.end_offset > self._offset)
        return next(behind, None)

    # What stays over a stop

    def _note(self) -> None:
        name = self._left[0].name if self._left else "" if self._resume is None else self._resume[0]
        offset = self._offset if self._resume is None else self._resume[1]
        state = {
            "version": VERSION,
            "began_wall_ms": self._began_wall_ms,
            "name": name,
            "offset": offset,
            "damage": list(self._noted),
        }
        self._unnoted_bytes = 0
        try:
            replace_file(self._disk, self._path, json.dumps(state, indent=2).encode() + b"\n", durable=False)
        except OSError as error:
            logger.warning("%s stays as it is: %s", self._path, error)

    def _stored(self) -> dict[str, Any]:
        """The stored state of the round. Where it cannot be read a new round begins; nothing is lost by that."""
        empty = {"began_wall_ms": -1, "name": "", "offset": 0, "damage": []}
        try:
            state = json.loads(read_whole(self._disk, self._path))
            known = state["version"] == VERSION
            kinds = isinstance(state["began_wall_ms"], int) and isinstance(state["offset"], int)
            places = all(
                isinstance(name, str) and isinstance(base, int) and isinstance(position, int) and position >= 0
                for name, base, position in state["damage"]
            )
            return state if known and kinds and places and isinstance(state["name"], str) else empty
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return empty
