"""Three brokers of oncelog beside three of Apache Kafka, on this machine in one run.

    python -m bench.cluster [--only ROW ...] [--leave-out ROW ...] [--seconds 4] [--rounds 3] [--list]

The client is librdkafka with the same settings for both, or raw connections where it would be the bound. Both stand
there at the same time and take turns within each round, every other round backwards. A whole run takes some twelve
minutes. All values are kept in bench/results/, and docs/benchmarks-cluster.md is written from them: after a run of all
rows, or by `--from FILE ...`.
"""

import signal
import sys
from pathlib import Path
from typing import Any

import click

from bench import table
from bench.arena import KAFKA
from bench.cluster_arena import ClusterArena
from bench.cluster_rows import ROWS
from bench.command import about_rows, chosen, circumstances, keep, kept_option, need_kafka, read, write_between
from bench.turns import measure

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks-cluster.md"
BEGIN = "<!-- the figures: written by python -m bench.cluster -->"
END = "<!-- end of the figures -->"
Kept = tuple[dict[str, Any], table.Measured]


@click.command(help=__doc__, context_settings={"max_content_width": 120, "default_map": {"rounds": 3}})
@about_rows
@kept_option
@click.option("--seconds", default=4.0, help="How long a timed section runs.")
@click.option("--kills", default=6, help="How many leaders are killed.")
@click.option("--pauses", default=2, help="How many leaders fall silent.")
@click.option("--folder", type=click.Path(path_type=Path), help="Where the brokers keep their data.")
@click.option("--without-kafka", is_flag=True, help="Only oncelog. Writes no page.")
@click.option(
    "--before",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Another checkout of oncelog, whose brokers take Kafka's place. Writes no page.",
)
def main(
    only: tuple[str, ...],
    leave_out: tuple[str, ...],
    seconds: float,
    rounds: int,
    kills: int,
    pauses: int,
    folder: Path | None,
    without_kafka: bool,
    before: Path | None,
    list_rows: bool,
    kept: tuple[Path, ...],
    page: bool | None,
) -> None:
    names = chosen((row.name for row in ROWS), only, leave_out)
    if list_rows:
        print("\n".join(names))
        return
    if kept:
        write_page([read(path) for path in kept])
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # an exception, so that what was started is ended
    is_beside_kafka = not without_kafka and before is None
    if is_beside_kafka:
        need_kafka()
    about = circumstances(seconds=seconds, rounds=rounds, kills=kills, pauses=pauses, kafka="4.3.0")
    with ClusterArena(seconds=seconds, kills=kills, pauses=pauses, folder=folder, before=before) as arena:
        wanted = [row for row in ROWS if row.name in names]
        measured = measure(arena, wanted, rounds, set() if without_kafka else {KAFKA})
    if before is not None:
        print("\n" + table.table(ROWS, measured, other="before"))
        return
    print("\n" + section(about, measured))
    print(f"\nkept in {keep(about, measured, 'cluster-')}")
    if is_beside_kafka and (page or (page is None and not only and not leave_out)):
        write_page([(about, measured)])
    if any(not figures for peers in measured.values() for figures in peers.values()):
        sys.exit(1)


def section(about: dict[str, Any], measured: table.Measured) -> str:
    here = about["machine"]
    return (
        f"{here['cores']} cores ({here['processor']}), {here['memory_gb']} GB of memory, Linux {here['kernel']}, "
        f"Python {here['python']}, Apache Kafka {about['kafka']}; {about['when']}, load average {about['load']:.1f} "
        f"before. Medians of {about['rounds']} round{'s' * (about['rounds'] > 1)} of {about['seconds']:g} s, in turn; "
        f"{about['kills']} kills, {about['pauses']} silences.\n\n{table.table(ROWS, measured)}"
    )


def write_page(runs: list[Kept]) -> None:
    write_between(PAGE, BEGIN, END, "\n\n".join(table.latest(runs, section)))


if __name__ == "__main__":
    main()
