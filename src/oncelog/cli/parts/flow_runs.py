"""Running a flow from a command: what it shows meanwhile, and how it ends."""

import logging
import sys
from typing import TYPE_CHECKING, Final

import click

from oncelog.cli.parts.options import Connecting, refuse_unless_address

if TYPE_CHECKING:
    from oncelog.flow.program import Program

SIGNALLED: Final = 128

metrics_option = click.option("--metrics", metavar="HOST:PORT", help="Serve Prometheus text at /metrics there.")


def work(to: Connecting, flow: "Program", until: str | None, run_id: str | None, metrics: str | None) -> None:
    from oncelog.runner import start

    refuse_unless_address("--metrics", metrics, "127.0.0.1:9309")
    level = logging.WARNING if sys.stderr.isatty() else logging.INFO  # a terminal has the line of progress
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    started = start(flow, to.properties, until=until, run_id=run_id, metrics=metrics)
    if started.metrics is not None:
        click.echo(f"flow {started.name}: metrics on {started.metrics}", err=True)
    signalled = started.work()
    if signalled is not None:
        raise SystemExit(SIGNALLED + signalled)
