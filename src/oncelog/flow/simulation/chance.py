"""Chance that is the same each time, and the faults of a history that it makes."""

from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple, TypeVar

T = TypeVar("T")

MOST_FAULTS: Final = 8


class Dice:
    def __init__(self, seed: int) -> None:
        self._state = seed
        for _ in range(3):
            self.below(1)

    def copy(self) -> "Dice":
        other = Dice.__new__(Dice)
        other._state = self._state
        return other

    def below(self, end: int) -> int:
        """A linear congruential generator; its upper bits are good enough to mix turns."""
        self._state = (self._state * 6364136223846793005 + 1442695040888963407) & 0xFFFF_FFFF_FFFF_FFFF
        return (self._state >> 33) % end

    def one_of(self, choices: Sequence[T]) -> T:
        return choices[self.below(len(choices))]


class Kind(Enum):
    KILL = "is killed, and what it had on the wire is lost"
    KILL_LATE = "is killed, and what it had on the wire arrives later"
    KILL_ALL = "is killed with all others, and what they had on the wire is lost"
    KILL_ALL_LATE = "is killed with all others, and what they had on the wire arrives later"
    SLEEP = "sleeps, and another holder begins"
    RIVAL = "is not alone any more: another holder begins at the same time"
    HAND_OVER = "leaves, and another holder waits for its goodbye"
    NO_ANSWER = "loses a connection behind a batch that was appended"
    CUT = "loses a connection with everything on it"


class Fault(NamedTuple):
    """Happens to the holder that had the turn before."""

    turn: int  # of the world
    kind: Kind
    turns: int = 0  # for how long one sleeps, and when what is late arrives


def faults_of(dice: Dice, horizon: int) -> tuple[Fault, ...]:
    """Faults for a flow that takes `horizon` turns undisturbed."""
    kinds = list(Kind)
    found = [
        Fault(dice.below(2 * horizon), dice.one_of(kinds), dice.one_of((3, 10, 31, 100, 301)))
        for _ in range(1 + dice.below(MOST_FAULTS))
    ]
    return tuple(sorted(found, key=lambda fault: fault.turn))
