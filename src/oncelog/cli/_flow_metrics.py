"""The metrics of a running flow as Prometheus text, for `oncelog flow run --metrics`."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Literal

import click

from oncelog.cli._endings import failure
from oncelog.server.metrics_text import Family, Sample, labels, lines_of

if TYPE_CHECKING:
    from oncelog.flow.flows import Run
    from oncelog.runner.progress import CellProgress


def _flow(value: Callable[["Run"], float]) -> Callable[["Run"], Iterator[Sample]]:
    def samples(run: "Run") -> Iterator[Sample]:
        yield labels(flow=run.name), value(run)

    return samples


def _info(run: "Run") -> Iterator[Sample]:
    yield labels(flow=run.name, id=run.id, run=run.run_id), 1


def _cells(
    name: str, kind: Literal["counter", "gauge"], text: str, value: Callable[["CellProgress"], float | None]
) -> Family["Run"]:
    def samples(run: "Run") -> Iterator[Sample]:
        flow = run.name
        for each in run.cells:
            found = value(each)
            if found is not None:
                yield labels(flow=flow, stage=each.stage, cell=each.cell), found

    return Family(f"oncelog_flow_{name}", kind, text, samples)


FAMILIES: Final[tuple[Family["Run"], ...]] = (
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


def metrics_address(given: str) -> tuple[str, int]:
    from oncelog.server.listeners import parse_address
    from oncelog.settings import SettingsError

    try:
        return parse_address("--metrics", given)
    except SettingsError:
        raise click.UsageError(f"--metrics {given or 'is empty'}: expected HOST:PORT, such as 127.0.0.1:9309") from None


@contextmanager
def served(run: "Run", host: str, port: int) -> Iterator[int]:
    """On a thread of its own, which reads what the run looked at last; gives the port."""
    from oncelog.client.door import LoopThread
    from oncelog.server.metrics_http import MetricsServer

    server, thread = MetricsServer(lambda: lines_of(FAMILIES, run)), LoopThread("oncelog-metrics")
    try:
        try:
            bound = thread.run(server.start(host, port))
        except OSError as refusal:
            run.stop()
            raise failure(f"--metrics {host}:{port} cannot be listened on: {refusal.strerror or refusal}") from refusal
        try:
            click.echo(f"flow {run.name}: metrics on {host}:{bound}", err=True)
            yield bound
        finally:
            thread.run(server.stop())
    finally:
        thread.stop()
