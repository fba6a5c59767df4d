"""Work that the server does from time to time. Whatever waits for the disk waits in a thread.

retention, producers' expiry    every log.retention.check.interval.ms, one log after the other
compaction                      every log.cleaner.backoff.ms: chosen here, done in a thread, put in place here
recovery points                 when enough was appended, and with oncelog.flush=interval every so often
how far each log is             every second, where it has grown, by a thread of its own: a start knows what must be
                                there, also while compaction is at work
a look for rot                  all the time, at oncelog.scrub.bytes.per.second: see `scrubber.py`
idle connections                at least every five seconds
certificates                    every five seconds it is looked whether their files have changed
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

from oncelog.clock import Clock, Now, monotonic_s
from oncelog.log.compaction import CompactionJob
from oncelog.log.config import Flush
from oncelog.log.disk import Disk
from oncelog.log.errors import LogError
from oncelog.log.partition import PartitionLog
from oncelog.log.work_steps import Steps, Wait
from oncelog.server.metrics import Metrics
from oncelog.server.scrubber import Scrubber
from oncelog.server.settings import Settings
from oncelog.server.topics import Topics
from oncelog.server.turns import Turns

logger = logging.getLogger(__name__)

IDLE_LOOK_MS = 5000
FIRST_SCRUB_S = 1.0  # a start has better things to do
NOTES_S = 1.0
NOTES_SHARE = 50  # of a thread's time: where notes of many logs take long, they are taken less often
LOGS_AT_A_TIME = 200


class Housekeeping:
    def __init__(
        self, settings: Settings, topics: Topics, clock: Clock, disk: Disk, metrics: Metrics, turns: Turns
    ) -> None:
        self._settings = settings
        self._turns = turns
        self._topics = topics
        self._clock = clock
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="oncelog-housekeeping")
        self._notes = ThreadPoolExecutor(1, thread_name_prefix="oncelog-notes")  # what takes long is not theirs
        self._scrubber = Scrubber(settings, topics, clock, disk, metrics)
        self._scrubs = ThreadPoolExecutor(1, thread_name_prefix="oncelog-scrub")
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_checkpointing = False
        self._is_flushing = False
        self._waiting_for_room: list[Callable[[], None]] = []
        self._checkpointer = topics.checkpointer
        self._checkpointer.force = self._hurry
        self._compaction: CompactionJob | None = None
        self._compacted: PartitionLog | None = None

    def start(self, close_idle: Callable[[], None]) -> None:
        settings = self._settings
        self.every(settings.log_retention_check_interval_ms, self._maintain)
        self.every(min(settings.connections_max_idle_ms / 2, IDLE_LOOK_MS), _in_turn(close_idle))
        if settings.log_cleaner_enable:
            self.every(settings.log_cleaner_backoff_ms, self._compact)
        if settings.oncelog_flush == Flush.INTERVAL:
            self.every(settings.oncelog_flush_interval_ms, lambda: self._checkpoint(everything=True))
        self._begin(self._scrub())
        self._begin(self._note_ends())

    async def stop(self) -> None:
        """Stop: nothing is begun any more, and work in threads has ended; a compaction is given up for that."""
        if self._compaction is not None:
            self._compaction.stop()
        self._scrubber.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._threads.shutdown()
        self._notes.shutdown()
        self._scrubs.shutdown()

    def checkpoint_if_due(self) -> None:
        """Asked after every commit, so it must cost nothing."""
        if self._checkpointer.due and not self._is_checkpointing:
            self._is_checkpointing = True
            self._begin(self._checkpoint(everything=False))

    def has_room(self, size_bytes: int) -> bool:
        """Whether a large request may be appended: not where a round of flushes runs and another one would have to
        follow at once. Then wait for the end of that round."""
        checkpointer = self._checkpointer
        return not self._is_checkpointing or checkpointer.behind_bytes + size_bytes < checkpointer.forced_bytes

    def wait_for_room(self, callback: Callable[[], None]) -> None:
        self._waiting_for_room.append(callback)

    def _hurry(self, now: Now) -> None:
        """A thread flushes what is too far behind. Only where it does so already, the loop must wait for the disk."""
        if self._is_flushing:
            self._checkpointer.catch_up(now)
        else:
            self.checkpoint_if_due()

    def every(self, interval_ms: float, work: Callable[[], Awaitable[None]]) -> None:
        async def repeat() -> None:
            while True:
                await asyncio.sleep(max(interval_ms, 1) / 1000)
                try:
                    await work()
                except Exception:
                    logger.exception("housekeeping failed; it will be tried again")

        self._begin(repeat())

    def _begin(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _checkpoint(self, *, everything: bool) -> None:
        self._is_checkpointing = True
        try:
            now, checkpointer = self._clock.now(), self._checkpointer
            checkpoint = await self._turns.run(checkpointer.beginning(now, everything=everything))
            self._is_flushing = True
            await asyncio.get_running_loop().run_in_executor(self._threads, checkpoint.run)
        finally:
            self._is_checkpointing = self._is_flushing = False
            waiting, self._waiting_for_room = self._waiting_for_room, []
            for callback in waiting:
                callback()

    async def _note_ends(self) -> None:
        pause_s = NOTES_S
        while True:
            await asyncio.sleep(pause_s)
            try:
                notes = await self._turns.run(self._beginning_notes())
                pause_s = NOTES_S
                if notes:
                    took_s = await asyncio.get_running_loop().run_in_executor(self._notes, _note_all, notes)
                    pause_s = max(NOTES_S, took_s * NOTES_SHARE)
            except Exception:
                logger.exception("the ends of logs could not be noted; it will be tried again")

    def _beginning_notes(self) -> Steps[list[Wait]]:
        notes: list[Wait] = []
        for count, log in enumerate(self._logs(), 1):
            note = None if log.closed or log.offline is not None else log.begin_note()
            if note is not None:
                notes.append(note)
            if count % LOGS_AT_A_TIME == 0:
                yield None
        return notes

    async def _scrub(self) -> None:
        pause_s = FIRST_SCRUB_S
        while True:
            await asyncio.sleep(pause_s)
            try:
                pause_s = await self._scrubber.step(self._scrubs)
            except Exception:
                logger.exception("the look for rot failed; it goes on later")
                pause_s = FIRST_SCRUB_S

    def has_let_go(self, log: PartitionLog) -> bool:
        """Whether nothing is done any more about the files of a log that was closed: then others may have them."""
        if self._compacted is log and self._compaction is not None:
            self._compaction.stop()
        return self._compacted is not log and not log.cared_for

    async def _maintain(self) -> None:
        for log in self._logs():
            if not log.closed:
                try:
                    await self._turns.run(log.maintaining(self._clock.now()), self._threads)
                except (LogError, OSError) as error:
                    logger.warning("%s is not looked after: %s", log.folder, error)
            await asyncio.sleep(0)

    async def _compact(self) -> None:
        loop = asyncio.get_running_loop()
        for log in self._logs():
            if log.closed or not log.config.compacts:
                continue
            try:
                job = await self._turns.run(log.beginning_compaction(self._clock.now()), self._threads)
                if job is not None:
                    self._compaction, self._compacted = job, log
                    await loop.run_in_executor(self._threads, job.run)
                    self._compaction = None
                    if not log.closed:
                        await self._turns.run(log.finishing_compaction(job), self._threads)
            except (LogError, OSError) as error:
                logger.warning("%s is not compacted: %s", log.folder, error)
            finally:
                self._compacted = None
            await asyncio.sleep(0)

    def _logs(self) -> list[PartitionLog]:
        return list(self._topics.logs())


def _note_all(notes: list[Wait]) -> float:
    """Run all of them; the seconds that they took."""
    began_s = monotonic_s()
    for note in notes:
        note()
    return monotonic_s() - began_s


def _in_turn(work: Callable[[], None]) -> Callable[[], Awaitable[None]]:
    async def do() -> None:
        work()

    return do
