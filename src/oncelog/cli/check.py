"""`oncelog check`: read a whole data folder, check every CRC and every file, change nothing.

Exit codes: 0 everything is whole, 1 something is damaged, 2 nothing could be checked.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from oncelog.log.checking import Checked

DAMAGED = 1
NOT_CHECKED = 2


@click.command(name="check")
@click.option(
    "--data",
    metavar="DIR",
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The data folder of a server that does not run.",
)
@click.option("--quiet", is_flag=True, help="Only what is damaged, and the sum.")
def command(data: Path, quiet: bool) -> None:
    """Read a whole data folder and tell what is damaged in it. Nothing is changed.

    A line that says DAMAGED names what a server would refuse or readers would miss. A note names what the next start
    mends by itself, such as a write that a crash tore.

    Exit codes: 0 everything is whole, 1 something is damaged, 2 nothing could be checked.
    """
    from oncelog.cluster.checking import check_folder
    from oncelog.cluster.folder_lock import FolderInUse, no_server_in
    from oncelog.log.disk import RealDisk

    damaged = places = size_bytes = records = 0
    try:
        with no_server_in(str(data)):
            for checked in check_folder(RealDisk(), str(data)):
                _tell(checked, quiet)
                places += 1
                size_bytes += checked.size_bytes
                records += checked.records
                damaged += bool(checked.damage)
    except (FolderInUse, OSError) as refusal:
        click.echo(f"Error: {refusal}", err=True)
        raise SystemExit(NOT_CHECKED) from refusal
    sum_ = f"{records:,} records in {size_bytes:,} bytes of {data}"
    if damaged:
        click.echo(f"{sum_}: {damaged} of {places} places DAMAGED")
        raise SystemExit(DAMAGED)
    click.echo(f"{sum_}: everything is whole")


def _tell(checked: "Checked", quiet: bool) -> None:
    for text in checked.damage:
        click.echo(f"{checked.name}: DAMAGED: {text}")
    if not quiet:
        for text in checked.notes:
            click.echo(f"{checked.name}: note: {text}")
    if checked.left_out:
        click.echo(f"{checked.name}: {checked.left_out} more findings are not listed")
    if not quiet and not checked.damage:
        facts = f", {checked.records:,} records, offsets {checked.start_offset} to {checked.end_offset}"
        click.echo(f"{checked.name}: whole{facts if checked.name[-1].isdigit() else ''}")
