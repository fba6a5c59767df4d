"""The faults on the way, and their times: by counts, never by the clock. Pure.

The same seed makes the same schedule. A fault waits until its counter has come far enough, and then hits the next frame
that fits it; of several that are due, the oldest hits first and the others wait for later frames. Which connection that
frame belongs to is the run's doing, so what happened is recorded beside what was planned.

Counters: `requests`, `answers`, one for each API and side (`produce requests`, `produce answers`), `up bytes`,
`down bytes`, `connections`, and whatever the experiment counts itself (`confirmed`).
"""

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple


class Direction(StrEnum):
    UP = "up"  # from the client to the server
    DOWN = "down"


class Kind(StrEnum):
    CUT = "cut"  # the connection ends within a frame
    SWALLOW = "swallow"  # answers arrive here and never at the client; then the connection ends
    DELAY = "delay"
    STALL = "stall"  # one direction passes nothing any more, the connection stays
    REFUSE = "refuse"  # the connection ends, and so do new ones at once


class Sides(StrEnum):
    """The sides that are told that a connection is cut."""

    BOTH = "both"
    CLIENT = "client"  # the server goes on as if the client were silent
    SERVER = "server"  # the client waits for what will never come


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    kind: Kind
    counter: str
    at: int
    direction: Direction = Direction.DOWN
    api: str | None = None  # hits only frames of this API, by kio's name: "produce"
    part: float = 0.0  # CUT: how much of the frame still passes, 0 to 1
    sides: Sides = Sides.BOTH  # CUT
    is_reset: bool = True  # CUT: as when a cable is cut or a process killed; otherwise an orderly close
    is_everywhere: bool = False  # CUT: all connections at once
    frames: int = 1  # SWALLOW: answers until the cut; DELAY: frames that are late
    ms: int = 0  # DELAY: how late each frame is; STALL, REFUSE: how long, 0 for good or by `connections`
    connections: int = 1  # REFUSE: how many in a row, where `ms` says nothing


class Hit(NamedTuple):
    """A fault and how many bytes of the frame pass before it, the frame's length included."""

    number: int  # in the plan; -1 for one that was asked for at run time
    fault: Fault
    passed_bytes: int


_BYTES: Final = {Direction.UP: "up bytes", Direction.DOWN: "down bytes"}
_FRAMES: Final = {Direction.UP: "requests", Direction.DOWN: "answers"}
# SWALLOW means an answer, whatever else is said.
_DIRECTIONS: Final = {Kind.SWALLOW: Direction.DOWN}
MOST_FAULTS: Final = 1_000_000


class Plan:
    """Counts what passes, and says what hits which frame."""

    def __init__(self, faults: Iterable[Fault] = ()) -> None:
        self.faults: tuple[Fault, ...] = tuple(faults)
        if len(self.faults) > MOST_FAULTS:
            raise ValueError(f"a plan has at most {MOST_FAULTS} faults")
        self.counts: Counter[str] = Counter()
        self._later: dict[str, list[tuple[int, int]]] = {}  # by counter: (at, number), the next one last
        self._due: list[tuple[int, Fault]] = []
        for number, fault in enumerate(self.faults):
            self._later.setdefault(fault.counter, []).append((fault.at, number))
        for waiting in self._later.values():
            waiting.sort(reverse=True)

    @property
    def left(self) -> int:
        """Faults that have not hit anything yet."""
        return len(self._due) + sum(map(len, self._later.values()))

    def count(self, counter: str, by: int = 1) -> None:
        self.counts[counter] += by
        waiting = self._later.get(counter)
        while waiting and waiting[-1][0] <= self.counts[counter]:
            _, number = waiting.pop()
            self._due.append((number, self.faults[number]))

    def inject(self, fault: Fault) -> None:
        """Hit the next frame that fits, whatever was counted."""
        self._due.append((-1, fault))

    def frame(self, direction: Direction, api: str, size_bytes: int) -> Hit | None:
        """Count a frame of this size, length included, and say what hits it."""
        before_bytes = self.counts[_BYTES[direction]]
        for counter, by in (
            (_FRAMES[direction], 1),
            (f"{api} {_FRAMES[direction]}", 1),
            (_BYTES[direction], size_bytes),
        ):
            self.count(counter, by)
        for index, (number, fault) in enumerate(self._due):
            if _fits(fault, direction, api):
                del self._due[index]
                return Hit(number, fault, _passed(fault, direction, before_bytes, size_bytes))
        return None

    def connection(self) -> Hit | None:
        """Count a new connection, and say whether new ones are refused from now on."""
        self.count("connections")
        for index, (number, fault) in enumerate(self._due):
            if fault.kind is Kind.REFUSE:
                del self._due[index]
                return Hit(number, fault, 0)
        return None


