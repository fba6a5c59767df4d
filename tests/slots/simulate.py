"""Histories by the thousand: `python -m tests.slots.simulate --seeds 10000`; a seed that fails is printed."""

import argparse
import sys
from collections import Counter
from time import perf_counter

from tests.slots.flavours import NAMES, flavour_of
from tests.slots.history import tell


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5_000, help="how many histories")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--name", choices=NAMES, help="only histories of this kind")
    arguments = parser.parse_args()
    started = perf_counter()
    seen: Counter[str] = Counter()
    broken_seeds = 0
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        history = tell(seed, name=arguments.name)
        for client in history.world.clients:
            for counter in client.sender.counters.__slots__:
                seen[counter] += getattr(client.sender.counters, counter)
        broken = history.broken()
        if broken:
            broken_seeds += 1
            sys.stdout.write(f"seed {seed} ({flavour_of(seed, arguments.name).name}): {'; '.join(broken[:4])}\n")
    took_s = perf_counter() - started
    sys.stdout.write(f"{arguments.seeds} histories in {took_s:.1f} s, {broken_seeds} broken; {dict(seen)}\n")
    return 1 if broken_seeds else 0


if __name__ == "__main__":
    raise SystemExit(main())
