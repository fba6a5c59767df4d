"""The recovery points of all partitions of a data folder, kept at most so many bytes behind, all partitions together.

After a kill only the bytes behind the recovery points are looked at, so this bound is what makes a start fast however
large the log is. The file `recovery-points` is text:

    1                                      version
    2                                      number of lines that follow
    orders-0 500 0 81234 19 1700000000000  folder, offset, segment, position, index entries, max timestamp
    orders-1 12 0 934 1 1700000000000
    5f3a99c1                               CRC-32C of all bytes before

The server asks `due` after its commits and runs `begin(now)` on the appending thread and `.run()` on another one. Where
it does not keep up, `catch_up` does both at once: the bound holds by itself.
"""

import logging
import threading
from collections.abc import Iterable
from typing import Protocol

from crc32c import crc32c

from oncelog.clock import Now
from oncelog.log.disk import Disk, read_whole, replace_file
from oncelog.log.errors import LogStorageError
from oncelog.log.flush import FlushPlan, RecoveryPoint

logger = logging.getLogger(__name__)

FILE = "recovery-points"
DEFAULT_LIMIT_BYTES = 64 * 1024 * 1024


class Flushable(Protocol):
    unflushed_bytes: int

    @property
    def has_staged(self) -> bool: ...

    def begin_flush(self, now: Now) -> FlushPlan: ...

    def flush_failed(self, error: OSError) -> None: ...


class Checkpointer:
    def __init__(self, disk: Disk, folder: str, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> None:
        self._disk = disk
        self._path = f"{folder}/{FILE}"
        self._lock = threading.Lock()
        self._logs: dict[str, Flushable] = {}
        self._written = True
        self._complained = False
        # What one run works on and what comes in meanwhile are together at most the limit.
        self.due_bytes = limit_bytes // 4
        self.forced_bytes = limit_bytes // 2
        self.behind_bytes = 0  # counted up by every commit
        self._points = self._load()

    @property
    def due(self) -> bool:
        return self.behind_bytes >= self.due_bytes

    def point(self, name: str) -> RecoveryPoint | None:
        return self._points.get(name)

    def register(self, name: str, log: Flushable) -> None:
        self._logs[name] = log

    def begin(self, now: Now, *, everything: bool = False) -> "Checkpoint":
        """On the appending thread: choose the partitions that are furthest behind, and take what a flush needs."""
        plans = []
        behind = sorted(
            (
                (log.unflushed_bytes, name, log)
                for name, log in self._logs.items()
                if log.unflushed_bytes and not log.has_staged
            ),
            key=lambda item: item[0],
            reverse=True,
        )
        for unflushed_bytes, name, log in behind:
            if not everything and self.behind_bytes < self.due_bytes // 2:
                break
            try:
                plans.append((name, log, log.begin_flush(now)))
            except (OSError, LogStorageError) as error:
                logger.warning("the recovery point of %s stays where it is: %s", name, error)
            log.unflushed_bytes = 0
            self.behind_bytes -= unflushed_bytes
        return Checkpoint(self, plans)

    def catch_up(self, now: Now) -> None:
        self.begin(now).run()

    def run(self, plans: "Iterable[tuple[str, Flushable, FlushPlan]]") -> None:
        with self._lock:
            for name, log, plan in plans:
                if not plan.still_holds():
                    continue
                try:
                    plan.run()
                except OSError as error:
                    log.flush_failed(error)
                    continue
                self._points[name] = plan.point
                self._written = False
            self._write_if_possible()

    def note(self, name: str, point: RecoveryPoint) -> None:
        """The log is closed and wholly on the disk up to here. Written with the next change or by `close`."""
        with self._lock:
            self._points[name] = point
            self._written = False
            self._logs.pop(name, None)

    def unregister(self, name: str) -> None:
        self._logs.pop(name, None)

    def lower(self, name: str, point: RecoveryPoint | None) -> None:
        """Before a log is cut back or removed: a point beyond its end would look like damage after a crash."""
        with self._lock:
            if point is None:
                self._points.pop(name, None)
            else:
                self._points[name] = point
            self._write()

    def forget(self, name: str) -> None:
        """The partition is about to be removed."""
        self._logs.pop(name, None)
        if name in self._points:
            self.lower(name, None)

    def close(self) -> None:
        """After all logs were closed. A start that finds every point at its log's end has nothing to look at."""
        with self._lock:
            self._write_if_possible()

    def _write_if_possible(self) -> None:
        if self._written:
            return
        try:
            self._write()
            self._complained = False
        except OSError as error:
            if not self._complained:
                logger.warning("cannot write %s, so the next start takes longer: %s", self._path, error)
            self._complained = True

    def _write(self) -> None:
        lines = ["1", str(len(self._points))]
        lines += (f"{name} {' '.join(map(str, point))}" for name, point in sorted(self._points.items()))
        text = ("\n".join(lines) + "\n").encode()
        replace_file(self._disk, self._path, text + f"{crc32c(text):08x}\n".encode())
        self._written = True

    def _load(self) -> dict[str, RecoveryPoint]:
        if not self._disk.exists(self._path):
            return {}
        data = read_whole(self._disk, self._path)
        try:
            text, crc = data[:-9], data[-9:]
            if f"{crc32c(text):08x}\n".encode() != crc:
                raise ValueError("its checksum is wrong")
            version, count, *lines = text.decode().splitlines()
            if version != "1" or int(count) != len(lines):
                raise ValueError(f"version {version}, {len(lines)} lines where {count} are announced")
            return {name: RecoveryPoint(*map(int, numbers)) for name, *numbers in (line.split(" ") for line in lines)}
        except (ValueError, TypeError) as error:
            logger.warning("%s is not usable (%s): every log is looked at from its beginning", self._path, error)
            return {}


class Checkpoint:
    """One round. Made on the appending thread; `run` may take its time on another one."""

    def __init__(self, checkpointer: Checkpointer, plans: list[tuple[str, Flushable, FlushPlan]]) -> None:
        self._checkpointer = checkpointer
        self._plans = plans

    def run(self) -> None:
        self._checkpointer.run(self._plans)