def _fits(fault: Fault, direction: Direction, api: str) -> bool:
    wanted = _DIRECTIONS.get(fault.kind, fault.direction)
    return wanted is direction and fault.api in (None, api)


def _passed(fault: Fault, direction: Direction, before_bytes: int, size_bytes: int) -> int:
    if fault.counter == _BYTES[direction] and 0 <= fault.at - before_bytes <= size_bytes:
        return fault.at - before_bytes  # exactly this byte of the stream is the last one
    return min(size_bytes, int(fault.part * (size_bytes + 1)))


DEFAULT_WEIGHTS: Final[Mapping[Kind, int]] = {
    Kind.CUT: 5,
    Kind.SWALLOW: 4,
    Kind.DELAY: 2,
    Kind.STALL: 1,
    Kind.REFUSE: 1,
}


def seeded_schedule(
    seed: int | str,
    *,
    every: int,
    until: int,
    counter: str = "produce answers",
    api: str | None = "produce",
    weights: Mapping[Kind, int] = DEFAULT_WEIGHTS,
    stall_ms: int = 300,
    delay_ms: int = 30,
) -> list[Fault]:
    """One fault about every `every` of what is counted, half to one and a half times as far from the one before."""
    if every < 1:
        raise ValueError("`every` counts what passes between two faults: at least 1")
    chance = random.Random(f"oncelog faults {seed}")
    kinds, shares = list(weights), list(weights.values())
    faults: list[Fault] = []
    at = 0
    while True:
        at += max(1, round(every * (0.5 + chance.random())))
        if at > until or len(faults) == MOST_FAULTS:
            return faults
        (kind,) = chance.choices(kinds, shares)
        faults.append(_drawn(chance, kind, counter, at, api, stall_ms, delay_ms))


def _drawn(
    chance: random.Random, kind: Kind, counter: str, at: int, api: str | None, stall_ms: int, delay_ms: int
) -> Fault:
    """Every kind draws the same numbers, so that changing the weights changes kinds and nothing else."""
    direction = chance.choice((Direction.UP, Direction.DOWN))
    part, frames, is_reset = chance.random(), chance.randint(1, 4), chance.random() < 0.7
    sides = chance.choices((Sides.BOTH, Sides.CLIENT, Sides.SERVER), (6, 2, 1))[0]
    ms = {Kind.DELAY: delay_ms, Kind.STALL: stall_ms}.get(kind, 0)
    return Fault(
        kind=kind,
        counter=counter,
        at=at,
        direction=_DIRECTIONS.get(kind, direction),
        api=api,
        part=part,
        sides=sides,
        is_reset=is_reset,
        frames=frames,
        ms=chance.randint(1, ms) if ms else 0,
        connections=frames,
    )


def in_words(fault: Fault) -> str:
    where = f"{fault.api or 'any'} frame going {fault.direction}"
    match fault.kind:
        case Kind.CUT:
            end = "all connections" if fault.is_everywhere else "the connection"
            told = "" if fault.sides is Sides.BOTH else f", only the {fault.sides} is told"
            return f"cut {end} after {fault.part:.0%} of a {where}{told}"
        case Kind.SWALLOW:
            return f"swallow {fault.frames} {fault.api or ''} answer(s), then cut"
        case Kind.DELAY:
            return f"delay {fault.frames} frame(s) going {fault.direction} by {fault.ms} ms each"
        case Kind.STALL:
            return f"stall what goes {fault.direction} " + (f"for {fault.ms} ms" if fault.ms else "for good")
        case Kind.REFUSE:
            return "refuse new connections " + (f"for {fault.ms} ms" if fault.ms else f"{fault.connections} times")


def counted(faults: Sequence[Fault]) -> Mapping[str, int]:
    return Counter(str(fault.kind) for fault in faults)
