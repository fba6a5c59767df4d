"""The lag of recovery points: at most a limit in bytes, all partitions of a data folder together.

After a kill only the bytes behind the recovery points are looked at, so this bound is what makes a start fast however
large the log is. Each partition keeps its own point, in its newest snapshot; what is shared is the count.

The server asks `due` after its commits, and runs `beginning(now)` on the appending thread and `.run()` on another one.
Where it does not keep up, `catch_up` does both at once, so the bound holds by itself. Who sees to it that another
thread does it in time may take that over: see `force`.
"""

import logging
import threading
from collections.abc import Callable
from typing import Protocol

from oncelog.clock import Now
from oncelog.log.errors import LogStorageError
from oncelog.log.flush import FlushPlan
from oncelog.log.work_steps import Steps, at_once

logger = logging.getLogger(__name__)

DEFAULT_LIMIT_BYTES = 64 * 1024 * 1024


class Flushable(Protocol):
    @property
    def folder(self) -> str: ...

    @property
    def behind(self) -> "Behind": ...

    @property
    def has_staged(self) -> bool: ...

    def begin_flush(self, now: Now) -> FlushPlan: ...


class Checkpointer:
    def __init__(self, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> None:
        self._lock = threading.Lock()
        self._flushed = ""  # the folder of the log that is being flushed, or was last
        self._logs: set[Flushable] = set()
        self._left: set[str] = set()  # folders of logs that could not be flushed, for the next round of everything
        # What one round works on and what comes in meanwhile are together at most the limit.
        self.due_bytes = limit_bytes // 4
        self.forced_bytes = limit_bytes // 2
        self.behind_bytes = 0
        self.force: Callable[[Now], None] = self.catch_up  # when so much is behind

    @property
    def due(self) -> bool:
        return self.behind_bytes >= self.due_bytes

    def register(self, log: Flushable) -> None:
        self._logs.add(log)
        self.behind_bytes += log.behind.size_bytes

    def unregister(self, log: Flushable) -> None:
        if log in self._logs:
            self._logs.remove(log)
            log.behind.hand_over()

    def handed_over(self, size_bytes: int) -> None:
        self.behind_bytes -= size_bytes

    def begin(self, now: Now, *, everything: bool = False) -> "Checkpoint":
        return at_once(self.beginning(now, everything=everything))

    def beginning(self, now: Now, *, everything: bool = False) -> Steps["Checkpoint"]:
        """Choose the logs that are furthest behind, and take what a flush of them needs. On the appending thread."""
        round_ = Checkpoint(self)
        left = self._take_left() if everything else set[str]()
        behind = [log for log in self._logs if log.behind.size_bytes or log.folder in left]
        for log in sorted(behind, key=lambda one: one.behind.size_bytes, reverse=True):
            if not everything and self.behind_bytes < self.due_bytes // 2:
                break
            if log.has_staged or log not in self._logs:
                continue
            try:
                round_.plans.append(log.begin_flush(now))
            except (OSError, LogStorageError) as error:
                logger.warning("the recovery point of %s stays where it is: %s", log.folder, error)
            log.behind.hand_over()
            yield None
        return round_

    def _take_left(self) -> set[str]:
        """One by one: a thread may put in more meanwhile."""
        left = set[str]()
        while self._left:
            left.add(self._left.pop())
        return left

    def catch_up(self, now: Now) -> None:
        self.begin(now).run()

    def run(self, plan: FlushPlan) -> None:
        """Run one flush at a time, so that a log that is cut back can wait for a flush of what is no longer there."""
        with self._lock:
            self._flushed = plan.folder  # and only then the question: see `wait`
            if not plan.still_holds():
                return
            try:
                plan.sync()
            except OSError as error:
                plan.failed(error)
                self._left.add(plan.folder)
                return
            try:
                plan.write_snapshot()
            except OSError as error:
                logger.warning("the recovery point of %s stays where it is: %s", plan.folder, error)

    def is_at(self, folder: str) -> bool:
        """Whether a flush of that log may run now. One that begins later finds that it no longer holds."""
        return self._flushed == folder

    def wait(self, folder: str) -> None:
        """Wait until the flush of that log, if it runs now, is over."""
        if self.is_at(folder):
            with self._lock:
                return


class Behind:
    """The bytes of one log behind its recovery point that no flush has taken up yet."""

    def __init__(self, checkpointer: Checkpointer, size_bytes: int) -> None:
        self._checkpointer = checkpointer
        self.size_bytes = size_bytes

    def appended(self, size_bytes: int, now: Now) -> None:
        """Every commit says so."""
        self.size_bytes += size_bytes
        checkpointer = self._checkpointer
        checkpointer.behind_bytes += size_bytes
        if checkpointer.behind_bytes >= checkpointer.forced_bytes:
            checkpointer.force(now)

    def hand_over(self) -> None:
        """Hand these bytes over to a flush."""
        self._checkpointer.handed_over(self.size_bytes)
        self.size_bytes = 0


class Checkpoint:
    """One round of flushes. Made on the appending thread; `run` may take its time on another one."""

    def __init__(self, checkpointer: Checkpointer) -> None:
        self._checkpointer = checkpointer
        self.plans: list[FlushPlan] = []

    def run(self) -> None:
        for plan in self.plans:
            self._checkpointer.run(plan)
