"""How far a run is, out of its cells' commits: for `Run.last_progress`, for the log, for a terminal."""

import logging
from collections import deque
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from oncelog.clock import monotonic_s, wall_s
from oncelog.runner.elsewhere import CellElsewhere
from oncelog.runner.holder import CellHolder

_log: Final = logging.getLogger("oncelog.flow")

KEPT: Final = 100
LINE_EVERY_S: Final = 60.0


class Progress:
    def __init__(self, flow: str) -> None:
        self.recent: deque[dict[str, Any]] = deque(maxlen=KEPT)
        self._about: dict[str, Any] = {"name": flow}
        self._since_s = self._line_s = monotonic_s()
        self._records = 0
        self.is_paused = False

    def began(self, flow_id: str, run_id: str) -> None:
        self._about |= {"id": flow_id, "runId": run_id}
        _log.info("flow %s begins: run %s", self._about["name"], run_id)

    def look(self, holders: Mapping[str, Sequence[CellHolder | CellElsewhere]]) -> None:
        now_s = monotonic_s()
        stages = {stage: self._stage(each) for stage, each in holders.items()}
        taken = sum(stage["records"] for stage in stages.values())
        since_s = max(now_s - self._since_s, 0.001)
        rows, self._records, self._since_s = taken - self._records, taken, now_s
        self.recent.append(
            {
                **self._about,
                "timestamp": datetime.fromtimestamp(wall_s(), UTC).isoformat(timespec="milliseconds"),
                "numInputRows": rows,
                "processedRowsPerSecond": round(rows / since_s, 1),
                "stages": stages,
            }
        )
        if now_s - self._line_s >= LINE_EVERY_S:
            self._line_s = now_s
            _log.info("%s", self.line)

    def _stage(self, holders: Sequence[CellHolder | CellElsewhere]) -> dict[str, Any]:
        records = lag = commits = 0
        is_lag_known = True
        for holder in holders:
            commit = holder.commit
            commits += 0 if commit is None else commit.number
            for index, began_at in enumerate(holder.began_at):
                position = began_at if commit is None else commit.inputs[index].next_offset
                records += position - began_at
                end = holder.high_watermark(index)
                is_lag_known = is_lag_known and end >= 0
                lag += max(0, end - position)
        return {
            "cells": len(holders),
            "records": records,
            "lag": lag if is_lag_known else None,
            "commits": commits,
            "state": sum(holder.state_entries for holder in holders),
            "lives": sum(holder.lives for holder in holders),
        }

    @property
    def line(self) -> str:
        """Of the last look, in words."""
        if not self.recent:
            return f"flow {self._about['name']} starts"
        last = self.recent[-1]
        stages = last["stages"].items()
        parts = [
            f"{name} lag {'?' if each['lag'] is None else format(each['lag'], ',')}, {each['state']:,} keys, "
            f"commit {each['commits']:,}"
            for name, each in stages
        ]
        name = f"{last['name']} (paused)" if self.is_paused else last["name"]
        return f"flow {name}: {last['processedRowsPerSecond']:,.0f} records/s; " + "; ".join(parts)
