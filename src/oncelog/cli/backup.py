"""`oncelog backup`: a copy of a data folder, while its server goes on.

Exit codes: 0 the copy is whole, 1 something in it is damaged, 2 no copy was made.
"""

from pathlib import Path

import click

DAMAGED = 1
NOT_COPIED = 2


@click.command(name="backup")
@click.option(
    "--data",
    metavar="DIR",
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The data folder; its server may run.",
)
@click.option("--no-check", is_flag=True, help="Leave out the check of the copy.")
@click.argument("to", metavar="TO", type=click.Path(path_type=Path))
def command(data: Path, no_check: bool, to: Path) -> None:
    """Copy a data folder to TO, which must not be there yet, while its server goes on. Then check the copy.

    The copy holds every record that was acknowledged before it began. To restore it: oncelog serve --data TO.

    Exit codes: 0 the copy is whole, 1 something in it is damaged, 2 no copy was made.
    """
    from oncelog.cluster.backup import Unfinished, back_up
    from oncelog.cluster.file import DamagedFolder, UnfitFolder
    from oncelog.cluster.folder_checking import check_folder
    from oncelog.log.disk import RealDisk
    from oncelog.server.secure import FOLDER

    if to.resolve().is_relative_to(data.resolve()):
        raise click.UsageError(f"{to} lies in {data}: name a folder outside of it")
    disk, sizes = RealDisk(), {}
    try:
        for copied in back_up(disk, str(data), str(to)):
            sizes[copied.name] = copied.size_bytes
        damaged = [] if no_check else [each for each in check_folder(disk, str(to)) if each.damage]
    except (Unfinished, DamagedFolder, UnfitFolder, OSError) as refusal:
        click.echo(f"Error: {refusal}", err=True)
        raise SystemExit(NOT_COPIED) from refusal
    click.echo(f"{sum(sizes.values()):,} bytes in {len(sizes)} places of {data} copied to {to}")
    if (data / FOLDER).is_dir():
        click.echo(
            f"Not copied: {data / FOLDER}, which has keys and a password. Without it a start of the copy with --secure "
            f"makes another authority, and no client's file fits. To keep it with the copy: cp -a {data / FOLDER} {to}"
        )
    for each in damaged:
        for text in each.damage:
            click.echo(f"{each.name}: DAMAGED: {text}")
    if damaged:
        raise SystemExit(DAMAGED)
