"""Reads what really stands in the topics, by columns, and counts what is missing, there twice, or out of order."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from oncelog.records.arrow import to_arrow
from oncelog.records.columns import decode
from tests.raw import RawConnection

Numbers = np.ndarray[tuple[int], np.dtype[np.int64]]
FETCH_BYTES = 16 << 20


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
    known = expected.values
    everything = np.concatenate([np.empty(0, np.int64), *written])
    counts = np.zeros(len(known), np.int64)
    places, is_known = _places(known, everything)
    np.add.at(counts, places[is_known], 1)
    descents, example = 0, ""
    for partition, column in enumerate(written):
        at, fits = _places(known, column)
        found, row = _descents(expected.lanes[at[fits]], expected.ranks[at[fits]])
        descents += found
        if found and not example:
            example = f"out of order in partition {partition}: {column[fits][row]}"
    missing, twice = known[counts == 0], known[counts > 1]
    kinds = (("missing", missing), ("twice", twice), ("foreign", everything[~is_known]))
    said = [f"{name}: {some[0]}" for name, some in kinds if len(some)] + ([example] if example else [])
    return Audit(
        rows=len(everything),
        missing=len(missing),
        duplicates=int((counts[counts > 1] - 1).sum()),
        foreign=int((~is_known).sum()),
        out_of_order=descents,
        first=tuple(said),
    )


def _places(known: Numbers, found: Numbers) -> tuple[Numbers, np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    """Where each number stands among the known ones, and whether it does."""
    if len(known) == 0:
        return np.zeros(len(found), np.int64), np.zeros(len(found), np.bool_)
    at = np.minimum(np.searchsorted(known, found), len(known) - 1).astype(np.int64)
    return at, known[at] == found


def _descents(lanes: Numbers, ranks: Numbers) -> tuple[int, int]:
    """How often a row of a lane stands behind a later one of the same lane, and the first place where."""
    by_lane = np.argsort(lanes, kind="stable")
    steps = np.diff(ranks[by_lane])
    wrong = (np.diff(lanes[by_lane]) == 0) & (steps < 0)
    rows = by_lane[1:][wrong]
    return len(rows), int(rows.min()) if len(rows) else -1


def partition_count(address: str, topic: str) -> int:
    with RawConnection(address) as connection:
        wanted = [{"name": topic}]
        (found,) = connection.call("metadata", 9, topics=wanted, allow_auto_topic_creation=False).topics
        return len(found.partitions)


def numbers(address: str, topic: str, partition: int) -> Numbers:
    """The values of a partition as they stand there, as integers."""
    with RawConnection(address, timeout_s=60) as connection:
        offset = connection.offset_at(topic, partition, -2).offset
        end = connection.offset_at(topic, partition, -1).offset
        found = []
        while offset < end:
            answer = connection.fetch(topic, partition, offset, max_wait_ms=200, partition_max_bytes=FETCH_BYTES)
            assert answer.error_code.value == 0, answer.error_code
            columns = decode(bytes(answer.records or b""), start_offset=offset, columns={"value"})
            if columns.next_offset > offset:
                found.append(_integers(to_arrow(columns).column("value")))
                offset = columns.next_offset
    return np.concatenate([np.empty(0, np.int64), *found])


def _integers(values: pa.Array) -> Numbers:
    text = values.cast(pa.string())
    result: Numbers = pc.cast(text, pa.int64()).to_numpy(zero_copy_only=False)
    return result


def end_offsets(address: str, topic: str) -> list[int]:
    count = partition_count(address, topic)
    with RawConnection(address) as connection:
        return [connection.offset_at(topic, partition, -1).offset for partition in range(count)]


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
