"""`oncelog warm`, where what it makes is not there yet: Spark, and servers, start in half the time.

  python -m tests.warming            Spark's classes alone
  python -m tests.warming --loops    and the machine code of the loops

Most who run the product never make the machine code, so the first tests are without.
"""

import os
import sys
from pathlib import Path

import click
import pyspark

from oncelog import machine_code
from oncelog.cache_folder import NoCacheFolder
from oncelog.cli.warm import archive_classes
from oncelog.spark.class_archive import archive_of
from oncelog.spark.java import NoJava, find_java


def main(*, with_loops: bool) -> None:
    """The tests are the same without, and take longer; so nothing here is a failure."""
    try:
        if with_loops and not machine_code.is_near():
            click.echo(machine_code.make())
        if not archive_of(find_java(os.environ).home, Path(pyspark.__file__).parent).exists():
            archive_classes()
    except (machine_code.NoMachineCode, NoCacheFolder, NoJava, click.ClickException) as refusal:
        click.echo(f"the tests start cold: {refusal}")


if __name__ == "__main__":
    main(with_loops="--loops" in sys.argv[1:])
