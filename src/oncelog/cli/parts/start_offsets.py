"""Places in a partition: what `-o` says, in kcat's words, and which offsets that means."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

import click

from oncelog.cli.parts.cluster import Cluster
from oncelog.cli.parts.endings import failure
from oncelog.slots import Place

BEGINNING_TIME, END_TIME = -2, -1
EXPECTED = "expected beginning, end, stored, an offset, -N (N before the end), s@MS or e@MS"
EXPECTED_OF_RESET = "expected beginning, end, an offset, -N (N before the end) or s@MS"
_TIME = re.compile(r"([se])@(\d+)")
_NUMBER = re.compile(r"-?\d+")


class Where(Enum):
    BEGINNING = "beginning"
    END = "end"
    STORED = "stored"
    OFFSET = "offset"
    BEFORE_END = "before the end"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class Spot:
    where: Where
    number: int = 0


@dataclass(frozen=True, slots=True)
class Range:
    """The place to begin at, None for the usual one; and the time in milliseconds before which to stop."""

    start: Spot | None = None
    stop_ms: int | None = None


def parse_range(given: Iterable[str]) -> Range:
    start: Spot | None = None
    stop_ms: int | None = None
    for text in given:
        if text.startswith("e@"):
            if stop_ms is not None:
                raise click.UsageError(f"-o {text}: there can be one end only")
            stop_ms = _time(text)
        elif start is not None:
            raise click.UsageError(f"-o {text}: there can be one start only")
        else:
            start = parse_start(text)
    return Range(start, stop_ms)


def parse_start(text: str, expected: str = EXPECTED) -> Spot:
    if text in ("beginning", "end", "stored"):
        return Spot(Where(text))
    if text.startswith("s@"):
        return Spot(Where.TIME, _time(text))
    if not _NUMBER.fullmatch(text):
        raise click.UsageError(f"-o {text}: {expected}")
    number = int(text)
    return Spot(Where.BEFORE_END, -number) if text.startswith("-") else Spot(Where.OFFSET, number)


def _time(text: str) -> int:
    found = _TIME.fullmatch(text)
    if found is None:
        raise click.UsageError(f"-o {text}: expected milliseconds since 1970 behind the @, such as s@1700000000000")
    return int(found[2])


def starts(cluster: Cluster, places: list[Place], spot: Spot) -> dict[Place, int]:
    """The offset that a spot means in each partition; an offset that is not in the log is refused."""
    if spot.where is Where.BEGINNING:
        return cluster.offsets(places, BEGINNING_TIME)
    ends = cluster.offsets(places, END_TIME)
    if spot.where is Where.END:
        return ends
    if spot.where is Where.TIME:
        return at_time(cluster, places, spot.number, ends)
    firsts = cluster.offsets(places, BEGINNING_TIME)
    if spot.where is Where.BEFORE_END:
        return {place: max(firsts[place], end - spot.number) for place, end in ends.items()}
    for place in places:
        first, end = firsts[place], ends[place]
        if not first <= spot.number <= end:
            raise failure(f"{place.topic} [{place.partition}] has the offsets {first} to {end}, not {spot.number}")
    return dict.fromkeys(places, spot.number)


def at_time(cluster: Cluster, places: list[Place], time_ms: int, ends: dict[Place, int]) -> dict[Place, int]:
    """The first offset at or after a time; the end where no record is as late."""
    found = cluster.offsets(places, time_ms)
    return {place: offset if offset >= 0 else ends[place] for place, offset in found.items()}
