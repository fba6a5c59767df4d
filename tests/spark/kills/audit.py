"""Reads what really stands in the topics, by columns, and counts what is missing, there twice, or out of order."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tests.lives.count import counted
from tests.lives.stored import Numbers, numbers, partition_count


@dataclass(frozen=True, slots=True)
class Audit:
    rows: int
    missing: int
    duplicates: int
    foreign: int  # what nobody should have written
    out_of_order: int
    first: tuple[str, ...] = ()  # an example of each kind

    @property
    def is_right(self) -> bool:
        return not (self.missing or self.duplicates or self.foreign or self.out_of_order)

    def __str__(self) -> str:
        text = f"{self.rows:,} rows: missing {self.missing:,}, duplicates {self.duplicates:,}"
        text += f", out of order {self.out_of_order:,}"
        if self.foreign:
            text += f", foreign {self.foreign:,}"
        return text + (f" ({'; '.join(self.first)})" if self.first else "")


@dataclass(frozen=True, slots=True)
class Expected:
    """What must stand in the output: each value once, and within a partition those of one lane in this order."""

    values: Numbers  # ascending
    lanes: Numbers  # of each value: which it came through; what lanes write has no order among each other
    ranks: Numbers  # of each value: its place in its lane


def audit(address: str, topic: str, expected: Expected) -> Audit:
    return compare(
        [numbers(address, topic, partition) for partition in range(partition_count(address, topic))], expected
    )


def compare(written: list[Numbers], expected: Expected) -> Audit:
    """Each value is taken by its rank among all: those of one lane ascend, and each lane is a place of its own in each
    partition."""
    by_rank = np.lexsort((expected.ranks, expected.lanes))
    rank_of = np.empty(len(by_rank), np.int64)
    rank_of[by_rank] = np.arange(len(by_rank))
    standing: dict[tuple[int, int], Numbers] = {}
    foreign = []
    for partition, column in enumerate(written):
        at, is_known = _places(expected.values, column)
        foreign.append(column[~is_known])
        lanes, ranks = expected.lanes[at[is_known]], rank_of[at[is_known]]
        standing |= {(partition, int(lane)): ranks[lanes == lane] for lane in np.unique(lanes)}
    found = counted(len(by_rank), dict(enumerate(standing.values())))
    values = expected.values[by_rank]
    jumps = [run for run in found.runs if run.jump > 0]
    strange = np.concatenate([np.empty(0, np.int64), *foreign])
    said = [f"missing: {values[each]}" for each in found.missing_examples[:1]]
    said += [f"twice: {values[run.number]}" for run in found.runs if run.duplicates][:1]
    said += [f"foreign: {each}" for each in strange[:1]]
    said += [f"out of order in partition {[*standing][run.partition][0]}: {values[run.number]}" for run in jumps[:1]]
    return Audit(
        rows=sum(map(len, written)),
        missing=found.missing,
        duplicates=found.all.duplicates,
        foreign=len(strange),
        out_of_order=len(jumps),
        first=tuple(said),
    )


def _places(known: Numbers, found: Numbers) -> tuple[Numbers, np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    """Where each number stands among the known ones, and whether it does."""
    if len(known) == 0:
        return np.zeros(len(found), np.int64), np.zeros(len(found), np.bool_)
    at = np.minimum(np.searchsorted(known, found), len(known) - 1).astype(np.int64)
    return at, known[at] == found


# --- what is expected -------------------------------------------------------------------------------------------------


def expected_of(inputs: list[Numbers], expand: Callable[[Numbers], tuple[Numbers, Numbers]] | None = None) -> Expected:
    """Of what stands in the partitions of the input, each read by a lane of its own in this order.

    `expand` answers the output's values and, for each, the index of the input that it came of.
    """
    values, lanes, ranks = [], [], []
    for lane, column in enumerate(inputs):
        made, sources = expand(column) if expand else (column, np.arange(len(column)))
        values.append(made)
        lanes.append(np.full(len(made), lane, np.int64))
        ranks.append(np.arange(len(made), dtype=np.int64))
        assert bool((np.diff(sources) >= 0).all()), "an expansion keeps the order"
    together = np.concatenate(values)
    # What stands twice in an input that is wrong itself is still expected once.
    once = np.unique(together, return_index=True)[1]
    return Expected(together[once], np.concatenate(lanes)[once], np.concatenate(ranks)[once])
