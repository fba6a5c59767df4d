"""The audit: the log compared with what was sent, numbered messages, by columns. Pure.

A message is its number, and each partition got its numbers ascending. So whatever stands behind a larger number of its
partition was either written twice or came too late. Such a stretch is a *run*: it begins with a jump back, as the
article prints it that this experiment is taken from, and ends with the first number that is larger than all before.

Memory is two bytes for each message that may exist, and a bounded number of runs; what is read may be taken in portions
of any size.
"""

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]
Flags = NDArray[np.bool_]

MOST_MESSAGES: Final = 1_100_000_000  # two for each that may go through Spark, and what timers write
MOST_RUNS: Final = 10_000  # that are kept; all are counted
EXAMPLES: Final = 5
BLOCK: Final = 1 << 20
NOTHING: Final = -1
NOT_A_NUMBER: Final = -1  # what a value that is no number is taken as


@dataclass(frozen=True, slots=True)
class Run:
    """Messages that stand behind a larger one, in a row."""

    partition: int
    row: int  # of the partition, where it begins
    number: int  # the first of them
    last: int  # the largest before them
    length: int
    duplicates: int  # the others came too late, and stand there once

    @property
    def jump(self) -> int:
        return self.last - self.number


@dataclass(slots=True)
class Tally:
    """The counts of one partition, or of all."""

    received: int = 0
    unique: int = 0
    duplicates: int = 0
    out_of_order: int = 0  # that stand there once, behind a larger one
    foreign: int = 0  # no number, or one that was never sent
    runs: int = 0

    def add(self, other: "Tally") -> None:
        self.received += other.received
        self.unique += other.unique
        self.duplicates += other.duplicates
        self.out_of_order += other.out_of_order
        self.foreign += other.foreign
        self.runs += other.runs


@dataclass(frozen=True, slots=True)
class Result:
    sent: int
    confirmed: int
    all: Tally
    partitions: dict[int, Tally]
    missing: int  # were confirmed, and are not there
    unconfirmed_there: int  # are there, and nobody was told: not wrong, but worth knowing
    missing_examples: tuple[int, ...]
    runs: tuple[Run, ...]

    @property
    def is_exact(self) -> bool:
        wrong = self.missing, self.all.duplicates, self.all.out_of_order, self.all.foreign
        return not any(wrong)


@dataclass(slots=True)
class _Place:
    """The place that the reading of a partition has come to."""

    tally: Tally = field(default_factory=Tally)
    rows: int = 0
    last: int = NOTHING
    open_run: Run | None = None


