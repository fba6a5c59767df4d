"""`oncelog check`: read a whole data folder, check every CRC and every file. Only `--cut` changes anything.

Exit codes: 0 everything is whole, 1 something is damaged, 2 nothing could be checked.
"""

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from oncelog.log.partition_checking import Checked

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
@click.option("--quiet", is_flag=True, help="Print only damage, and the sum.")
@click.option(
    "--cut",
    metavar="TOPIC-PARTITION:OFFSET",
    help="Remove all records of a damaged partition from this offset on, for good, and check nothing.",
)
def command(data: Path, quiet: bool, cut: str | None) -> None:
    """Read a whole data folder and tell what is damaged in it. Nothing is changed without --cut.

    In the folder of a cluster on one machine every broker's folder is read, and what they have is compared.

    A line that says DAMAGED names what a server would refuse or readers would miss. A note names what the next start
    mends by itself, such as a write that a crash tore.

    Exit codes: 0 everything is whole, 1 something is damaged, 2 nothing could be checked.
    """
    from oncelog.cluster.file import UnfitFolder, refuse_unused
    from oncelog.cluster.folder_checking import check_folder
    from oncelog.cluster.folder_lock import FolderInUse, no_server_in
    from oncelog.cluster.replica_comparing import brokers_in, check_cluster, holds_brokers
    from oncelog.log.disk import RealDisk

    damaged = places = size_bytes = records = 0
    try:
        with ExitStack() as held:
            held.enter_context(no_server_in(str(data)))
            if cut is not None:
                _cut(data, cut)
                return
            disk = RealDisk()
            is_cluster = holds_brokers(disk, str(data))
            if not is_cluster:
                refuse_unused(disk, str(data))
            for broker in brokers_in(disk, str(data)) if is_cluster else ():
                held.enter_context(no_server_in(f"{data}/{broker}"))
            check = check_cluster if is_cluster else check_folder
            for checked in check(disk, str(data)):
                _tell(checked, quiet)
                places += 1
                size_bytes += checked.size_bytes
                records += checked.records
                damaged += bool(checked.damage)
    except (FolderInUse, UnfitFolder, OSError) as refusal:
        click.echo(f"Error: {refusal}", err=True)
        raise SystemExit(NOT_CHECKED) from refusal
    if not places:
        click.echo(f"Error: {data} is no cluster's folder: no broker has a folder in it", err=True)
        raise SystemExit(NOT_CHECKED)
    sum_ = f"{records:,} records in {size_bytes:,} bytes of {data}"
    if damaged:
        click.echo(f"{sum_}: {damaged} of {places} places DAMAGED")
        raise SystemExit(DAMAGED)
    click.echo(f"{sum_}: everything is whole")


def _cut(data: Path, cut: str) -> None:
    from oncelog.log.cutting import cut_back
    from oncelog.log.disk import RealDisk
    from oncelog.log.errors import LogError

    name, _, offset = cut.rpartition(":")
    if not name or "/" in name or not (offset.isascii() and offset.isdigit()):
        raise click.UsageError(f"--cut {cut}: expected TOPIC-PARTITION:OFFSET, such as orders-0:1200")
    if not (data / name).is_dir():
        raise click.UsageError(f"--cut {cut}: there is no folder {data / name}")
    try:
        size_bytes = cut_back(RealDisk(), str(data / name), int(offset))
    except LogError as refusal:
        raise click.ClickException(str(refusal)) from refusal
    click.echo(f"{name}: cut back to offset {offset}, {size_bytes:,} bytes are gone")


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
