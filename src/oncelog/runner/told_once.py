"""Warnings that a run gives once, though many cells meet the cause, or the same look finds it again."""

import logging
from collections.abc import Sequence
from typing import Final

from oncelog.client.door import Metadata
from oncelog.runner.holder import CellHolder
from oncelog.runner.layout import Layout

_log: Final = logging.getLogger("oncelog.flow")

LONG_WAIT_MS: Final = 3_000


class ToldOnce:
    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._waiting = 0
        self._has_told_wait = False
        self._counts: dict[str, int] = {}  # of partitions, of topics that have more than they had

    def waits(self, holders: Sequence[CellHolder]) -> None:
        """Say that cells wait for holders with other code, where that is long; once as many wait as at the look
        before."""
        waits_ms = [each.waits_ms for each in holders if each.waits_ms >= LONG_WAIT_MS]
        waited, self._waiting = self._waiting, len(waits_ms)
        if self._has_told_wait or not waits_ms or len(waits_ms) != waited:
            return
        self._has_told_wait = True
        _log.warning(
            "flow %s: %d of %d cells wait up to %d s: a process with another version of the code held them, has not "
            "said goodbye and may still send (this one is %s). Where that process is at work, stop it; where it was "
            "killed, wait, or start its version again and stop that one",
            self._layout.flow,
            len(waits_ms),
            len(holders),
            max(waits_ms) // 1000,
            self._layout.code,
        )

    def more_partitions(self, metadata: Metadata) -> None:
        layout, topics = self._layout, metadata.topics
        for name, count in layout.partitions.items():
            now = len(topics[name].partitions) if name in topics else 0
            if now > count and now != self._counts.get(name):
                self._counts[name] = now
                uses = "reads and writes" if name in layout.between else "reads"
                _log.warning(
                    "topic %s has %d partitions now, and flow %s %s the first %d, as it says (`partitions=`)",
                    name,
                    now,
                    layout.flow,
                    "writes" if name in layout.targets else uses,
                    count,
                )
