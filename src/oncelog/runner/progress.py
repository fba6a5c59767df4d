"""The progress of a run, out of its cells' commits: for `Run.last_progress`, for the log, for a terminal."""

import logging
from collections import deque
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from oncelog.clock import monotonic_s, wall_s
from oncelog.flow.actions import LATE
from oncelog.runner.elsewhere import CellElsewhere
from oncelog.runner.holder import CellHolder

_log: Final = logging.getLogger("oncelog.flow")

KEPT: Final = 100
LINE_EVERY_S: Final = 60.0


class CellProgress(NamedTuple):
    """A cell, by its last commit that is known here."""

    stage: str
    cell: int
    records: int  # taken since this process began to look at it
    lag: int | None  # None: not known here, as where another process holds it
    commits: int  # since the flow began, as are the next two
    written: int
    late: int
    watermark_ms: int  # -1: none yet
    state: int | None  # entries; None where another process holds it, as the next but one
    lives: int  # of a holder in this process
    is_stopped: bool | None  # a person has to look at it


class Progress:
    def __init__(self, flow: str) -> None:
        self.cells: Sequence[CellProgress] = ()  # as they were when they were looked at last
        self.recent: deque[dict[str, Any]] = deque(maxlen=KEPT)
        self._about: dict[str, Any] = {"name": flow}
        self._since_s = self._line_s = monotonic_s()
        self._records = 0
        self.is_paused = False

    def began(self, flow_id: str, run_id: str) -> None:
        self._about |= {"id": flow_id, "runId": run_id}
        _log.info("flow %s begins: run %s", self._about["name"], run_id)

    def ended(self) -> None:
        """Say at the end what was done, for the log of a job that runs at night."""
        _log.info("flow %s ends: its stages took %s records", self._about["name"], f"{self._records:,}")

    def look(
        self, holders: Mapping[str, Sequence[CellHolder | CellElsewhere]], unread: Mapping[tuple[str, int], int] = {}
    ) -> None:
        """`unread`: records of partitions that no cell reads, by stage and partition."""
        now_s = monotonic_s()
        cells = {stage: [_cell(stage, each) for each in every] for stage, every in holders.items()}
        stages = {stage: _sums(each) for stage, each in cells.items()}
        self.cells = [each for every in cells.values() for each in every]
        for (stage, partition), records in unread.items():
            self.cells = [*self.cells, CellProgress(stage, partition, 0, records, 0, 0, 0, -1, 0, 0, is_stopped=True)]
            if stages[stage]["lag"] is not None:
                stages[stage]["lag"] += records
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

    @property
    def line(self) -> str:
        """The last look, in words."""
        if not self.recent:
            return f"flow {self._about['name']} starts"
        last = self.recent[-1]
        stages = last["stages"].items()
        parts = [
            f"{name} lag {_counted(each['lag'])}, {_counted(each['state'])} keys, commit {each['commits']:,}"
            for name, each in stages
        ]
        name = f"{last['name']} (paused)" if self.is_paused else last["name"]
        return f"flow {name}: {last['processedRowsPerSecond']:,.0f} records/s; " + "; ".join(parts)


def _cell(stage: str, holder: CellHolder | CellElsewhere) -> CellProgress:
    commit, records, lag = holder.commit, 0, 0
    is_lag_known = True
    for index, began_at in enumerate(holder.began_at):
        position = began_at if commit is None else commit.inputs[index].next_offset
        records += position - began_at
        end = holder.high_watermark(index)
        is_lag_known = is_lag_known and end >= 0
        lag += max(0, end - position)
    return CellProgress(
        stage,
        holder.stage.cell,
        records,
        lag if is_lag_known else None,
        0 if commit is None else commit.number,
        0 if commit is None else sum(each.filled for each in commit.outputs),
        0 if commit is None else int(commit.metrics.get(LATE, 0)),
        -1 if commit is None else commit.watermark_ms,
        holder.state_entries,
        holder.lives,
        holder.is_stopped,
    )


def _counted(number: int | None) -> str:
    return "?" if number is None else f"{number:,}"


def _sum(numbers: Sequence[int | None]) -> int | None:
    """None where one of them is not known."""
    known = [each for each in numbers if each is not None]
    return sum(known) if len(known) == len(numbers) else None


def _sums(cells: Sequence[CellProgress]) -> dict[str, Any]:
    return {
        "cells": len(cells),
        "records": sum(each.records for each in cells),
        "lag": _sum([each.lag for each in cells]),
        "commits": sum(each.commits for each in cells),
        "written": sum(each.written for each in cells),
        "late": sum(each.late for each in cells),
        "state": _sum([each.state for each in cells]),
        "lives": sum(each.lives for each in cells),
        "watermark": min((each.watermark_ms for each in cells), default=-1),
    }
