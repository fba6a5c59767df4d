"""For as long as one likes:  ./dev harm --minutes 60 --seed 7"""

import sys
import tempfile
import time
from pathlib import Path

import click

from tests.harms.campaign import ALL_KINDS, campaign

ENOUGH = 10**6


@click.command()
@click.option("--minutes", default=5.0, help="How long to go on.")
@click.option("--seed", default=None, type=int, help="Of the first folder; each takes the next one.")
@click.option("--folders", default=ENOUGH, help="How many folders at most, of twelve harms each.")
@click.option("--only", multiple=True, type=click.Choice(ALL_KINDS), help="Harms of this kind; more than once.")
def main(minutes: float, seed: int | None, folders: int, only: tuple[str, ...]) -> None:
    first = time.time_ns() % 10**6 if seed is None else seed
    until_s = time.monotonic() + minutes * 60
    print(f"seed {first}", flush=True)
    with tempfile.TemporaryDirectory(prefix="oncelog-harms-", ignore_cleanup_errors=True) as place:
        kinds = list(only or ALL_KINDS)
        found = campaign(
            Path(place),
            seed=first,
            stories=folders,
            until_s=until_s,
            kinds=kinds,
            say=lambda text: print(text, flush=True),
        )
    print(found)
    sys.exit(bool(found.findings))


if __name__ == "__main__":
    main()
