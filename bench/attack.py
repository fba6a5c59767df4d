"""What one client does to the others: `./dev attack`.

A victim, in a process of its own, sends one record at a time while each attack runs against a fresh server. The table
shows what the victim's answers took, what the server's memory came to, and what the attacker was told. The first row
attacks nothing: the machine's own pauses stand there. With `--before`, another version's server is attacked, too, or
its figures are taken from bench/results/.
"""

import json
import time
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread
from typing import Any

import click

from bench import (
    attacks,
    attacks_on_consumer_groups,
    attacks_on_doors,
    attacks_on_pages,
    attacks_on_records,
    attacks_on_tokens,
    attacks_on_topics,
    attacks_on_transactions,
)
from bench.attacks import Row, Said, row
from bench.command import chosen, circumstances, keep, write_between
from bench.process import cpu_seconds, resident_mb
from bench.victim import victim
from tests.peers.oncelog_process import SOURCES
from tests.peers.server_process import ServerProcess
from tests.raw import ServerClosed

ROOMS = (
    attacks,
    attacks_on_consumer_groups,
    attacks_on_topics,
    attacks_on_records,
    attacks_on_transactions,
    attacks_on_pages,
    attacks_on_doors,
    attacks_on_tokens,
)
LOOK_S = 0.05
AFTERWARDS_S = 1.0  # what is put off until later hurts later

BESIDE = ("worst_ms", "p999_ms", "peak_mb")
PAGE = Path(__file__).parents[1] / "docs/limits.md"
BEGIN, END = "<!-- attacks -->", "<!-- end of attacks -->"

Figures = dict[str, float | str]


@row("nothing")
def nothing(server: ServerProcess) -> Generator[None, None, Said]:
    yield
    time.sleep(5)
    return ""


class Peak:
    """The most memory that a process was seen to hold."""

    def __init__(self, pid: int) -> None:
        self.mb = 0.0
        self._pid = pid
        self._over = Event()
        self._thread = Thread(target=self._look)
        self._thread.start()

    def _look(self) -> None:
        while not self._over.wait(LOOK_S):
            self.mb = max(self.mb, resident_mb(self._pid))

    def end(self) -> float:
        self._over.set()
        self._thread.join()
        return self.mb


def measure(each: Row, folder: Path, sources: Path = SOURCES) -> Figures:
    with each.served(folder, sources=sources) as server:
        attack = each.attack(server)
        with victim(server.port) as other:
            next(attack)
            time.sleep(0.5)
            other.waits()
            before_mb, spent_s, peak = resident_mb(server.pid), cpu_seconds(server.pid), Peak(server.pid)
            begun = time.perf_counter()
            try:
                next(attack)
                raise AssertionError(f"{each.name} yields more than once")
            except StopIteration as end:
                said: Said = end.value
            took_s = time.perf_counter() - begun
            time.sleep(AFTERWARDS_S)
            found = other.waits()
            peak_mb, after_mb = peak.end(), resident_mb(server.pid)
            spent_s = cpu_seconds(server.pid) - spent_s
        figures: Figures = {
            "p50_ms": found.p50_ms,
            "p999_ms": found.p999_ms,
            "worst_ms": found.worst_ms,
            "before_mb": before_mb,
            "peak_mb": peak_mb,
            "after_mb": after_mb,
            "attack_s": took_s,
            "processor_s": spent_s,
            "said": said,
        }
        if each.is_restarted:
            server.stop()
            server.start()
            figures["start_processor_s"] = cpu_seconds(server.pid)
    return figures


HEAD = (
    "| attack | p50 ms | p99.9 ms | worst ms | memory in MB before → most → after | what the attacker is told |\n"
    "|---|--:|--:|--:|--:|---|"
)
BESIDE_HEAD = (
    "| attack | worst ms, before | now | p99.9 ms, before | now | most memory in MB, before | now "
    "| what the attacker is told now |\n|---|--:|--:|--:|--:|--:|--:|---|"
)


def line(each: Row, figures: Figures) -> str:
    ms = " | ".join(f"{figures[name]:.1f}" for name in ("p50_ms", "p999_ms", "worst_ms"))
    mb = " → ".join(f"{figures[name]:.0f}" for name in ("before_mb", "peak_mb", "after_mb"))
    return f"| {each.title} | {ms} | {mb} | {told(figures)} |"


def line_beside(each: Row, before: Figures | None, figures: Figures) -> str:
    """`before`: nothing in it where that server died, None where it was never asked."""
    cells = [cell(found, name) for name in BESIDE for found in (before, figures)]
    return f"| {each.title} | {' | '.join(cells)} | {told(figures)} |"


def cell(figures: Figures | None, name: str) -> str:
    if figures is None:
        return ""
    return f"{figures[name]:,.0f}" if figures else "died"


def told(figures: Figures) -> str:
    start = figures.get("start_processor_s")
    return f"{figures['said']}{'' if start is None else f'; the next start takes {start:.1f} s of processor time'}"


def kept_before(file: Path) -> dict[str, Figures]:
    """What an earlier run measured of that version."""
    figures: dict[str, dict[str, Figures]] = json.loads(file.read_text(encoding="utf-8"))["figures"]
    return {name: each["before"] for name, each in figures.items() if "before" in each}


def measure_before(each: Row, sources: Path) -> Figures:
    """That server may not live through it: then there are no figures."""
    with TemporaryDirectory(prefix="oncelog-attack-") as folder, suppress(ServerClosed, OSError):
        return measure(each, Path(folder), sources)
    return {}


@click.command(help=__doc__)
@click.option("--only", multiple=True, help="An attack; may be given several times. All by default.")
@click.option("--leave-out", multiple=True, help="An attack to leave out.")
@click.option("--list", "list_rows", is_flag=True, help="Name the attacks and end.")
@click.option(
    "--before", type=click.Path(path_type=Path, exists=True), help="Another checkout, or a file of figures of it."
)
@click.option("--page/--no-page", default=None, help="Write the page. By default when all rows were measured.")
@click.option("--keep/--no-keep", "is_kept", default=True, help="Write all figures to bench/results/.")
def main(
    only: tuple[str, ...],
    leave_out: tuple[str, ...],
    list_rows: bool,
    before: Path | None,
    page: bool | None,
    is_kept: bool,
) -> None:
    rows = sorted(
        [each for room in ROOMS for each in room.ROWS],
        key=lambda each: each.name != "nothing",
    )
    if list_rows:
        for each in rows:
            click.echo(f"{each.name:32}{each.title}")
        return
    names = set(chosen((each.name for each in rows), only, leave_out))
    about = circumstances()
    kept: dict[str, Any] = {}
    lines = [HEAD if before is None else BESIDE_HEAD]
    known = kept_before(before) if before is not None and before.is_file() else None
    click.echo(lines[0])
    for each in rows:
        if each.name not in names:
            continue
        then = None
        if known is not None:
            then = known.get(each.name)
        elif before is not None:
            then = measure_before(each, before / "src")
        with TemporaryDirectory(prefix="oncelog-attack-") as folder:
            now = measure(each, Path(folder))
        kept[each.name] = now if then is None else {"before": then, "now": now}
        lines.append(line(each, now) if before is None else line_beside(each, then, now))
        click.echo(lines[-1])
    if is_kept:
        click.echo(f"kept in {keep(about, kept, 'attack-')}")
    if page if page is not None else len(names) == len(rows):
        head = (
            f"Measured {about['when'][:10]} on {about['machine']['cores']} cores of a {about['machine']['processor']}."
        )
        write_between(PAGE, BEGIN, END, f"{head}\n\n" + "\n".join(lines))


if __name__ == "__main__":
    main()
