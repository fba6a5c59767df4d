"""Hundreds of kills:  ./dev soak --kills 300 --seed 7"""

import shutil
import sys
import tempfile
import time
from pathlib import Path

import click

from tests.soak.campaign import soak


@click.command()
@click.option("--kills", default=300, help="How often the server is killed.")
@click.option("--seed", default=None, type=int, help="Decides the moments of the kills and what clients send.")
@click.option("--keep", is_flag=True, help="Keep the data folder.")
def main(kills: int, seed: int | None, keep: bool) -> None:
    chosen = time.time_ns() % 10**6 if seed is None else seed
    folder = Path(tempfile.mkdtemp(prefix="oncelog-soak-"))
    print(f"seed {chosen}, data in {folder}", flush=True)
    result = soak(folder, kills=kills, seed=chosen, say=lambda text: print(text, flush=True))
    print(result)
    for wrong in result.wrong[:50]:
        print(f"  {wrong}")
    if result.wrong:
        print(f"the data folder is kept: {folder}")
        sys.exit(1)
    if not keep:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
