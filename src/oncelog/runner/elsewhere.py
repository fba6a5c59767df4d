"""A cell that another process holds: what it has committed, as its journal says, and whether it is at its end.

A cell that has stopped, or has done all that there is without one that has, is over too, as far as this start of the
run goes. Only what its journal has said since then counts: the next start goes on with that cell.

The last commit stands near the journal's end, however large the state before it is: it is looked for from there.
"""

import logging
from typing import Final

from oncelog.client import KafkaError
from oncelog.flow.description import Stage
from oncelog.flow.formats import COMMIT, GOODBYE, TAKE_OVER, Commit, Goodbye, TakeOver, Unreadable, decoded
from oncelog.runner.cluster import Cluster

_log: Final = logging.getLogger("oncelog.flow")

MOST_RECORDS: Final = 10_000  # that are looked at without a pause
TAIL_RECORDS: Final = 1_000  # of the journal, at the first try
TAIL_GROWTH: Final = 8


class CellElsewhere:
    def __init__(
        self, cluster: Cluster, stage: Stage, run: str, journal_end: int, *, began: int | None, is_stopped: bool
    ) -> None:
        """`began`: where its journal ended when this start of the run began, if that was before now."""
        self._cluster = cluster
        self._run = run
        self.stage = stage
        # A commit at the end of an input is no sign: what follows from it may not be sent yet.
        self.is_at_its_end = False
        self._is_held_nowhere = self._is_cut = is_stopped
        self.began = journal_end if began is None else began
        self.why = ""  # it has stopped
        self.commit: Commit | None = None
        self.began_at = [each.log_start for each in stage.inputs]  # where its inputs stood when it was first looked at
        self.lives = 0  # in this process
        self.state_entries = self.is_stopped = None  # which nobody tells
        self._journal_end = journal_end
        self._tail = TAIL_RECORDS
        self._read_tail()

    @property
    def is_over(self) -> bool:
        """A goodbye does not count where another holder took the cell later: the journal is read to its end first."""
        return self.is_at_its_end or (self._is_cut and self._reading.position >= self._journal_end)

    def high_watermark(self, index: int) -> int:
        """Nobody tells the high watermark of an input."""
        return -1

    def close(self) -> None:
        self._reading.end()

    def _read_tail(self) -> None:
        self._since = max(0, self._journal_end - self._tail)
        self._tail *= TAIL_GROWTH
        self._reading = self._cluster.read(self.stage.journal, self._since, self._look, self._failed, None)

    def _look(self) -> None:
        while (piece := self._reading.take(MOST_RECORDS)) is not None:
            for offset, key, value in zip(piece.offsets, piece.keys, piece.values, strict=True):
                if key in (COMMIT, GOODBYE, TAKE_OVER) and value is not None:
                    self._take(offset, key, value)
        if self.commit is None and self._since > 0 and self._reading.is_at_end:
            self._reading.end()
            self._read_tail()

    def _take(self, offset: int, key: bytes, value: bytes) -> None:
        """The number of a commit tells which is the newer one: what an older holder wrote late is passed over."""
        try:
            entry = decoded(key, value)
        except Unreadable as why:  # which ends its holder
            _log.warning("%s: offset %d of its journal is passed over: %s", self.stage.title, offset, why)
            return
        if isinstance(entry, TakeOver):
            self._is_cut, self.why = self._is_held_nowhere, ""
        if isinstance(entry, Goodbye):
            self.is_at_its_end = self.is_at_its_end or entry.ended == self._run
            if offset >= self.began:
                self._is_cut = self._is_cut or entry.why != "" or entry.cut == self._run
                self.why = entry.why
        if not isinstance(entry, Commit):
            return
        if offset < self._journal_end or (self.commit is None and entry.number > 1):
            self.began_at = [each.next_offset for each in entry.inputs]
        if self.commit is None or entry.number > self.commit.number:
            self.commit = entry

    def _failed(self, error: KafkaError) -> None:
        _log.warning("%s: its journal cannot be read now: %s", self.stage.title, error.str())
