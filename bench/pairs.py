"""Two ways of one server against each other, in short slices that take turns.

A machine drifts by more within seconds than the difference that is looked for. So each slice is set beside its
neighbour only, which of the two comes first is swapped from pair to pair, and the median of the pairs' ratios is taken.
"""

from contextlib import ExitStack
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
    wanted = max(FEWEST_PAIRS, int(arena.seconds * PAIRS_PER_SECOND))
    ratios: list[float] = []
    while len(ratios) < wanted:
        ratios += _on_one_topic(arena, peer, records_per_batch, depth, wanted - len(ratios))
    first, _, third = quantiles(ratios, n=4)
    return Ratio(median(ratios), 0.93 * (third - first) / sqrt(len(ratios)))


def _on_one_topic(arena: Arena, peer: str, records_per_batch: int, depth: int, most: int) -> list[float]:
    """Ratios of as many pairs as one topic takes."""
    port = arena.server(peer).port
    ratios: list[float] = []
    with arena.topic(peer, partitions=2) as topic, ExitStack() as stack:
        loads = []
        for partition, idempotent in enumerate((True, False)):
            load = ProduceLoad(port, topic, records_per_batch, idempotent=idempotent, partition=partition)
            stack.callback(load.close)
            loads.append(load)
        warm_up_s = arena.warm_up_seconds(peer, records_per_batch) / 2
        pilots = [load.run_for(warm_up_s if warm_up_s > 1 else SLICE_S, depth) for load in loads]
        frame_bytes = pilots[0].size_bytes / pilots[0].requests
        requests = int(min(SLICE_S * pilots[1].requests_per_s, LARGEST_SLICE_BYTES / frame_bytes))
        requests = max(requests, 4 * depth)
        fitting = int(TOPIC_BYTES / (2 * requests * frame_bytes))
        for number in range(min(most, max(2, fitting))):
            turn = loads if number % 2 == 0 else loads[::-1]
            rates = {load: load.run(requests, depth).requests_per_s for load in turn}
            ratios.append(rates[loads[0]] / rates[loads[1]])
    return ratios
