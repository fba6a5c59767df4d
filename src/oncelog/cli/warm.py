"""`oncelog warm`: an archive of Spark's classes, from which Spark's JVM starts in half the time."""

import os
from pathlib import Path

import click

from oncelog.cli._endings import ended_by_sigterm, failure


@click.command(name="warm")
def command() -> None:
    """Have Spark's sessions on this machine start faster from now on.

    Rehearses a small job on a server of its own, and has Java archive the classes that Spark has loaded for it, once
    for this Java and this Spark: about half a minute, and 200 MB in ~/.cache/oncelog, in the place of an earlier
    archive. `oncelog.spark.session()` finds it. To be without it again, delete the file.

    Exit codes: 0 done, 1 failed, 2 wrong usage, 130 Ctrl-C, 143 SIGTERM.
    """
    try:
        import pyspark

        from oncelog.embedded import Server
        from oncelog.spark.class_archive import NotMade, archive_of, make
        from oncelog.spark.java import NoJava, find_java
    except ImportError as missing:
        raise failure(f'Spark is not installed: pip install "oncelog[spark]" ({missing})') from missing

    try:
        spark_home = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
        archive = archive_of(find_java(os.environ).home, spark_home)
        click.echo("rehearsing a job, and archiving the classes that it needs", err=True)
        with ended_by_sigterm(), Server() as server:
            make(archive, server.bootstrap_servers)
    except NoJava as missing:
        raise failure(str(missing)) from missing
    except NotMade as refusal:
        raise click.ClickException(f"Java made no archive:\n{refusal}") from refusal
    click.echo(f"{archive}: {archive.stat().st_size / 1e6:,.0f} MB")
