"""Rows are measured one after the other, and within a row the peers take turns."""

import time
from typing import TypeVar

from bench.arena import KAFKA
from bench.rows import Row
from bench.table import Measured, number

A = TypeVar("A")


def measure(arena: A, wanted: list[Row[A]], rounds: int, peers: set[str]) -> Measured:
    """Peers take turns within each round, so that a drifting machine hits them alike."""
    measured: Measured = {}
    for row in wanted:
        mine = [peer for peer in row.peers if peer in peers or peer not in (KAFKA,)]
        for turn in range(1 if row.once else rounds):
            for peer in mine if turn % 2 == 0 else reversed(mine):
                started = time.monotonic()
                try:
                    figures = row.measure(arena, peer)
                except Exception as error:
                    print(f"  {row.name} {peer}: FAILED: {type(error).__name__}: {error}", flush=True)
                    measured.setdefault(row.name, {}).setdefault(peer, {})
                    continue
                told = ", ".join(f"{name} {number(value)}" for name, value in figures.items())
                print(f"  {row.name} {peer}: {told}   ({time.monotonic() - started:.1f} s)", flush=True)
                kept = measured.setdefault(row.name, {}).setdefault(peer, {})
                for name, value in figures.items():
                    kept.setdefault(name, []).append(value)
    return measured