class Audit:
    """`confirm` and `take` in any order; within a partition in that of the log."""

    def __init__(self, sent: int) -> None:
        """Make room for `sent` messages, numbered from 0."""
        if not 0 <= sent <= MOST_MESSAGES:
            raise ValueError(f"an audit is of 0 to {MOST_MESSAGES:,} messages, not of {sent:,}")
        self._sent = sent
        self._confirmed: Flags = np.zeros(sent, np.bool_)
        self._seen: Flags = np.zeros(sent, np.bool_)
        self._places: dict[int, _Place] = {}
        self._runs: list[Run] = []

    @property
    def confirmed(self) -> int:
        return int(np.count_nonzero(self._confirmed))

    def confirm(self, numbers: Numbers) -> int:
        """The client was told that these are stored; how many of them for the first time."""
        new = np.sort(numbers[~self._confirmed[numbers]])
        self._confirmed[numbers] = True
        return min(1, len(new)) + int(np.count_nonzero(new[1:] != new[:-1]))

    def take(self, partition: int, numbers: Numbers) -> None:
        """These stand next in the partition."""
        place = self._places.setdefault(partition, _Place())
        is_ours = (numbers >= 0) & (numbers < self._sent)
        rows = place.rows + np.flatnonzero(is_ours)
        place.rows += len(numbers)
        place.tally.received += len(numbers)
        place.tally.foreign += len(numbers) - len(rows)
        if len(rows):
            self._take(partition, place, numbers[is_ours], rows)

    def _take(self, partition: int, place: _Place, numbers: Numbers, rows: Numbers) -> None:
        largest = np.maximum.accumulate(np.concatenate((np.array([place.last]), numbers)))
        before = largest[:-1]
        is_back = numbers <= before
        is_twice = self._is_twice(numbers, is_back)
        tally = place.tally
        twice = int(np.count_nonzero(is_twice))
        tally.duplicates += twice
        tally.unique += len(numbers) - twice
        tally.out_of_order += int(np.count_nonzero(is_back & ~is_twice))
        self._note_runs(partition, place, numbers, rows, before, is_back, is_twice)
        place.last = int(largest[-1])

    def _is_twice(self, numbers: Numbers, is_back: Flags) -> Flags:
        """Rows whose number stood somewhere before, in this partition or in another one."""
        is_twice = np.zeros(len(numbers), np.bool_)
        ahead = numbers[~is_back]  # each of these once
        is_twice[~is_back] = self._seen[ahead]
        self._seen[ahead] = True
        back = numbers[is_back]
        if len(back):
            is_first = np.zeros(len(back), np.bool_)
            is_first[np.unique(back, return_index=True)[1]] = True
            is_twice[is_back] = self._seen[back] | ~is_first
            self._seen[back] = True
        return is_twice

    def _note_runs(
        self,
        partition: int,
        place: _Place,
        numbers: Numbers,
        rows: Numbers,
        before: Numbers,
        is_back: Flags,
        is_twice: Flags,
    ) -> None:
        edges = np.flatnonzero(np.diff(np.concatenate(([False], is_back, [False])).astype(np.int8)))
        starts, ends = edges[::2], edges[1::2]
        twice_before = np.concatenate(([0], np.cumsum(is_twice)))
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            duplicates = int(twice_before[end] - twice_before[start])
            known = place.open_run if start == 0 else None
            if known is None:
                self._close_run(place)
                place.tally.runs += 1
                run = Run(partition, int(rows[start]), int(numbers[start]), int(before[start]), end - start, duplicates)
            else:
                run = Run(
                    partition,
                    known.row,
                    known.number,
                    known.last,
                    known.length + end - start,
                    known.duplicates + duplicates,
                )
            place.open_run = run
        if not is_back[-1]:
            self._close_run(place)

    def _close_run(self, place: _Place) -> None:
        if place.open_run is not None and len(self._runs) < MOST_RUNS:
            self._runs.append(place.open_run)
        place.open_run = None

    def result(self, *, sent: int | None = None) -> Result:
        """The result of what was taken so far. `sent`, where fewer were than there is room for."""
        for place in self._places.values():
            self._close_run(place)
        everything = Tally()
        for place in self._places.values():
            everything.add(place.tally)
        missing, examples = _only_in(self._confirmed, self._seen)
        unconfirmed, _ = _only_in(self._seen, self._confirmed)
        return Result(
            sent=self._sent if sent is None else sent,
            confirmed=self.confirmed,
            all=everything,
            partitions={number: place.tally for number, place in sorted(self._places.items())},
            missing=missing,
            unconfirmed_there=unconfirmed,
            missing_examples=tuple(examples),
            runs=tuple(sorted(self._runs, key=lambda run: (run.partition, run.row))),
        )


def _only_in(one: Flags, other: Flags) -> tuple[int, list[int]]:
    """The number of them, and the first ones; block by block, so that it takes no more memory than the flags do."""
    count, examples = 0, list[int]()
    for first in range(0, len(one), BLOCK):
        found = np.flatnonzero(one[first : first + BLOCK] > other[first : first + BLOCK])
        count += len(found)
        examples += (first + found[: EXAMPLES - len(examples)]).tolist()
    return count, examples
