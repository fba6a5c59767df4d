"""For as long as one likes:  ./dev fuzz --minutes 30 --seed 7"""

import sys
import tempfile
import time
from pathlib import Path

import click

from tests.fuzz.campaign import Broken, Campaign
from tests.fuzz.server import fuzzed_server
from tests.fuzz.slow import SlowCampaign


@click.command()
@click.option("--minutes", default=5.0, help="How long to go on.")
@click.option("--slow", is_flag=True, help="Look for requests that take long and memory that stays, at the limits.")
@click.option("--seed", default=None, type=int, help="The first seed; each round of a minute takes the next one.")
def main(minutes: float, slow: bool, seed: int | None) -> None:
    first = time.time_ns() % 10**6 if seed is None else seed
    until = time.monotonic() + minutes * 60
    if slow:
        with tempfile.TemporaryDirectory(prefix="oncelog-fuzz-") as folder, fuzzed_server(Path(folder)) as server:
            print(f"seed {first}\n{SlowCampaign(server, first).run(until=until)}")
        return
    round_seed = first
    while time.monotonic() < until:
        with tempfile.TemporaryDirectory(prefix="oncelog-fuzz-") as folder, fuzzed_server(Path(folder)) as server:
            try:
                report = Campaign(server, round_seed).run(until=min(until, time.monotonic() + 60))
            except Broken as broken:
                print(f"seed {round_seed}: {broken}")
                print(f"again: ./dev fuzz --minutes 1 --seed {round_seed}")
                sys.exit(1)
            print(f"seed {round_seed}: {report}", flush=True)
        round_seed += 1


if __name__ == "__main__":
    main()
