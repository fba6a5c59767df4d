"""The parts of one partition's log. Each part alone changes its own state; work on a log asks them to.

`PartitionLog` is the door; the appender, retention, compaction and cuts work on these parts beside one another.
"""

import threading
from collections.abc import Callable
from functools import partial

from oncelog.clock import Now
from oncelog.log.aborted import AbortedTransactions
from oncelog.log.checkpoint import Behind, Checkpointer
from oncelog.log.config import LogConfig
from oncelog.log.disk import Disk
from oncelog.log.extent import Extent
from oncelog.log.flush import Flusher
from oncelog.log.handles import Handles
from oncelog.log.health import Health
from oncelog.log.recovery import Recovered
from oncelog.log.segments import Segments
from oncelog.log.stored_producers import StoredProducers
from oncelog.log.unsynced import Unsynced
from oncelog.producers import ProducerMap


class Parts:
    def __init__(
        self,
        disk: Disk,
        folder: str,
        config: LogConfig,
        producers: ProducerMap,
        handles: Handles,
        checkpointer: Checkpointer,
        found: Recovered,
        *,
        replicated: bool,
    ) -> None:
        self.disk = disk
        self.folder = folder
        self.config = config
        self.producers = producers
        self.handles = handles
        self.checkpointer = checkpointer
        self.replicated = replicated
        self.health = Health(folder)
        self.extent = Extent(config, replicated=replicated)
        self.epochs = found.epochs
        self.unsynced = Unsynced(disk, folder)
        self.aborted = found.aborted or AbortedTransactions(disk, folder, handles)
        self.aborted.note_name = self.unsynced.note_name
        self.segments = Segments(
            disk, folder, handles, self.unsynced, found.segments, found.log_start_offset, has_gaps=replicated
        )
        self.stored_producers = StoredProducers(disk, folder, self.segments, producers)
        self.noting_start = threading.Lock()
        self.noted_start = 0  # in this life
        self.behind = Behind(checkpointer, found.scanned_bytes)
        self.flusher = Flusher(
            disk,
            folder,
            self.unsynced,
            self.segments,
            self.extent,
            self.epochs,
            producers,
            self.health,
            found.point_offset,
            found.flushed_offset,
            self.aborted,
        )

    def configure(self, config: LogConfig) -> None:
        self.config = config
        self.extent.configure(config)

    @property
    def stable_offset(self) -> int:
        """The offset below which every transaction has ended."""
        transactions, extent = self.producers.transactions, self.extent
        if not transactions:
            return extent.high_watermark
        return transactions.stable_offset(extent.high_watermark, extent.log_start_offset)

    @property
    def is_behind(self) -> bool:
        """Whether a start would have anything to look at."""
        return bool(self.behind.size_bytes) or self.flusher.point_offset != self.extent.next_offset

    @property
    def is_noting(self) -> bool:
        return self.flusher.is_noting or self.noting_start.locked()

    def wait_for_notes(self) -> None:
        """Wait for what is being written beside the log. What comes later finds the log closed, and writes nothing."""
        self.flusher.wait_for_note()
        with self.noting_start:
            return

    def checkpoint(self, now: Now) -> None:
        """Bring log, index, epochs and producers to the disk, and move the recovery point, before going on."""
        self.begin_checkpoint(now)()

    def begin_checkpoint(self, now: Now) -> Callable[[], None]:
        """The same, of which the answer is what waits for the disk, on any thread."""
        plan = self.flusher.begin(now)
        self.behind.hand_over()
        return partial(self.checkpointer.run, plan)
