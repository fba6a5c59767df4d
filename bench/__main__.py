"""Side by side with Apache Kafka, in one run:  ./dev bench [--only ROW ...] [--seconds N] [--rounds N]"""

import signal
import sys
from pathlib import Path
from typing import Any

import click

from bench import (
    guarded_rows,  # noqa: F401  importing it adds its rows
    life_rows,  # noqa: F401
    table,
    tls_rows,  # noqa: F401
    transaction_rows,  # noqa: F401
)
from bench.arena import KAFKA, Arena
from bench.command import about_rows, chosen, circumstances, keep, kept_option, need_kafka, read
from bench.rows import ROWS
from bench.turns import measure


@click.command(context_settings={"max_content_width": 120})
@about_rows
@kept_option
@click.option("--seconds", default=3.0, help="How long a timed section runs.")
@click.option("--fill-gb", default=2.0, help="The size of the log that is fetched from.")
@click.option("--restart-gb", default=10.0, help="The size of the log that a server comes back to.")
@click.option("--folder", type=click.Path(path_type=Path), help="Where the servers keep their data.")
@click.option("--without-kafka", is_flag=True, help="Only oncelog and the bare programs.")
@click.option(
    "--before",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Another checkout of oncelog, whose server takes Kafka's place. Writes no page.",
)
def main(
    only: tuple[str, ...],
    leave_out: tuple[str, ...],
    seconds: float,
    rounds: int,
    fill_gb: float,
    restart_gb: float,
    folder: Path | None,
    without_kafka: bool,
    before: Path | None,
    list_rows: bool,
    kept: tuple[Path, ...],
    page: bool | None,
) -> None:
    names = chosen((row.name for row in ROWS), only, leave_out)
    wanted = [row for row in ROWS if row.name in names]
    if kept:
        table.write_page("\n\n".join(table.latest([read(path) for path in kept], section)))
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # an exception, so that the servers are ended
    if list_rows:
        print("\n".join(names))
        return
    peers = set() if without_kafka else {KAFKA}
    if not without_kafka and before is None:
        need_kafka()
    about = circumstances(seconds=seconds, rounds=rounds, fill_gb=fill_gb, restart_gb=restart_gb, kafka="4.3.0")
    with Arena(seconds=seconds, fill_gb=fill_gb, restart_gb=restart_gb, folder=folder, before=before) as arena:
        measured = measure(arena, wanted, rounds, peers)
    if before is not None:
        print("\n" + table.table(ROWS, measured, other="before"))
        return
    text = section(about, measured)
    print("\n" + text)
    print(f"\nkept in {keep(about, measured)}")
    if page or (page is None and not only and not leave_out and not without_kafka):
        table.write_page(text)
    if any(not figures for peers_of in measured.values() for figures in peers_of.values()):
        sys.exit(1)


def section(about: dict[str, Any], measured: table.Measured) -> str:
    return f"{heading(about)}\n\n{table.table(ROWS, measured)}"


def heading(about: dict[str, Any]) -> str:
    here = about["machine"]
    return (
        f"{here['cores']} cores ({here['processor']}), {here['memory_gb']} GB of memory, Linux {here['kernel']}, "
        f"Python {here['python']}, Apache Kafka {about['kafka']}; {about['when']}. "
        f"Medians of {about['rounds']} rounds of {about['seconds']:g} s, servers in turn; "
        f"fetched from {about['fill_gb']:g} GB, restarted on {about['restart_gb']:g} GB."
    )


if __name__ == "__main__":
    main()
