"""The metrics of a running flow as Prometheus text, `flow.run(properties, metrics="HOST:PORT")`."""

import logging
from collections.abc import Callable, Iterator
from typing import Final, Literal

from oncelog.arguments import check_kind
from oncelog.client.door import LoopThread
from oncelog.flow.errors import FlowRefused
from oncelog.flow.flows import Run
from oncelog.metrics.hosts import is_loopback
from oncelog.metrics.http import MetricsServer
from oncelog.metrics.text import Family, Sample, labels, lines_of
from oncelog.runner.progress import CellProgress
from oncelog.settings import SettingsError, parse_address

_log: Final = logging.getLogger("oncelog.flow")


def _flow(value: Callable[[Run], float]) -> Callable[[Run], Iterator[Sample]]:
    def samples(run: Run) -> Iterator[Sample]:
        yield labels(flow=run.name), value(run)

    return samples


def _info(run: Run) -> Iterator[Sample]:
    yield labels(flow=run.name, id=run.id, run=run.run_id), 1


def _cells(
    name: str, kind: Literal["counter", "gauge"], text: str, value: Callable[[CellProgress], float | None]
) -> Family[Run]:
    def samples(run: Run) -> Iterator[Sample]:
        flow = run.name
        for each in run.cells:
            found = value(each)
            if found is not None:
                yield labels(flow=flow, stage=each.stage, cell=each.cell), found

    return Family(f"oncelog_flow_{name}", kind, text, samples)


FAMILIES: Final[tuple[Family[Run], ...]] = (
    Family("oncelog_flow_info", "gauge", "Which flow and run this is; the value says nothing.", _info),
    Family("oncelog_flow_paused", "gauge", "1 if the flow is paused.", _flow(lambda run: run.is_paused)),
    _cells(
        "records_total", "counter", "Records taken and committed, in this process.", lambda cell: max(0, cell.records)
    ),
    _cells("written_total", "counter", "Records written since the flow began.", lambda cell: cell.written),
    _cells("late_total", "counter", "Records that were late, since the flow began.", lambda cell: cell.late),
    _cells("commits_total", "counter", "Commits since the flow began.", lambda cell: cell.commits),
    _cells(
        "lag", "gauge", "Records of the inputs that are not committed yet, where it is known.", lambda cell: cell.lag
    ),
    _cells("state_entries", "gauge", "Entries of the state, where this process holds it.", lambda cell: cell.state),
    _cells(
        "watermark_seconds",
        "gauge",
        "The watermark of the last commit, in seconds since 1970; left out before there is one.",
        lambda cell: cell.watermark_ms / 1000 if cell.watermark_ms >= 0 else None,
    ),
    _cells("lives_total", "counter", "Times that this process began to hold the cell.", lambda cell: cell.lives),
    _cells(
        "stopped",
        "gauge",
        "1 if a person has to look at the cell: the log of the process that holds it says why.",
        lambda cell: cell.is_stopped,
    ),
)


class Scraped:
    """The port for scrapes, on a thread of its own, which reads what the run looked at last."""

    def __init__(self, run: Run, address: str) -> None:
        self._run = run
        check_kind("metrics", address, str, "HOST:PORT, such as 127.0.0.1:9309")
        try:
            self._host, self._port = parse_address("metrics", address)
        except SettingsError as unfit:
            raise FlowRefused(str(unfit)) from unfit
        if not is_loopback(self._host):
            raise FlowRefused(
                f"metrics={address}: a flow knows no users, so everybody who reaches this address would read its "
                "metrics: leave them on 127.0.0.1, behind a proxy that checks over TLS who asks"
            )
        self._thread: LoopThread | None = None
        self.has_begun = False  # the run, whose id is not known before
        self._server = MetricsServer(lambda: lines_of(FAMILIES, run) if self.has_begun else ())

    def begin(self) -> str:
        """Begin to serve; returns the address."""
        self._thread = LoopThread("oncelog-metrics")
        try:
            port = self._thread.run(self._server.start(self._host, self._port))
        except OSError as refusal:
            self._thread.stop()
            self._thread = None
            raise FlowRefused(
                f"flow {self._run.name}: metrics cannot be served on {self._host}:{self._port}: "
                f"{refusal.strerror or refusal}. Give them another port"
            ) from refusal
        address = f"{self._host}:{port}"
        _log.info("flow %s: metrics on %s", self._run.name, address)
        return address

    def end(self) -> None:
        if self._thread is not None:
            self._thread.run(self._server.stop())
            self._thread.stop()
