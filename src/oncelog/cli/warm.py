"""`oncelog warm`: what each start would do anew is done once: loops become machine code, Spark's classes an archive."""

import os
from importlib.util import find_spec
from pathlib import Path

import click

from oncelog import machine_code
from oncelog.cache_folder import NoCacheFolder
from oncelog.cli.parts.endings import ended_by_sigterm, failure


@click.command(name="warm")
@click.option("--loops", is_flag=True, help="The loops alone, as on a machine whose Spark is started elsewhere.")
def command(loops: bool) -> None:
    """Make flows, clients and Spark's sessions start faster on this machine from now on.

    Keeps the machine code of the compiled loops, where `oncelog[columns]` and a C compiler are installed: programs load
    that in the place of numba, which takes half a second of the processor and 120 MB of each process.

    Where Spark is installed, rehearses a small job on a server of its own, and has Java archive the classes that Spark
    has loaded for it, once for this Java and this Spark: about half a minute, and 200 MB, in the place of an earlier
    archive. `oncelog.spark.session()` finds it.

    Both are in ~/.cache/oncelog. To be without them again, delete the files.

    Exit codes: 0 done, 1 failed, 2 wrong usage, 130 Ctrl-C, 143 SIGTERM.
    """
    wants_classes = not loops and find_spec("pyspark") is not None
    try:
        place = machine_code.make()
        click.echo(f"{place}: {place.stat().st_size / 1e6:,.1f} MB")
    except machine_code.NoMachineCode as refusal:
        if not wants_classes:
            raise failure(f"no machine code was made: {refusal}") from refusal
        click.echo(f"no machine code was made, so numba compiles the loops: {refusal}", err=True)
    if wants_classes:
        archive_classes()


def archive_classes() -> None:
    try:
        import pyspark

        from oncelog.embedded import Server
        from oncelog.spark.class_archive import NoArchive, archive_of, make
        from oncelog.spark.java import NoJava, find_java
    except ImportError as missing:
        raise failure(f'Spark is not installed: pip install "oncelog[spark]" ({missing})') from missing

    try:
        spark_home = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
        archive = archive_of(find_java(os.environ).home, spark_home)
        click.echo("rehearsing a job, and archiving the classes that it needs", err=True)
        with ended_by_sigterm(), Server() as server:
            make(archive, server.bootstrap_servers)
    except (NoJava, NoCacheFolder) as missing:
        raise failure(str(missing)) from missing
    except NoArchive as refusal:
        raise click.ClickException(f"Java made no archive:\n{refusal}") from refusal
    click.echo(f"{archive}: {archive.stat().st_size / 1e6:,.0f} MB")
