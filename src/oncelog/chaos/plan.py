"""The plan of kills: each after a number of confirmed messages, never by the clock. Pure.

The same seed, targets, spacing and number of messages make the same plan. Connections and answers are the proxy's
business, so those events are faults of its schedule that count `confirmed`; the others are processes to be killed.
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from oncelog.chaos.faults import MOST_FAULTS, Direction, Fault, Kind, Sides, in_words

CONFIRMED: Final = "confirmed"


class Target(StrEnum):
    CONNECTIONS = "connections"  # cut within a request or an answer
    RESPONSES = "responses"  # what was asked is stored, and the client never hears of it
    SERVER = "server"
    LEADER = "leader"  # the broker that leads a partition
    FOLLOWER = "follower"
    PAUSE = "pause"  # the broker that leads a partition hangs for longer than its session
    PARTITION = "partition"  # the broker that leads a partition is cut off from the others and from what they agree by
    POWER = "power"  # every broker at once
    ZOOKEEPER = "zookeeper"  # what brokers agree by
    ROLLING = "rolling"  # every broker, one after the other, in an orderly way
    PRODUCER = "producer"
    DRIVER = "driver"
    EXECUTOR = "executor"
    ORPHAN = "orphan"  # a worker, stopped until another has its cells
    ORPHAN_DRIVER = "orphan-driver"  # with its workers


ORPHANS: Final = frozenset({Target.ORPHAN, Target.ORPHAN_DRIVER})
ON_THE_WIRE: Final = frozenset({Target.CONNECTIONS, Target.RESPONSES})
OF_BROKERS: Final = frozenset(
    {Target.LEADER, Target.FOLLOWER, Target.PARTITION, Target.PAUSE, Target.POWER, Target.ROLLING, Target.ZOOKEEPER}
)
_WORDS: Final = {
    Target.ROLLING: "stop and start each broker in turn",
    Target.PAUSE: "stop the leader (SIGSTOP) for longer than its session lasts",
    Target.PARTITION: "cut the leader off from the other brokers and from what they agree by",
    Target.POWER: "kill every broker at once, as if the machine had been started again",
    Target.ZOOKEEPER: "stop what the brokers agree by",
}


@dataclass(frozen=True, slots=True)
class Event:
    at: int  # confirmed messages
    target: Target
    fault: Fault | None = None  # what the proxy does; None where a process is killed

    def in_words(self) -> str:
        if self.target in ORPHANS:
            what = "a worker" if self.target is Target.ORPHAN else "the driver and its workers"
            return f"stop {what} until another has the cells, then let it go on"
        if self.fault is not None:
            return in_words(self.fault)
        return _WORDS.get(self.target, f"kill the {self.target}")


def schedule(seed: int | str, targets: Iterable[Target], *, every: int, messages: int) -> list[Event]:
    """One event about every `every` confirmed messages, half to one and a half times as far from the one before. The
    targets take turns in an order that the seed shuffles anew each time, so that none is left out for long."""
    if every < 1:
        raise ValueError("`every` counts the messages that are confirmed between two faults: at least 1")
    wanted = sorted(set(targets))
    if not wanted:
        return []
    chance = random.Random(f"oncelog chaos {seed}")
    events: list[Event] = []
    turn: list[Target] = []
    at = 0
    while True:
        at += max(1, round(every * (0.5 + chance.random())))
        if at >= messages or len(events) == MOST_FAULTS:
            return events
        if not turn:
            turn = chance.sample(wanted, len(wanted))
        target = turn.pop()
        # Every event draws as much, so that another target changes no other event.
        direction = chance.choice((Direction.UP, Direction.DOWN))
        part, answers, is_reset = chance.random(), chance.randint(1, 4), chance.random() < 0.7
        events.append(Event(at, target, _fault(target, at, direction, part, answers, is_reset)))


def _fault(target: Target, at: int, direction: Direction, part: float, answers: int, is_reset: bool) -> Fault | None:
    if target is Target.CONNECTIONS:
        return Fault(
            kind=Kind.CUT,
            counter=CONFIRMED,
            at=at,
            direction=direction,
            api="produce",
            part=part,
            sides=Sides.BOTH,
            is_reset=is_reset,
        )
    if target is Target.RESPONSES:
        return Fault(kind=Kind.SWALLOW, counter=CONFIRMED, at=at, api="produce", frames=answers)
    return None


def faults_of(events: Sequence[Event]) -> list[Fault]:
    return [event.fault for event in events if event.fault is not None]


def kills_of(events: Sequence[Event]) -> list[Event]:
    return [event for event in events if event.fault is None]


def next_kill(kills: Iterable[Event], confirmed: int, *, is_busy: bool) -> Event | None:
    """The first of the plan that is due. To brokers one thing is done at a time: what comes next waits."""
    for event in kills:
        if event.at > confirmed:
            return None
        if not (is_busy and event.target in OF_BROKERS):
            return event
    return None
