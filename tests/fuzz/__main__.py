"""For as long as one likes:  ./dev fuzz --minutes 30 --seed 7"""

import sys
import tempfile
import time
from pathlib import Path

import click

from tests.fuzz.campaign import Broken, Campaign
from tests.fuzz.intruders import ATTACKS, run
from tests.fuzz.secured import SecuredServer
from tests.fuzz.server import fuzzed_server
from tests.fuzz.slow import SlowCampaign

ROUND_S = 600  # of an attack on a secured server


@click.command()
@click.option("--minutes", default=5.0, help="How long to go on.")
@click.option("--slow", is_flag=True, help="Look for requests that take long and memory that stays, at the limits.")
@click.option("--as", "who", type=click.Choice(list(ATTACKS)), help="Attack a secured server, as whom.")
@click.option("--seed", default=None, type=int, help="The first seed; each round takes the next one.")
def main(minutes: float, slow: bool, who: str | None, seed: int | None) -> None:
    first = time.time_ns() % 10**6 if seed is None else seed
    until = time.monotonic() + minutes * 60
    if slow:
        with tempfile.TemporaryDirectory(prefix="oncelog-fuzz-") as folder, fuzzed_server(Path(folder)) as server:
            print(f"seed {first}\n{SlowCampaign(server, first).run(until=until)}")
        return
    if who is not None:
        intrude(who, first, until)
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


def intrude(who: str, seed: int, until: float) -> None:
    """In every second round a host that guesses is never barred, so that it gets on to be looked at."""
    while (now := time.monotonic()) < until:
        with (
            tempfile.TemporaryDirectory(prefix="oncelog-fuzz-") as folder,
            SecuredServer(Path(folder) / "server", is_guessing_bounded=bool(seed % 2)) as server,
        ):
            try:
                harm = run(server, ATTACKS[who], seed, until=min(until, now + ROUND_S))
            except Broken as broken:
                print(f"{broken}\nagain: ./dev fuzz --as {who} --minutes {ROUND_S / 60:g} --seed {seed}")
                sys.exit(1)
            print(f"seed {seed}: {harm}", flush=True)
        seed += 1


if __name__ == "__main__":
    main()
