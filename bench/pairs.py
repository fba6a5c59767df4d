"""Two ways of producing against each other, in short slices that take turns.

A machine drifts by more within seconds than the difference that is looked for. So each slice is set beside its
neighbour only, which of the two comes first is swapped from pair to pair, and the median of the pairs' ratios is taken.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from math import sqrt
from statistics import median, quantiles

from bench.arena import Arena
from bench.load import ProduceLoad

SLICE_S = 0.1
LARGEST_SLICE_BYTES = 64 << 20
TOPIC_BYTES = 1 << 30  # then a new topic, so that the disk is not written out meanwhile
PAIRS_PER_SECOND = 12
FEWEST_PAIRS = 30


@dataclass(frozen=True, slots=True)
class Ratio:
    middle: float
    uncertainty: float  # of the median: about one standard error


def on_against_off(arena: Arena, peer: str, records_per_batch: int, depth: int) -> Ratio:
    """The rate of an idempotent producer by that of one that is not, on two partitions of the same server."""

    @contextmanager
    def two_loads() -> Iterator[tuple[ProduceLoad, ProduceLoad]]:
        port = arena.server(peer).port
        with (
            arena.topic(peer, partitions=2) as topic,
            closing(ProduceLoad(port, topic, records_per_batch)) as on,
            closing(ProduceLoad(port, topic, records_per_batch, idempotent=False, partition=1)) as off,
        ):
            yield on, off

    return ratio_of(two_loads, arena, peer, records_per_batch, depth)


def ratio_of(
    two_loads: Callable[[], AbstractContextManager[tuple[ProduceLoad, ProduceLoad]]],
    arena: Arena,
    peer: str,
    records_per_batch: int,
    depth: int,
) -> Ratio:
    """The rate of the first load by that of the second; both are made anew when their topics are full."""
    wanted = max(FEWEST_PAIRS, int(arena.seconds * PAIRS_PER_SECOND))
    ratios: list[float] = []
    while len(ratios) < wanted:
        with two_loads() as loads:
            warm_up_s = arena.warm_up_seconds(peer, records_per_batch) / 2
            ratios += _ratios(loads, depth, warm_up_s, wanted - len(ratios))
    first, _, third = quantiles(ratios, n=4)
    return Ratio(median(ratios), 0.93 * (third - first) / sqrt(len(ratios)))


def _ratios(loads: tuple[ProduceLoad, ProduceLoad], depth: int, warm_up_s: float, most: int) -> list[float]:
    """Of as many pairs as one topic takes."""
    pilots = [load.run_for(warm_up_s if warm_up_s > 1 else SLICE_S, depth) for load in loads]
    frame_bytes = pilots[0].size_bytes / pilots[0].requests
    requests = int(min(SLICE_S * pilots[1].requests_per_s, LARGEST_SLICE_BYTES / frame_bytes))
    requests = max(requests, 4 * depth)
    fitting = int(TOPIC_BYTES / (2 * requests * frame_bytes))
    ratios: list[float] = []
    for number in range(min(most, max(2, fitting))):
        turn = loads if number % 2 == 0 else loads[::-1]
        rates = {load: load.run(requests, depth).requests_per_s for load in turn}
        ratios.append(rates[loads[0]] / rates[loads[1]])
    return ratios
