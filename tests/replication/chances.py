"""How a history is drawn."""

from dataclasses import dataclass, replace
from typing import Final


@dataclass(frozen=True)
class Chances:
    """What goes wrong in a history, and how often."""

    brokers: int = 3
    min_in_sync: int = 2
    lag_ms: int = 1_000
    prefer_after_ms: int = 500
    duration_ms: int = 8_000
    faults: tuple[str, ...] = ("kill", "power", "pause", "cut", "cut-tree", "stop")
    fault_ms: int = 900  # between two, on average
    lost_messages: float = 0.02
    lost_answers: float = 0.1  # of the tree
    fences: float = 0.03
    deletes: float = 0.01  # by a leader, each time that it looks
    slow_tree: float = 0.05  # what was sent to the tree arrives much later
    producers: int = 2
    lifetime_ms: int = 1_200  # of a lease
    echoes: float = 0.3  # what arrives a second time, when nobody waits for it any more
    pace_ms: int = 60
    patience_ms: int = 400  # of a producer
    moves: bool = False  # replicas are moved now and then
    lengths_ms: tuple[int, ...] = (30, 300, 900, 2_000)  # of a fault


USUAL: Final = Chances()
ROUGH: Final = Chances(
    fault_ms=300, lost_messages=0.05, lag_ms=400, duration_ms=6_000, producers=4, pace_ms=20, patience_ms=3_000
)
OLD: Final = replace(
    ROUGH, deletes=0.3, lifetime_ms=60_000, faults=("kill", "power", "pause", "cut"), lengths_ms=(900, 2_000)
)
EAGER: Final = replace(ROUGH, patience_ms=60)
POWER: Final = replace(ROUGH, slow_tree=0.5, faults=("power",), lengths_ms=(30,), patience_ms=400)
LEASES: Final = replace(ROUGH, lifetime_ms=500, echoes=0.6, faults=("kill", "cut", "cut-tree", "pause"))
MOVING: Final = replace(ROUGH, brokers=4, moves=True)
DISKS: Final = replace(ROUGH, faults=("disk", "full", "kill", "pause"))
FULL: Final = replace(ROUGH, faults=("full", "full", "kill"), lengths_ms=(900, 2_000, 4_000), patience_ms=200)
