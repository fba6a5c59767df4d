"""What the commands of the bench have in common: which rows are measured, and what becomes of the figures."""

import json
import os
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from bench.process import machine
from tests.peers.jars import MissingPeer, java, kafka_jars

RESULTS = Path(__file__).parent / "results"

_ABOUT_ROWS = (
    click.option("--rounds", default=5, help="How often each row is measured; the table shows medians."),
    click.option("--only", multiple=True, help="A row to measure; may be given several times. All by default."),
    click.option("--leave-out", multiple=True, help="A row not to measure."),
    click.option("--list", "list_rows", is_flag=True, help="Name the rows and end."),
    click.option("--page/--no-page", default=None, help="Write the page. By default when all rows were measured."),
)
kept_option = click.option(
    "--from",
    "kept",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Measure nothing; write the page from what runs kept in bench/results/.",
)


def about_rows(body: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(_ABOUT_ROWS):
        body = option(body)
    return body


def chosen(names: Iterable[str], only: Iterable[str], leave_out: Iterable[str]) -> list[str]:
    known = list(names)
    if wrong := sorted({*only, *leave_out} - set(known)):
        raise click.UsageError(f"no such row: {', '.join(wrong)}; --list names them")
    return [name for name in known if name not in leave_out and (not only or name in only)]


def need_kafka() -> None:
    """Of a command that can leave it out."""
    try:
        java()
        kafka_jars()
    except MissingPeer as missing:
        raise click.ClickException(f"{missing} (or leave Kafka out with --without-kafka)") from missing


def circumstances(**more: Any) -> dict[str, Any]:
    """When and where figures were measured."""
    when = datetime.now(UTC).isoformat(timespec="seconds")
    return {"when": when, "machine": machine(), "load": os.getloadavg()[0], **more}


def keep(about: dict[str, Any], figures: Any, kind: str = "") -> Path:
    """All values of all rounds, as JSON."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{kind}{datetime.now(UTC):%Y-%m-%dT%H%M%S}.json"
    path.write_text(json.dumps({"about": about, "figures": figures}, indent=1) + "\n")
    return path


def read(path: Path) -> tuple[dict[str, Any], Any]:
    """What `keep` wrote."""
    kept = json.loads(path.read_text())
    return kept["about"], kept["figures"]


def write_between(page: Path, begin: str, end: str, text: str) -> None:
    """Replaces what stands between the two marks."""
    before, rest = page.read_text().split(begin, 1)
    page.write_text(f"{before}{begin}\n\n{text}\n\n{end}{rest.split(end, 1)[1]}")
