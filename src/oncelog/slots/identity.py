"""The four nouns of slots: a place, an identity, how far one got at the other, and a span of its slots.

A *slot* is one sequence number of one identity in one partition. It is filled once, by whatever record comes first.
"""

from typing import Final, NamedTuple

from oncelog.producers import FIRST_KAFKA_PID

NEVER: Final = -1


class Place(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


AnyPlace = tuple[str, int]  # a Place, or what is equal to one


class Identity(NamedTuple):
    """The name of a writer: the proposal's pid and generation, Kafka's producer id and epoch."""

    pid: int
    generation: int
    expires_at_ms: int = NEVER  # wall clock; a lease is never used for sending after it


NOBODY: Final = Identity(-1, -1)


class HighWater(NamedTuple):
    """The last batch of a producer that a broker remembers in one partition."""

    generation: int
    last_sequence: int
    last_timestamp_ms: int = NEVER  # of the last batch's records; NEVER where that is not said


class Span(NamedTuple):
    """Slots of one identity that follow one another."""

    identity: Identity
    next_sequence: int  # the first of them
    records: int | None = None  # how many they are; None: the open one, whose end is to be asked for


def is_lease(identity: Identity) -> bool:
    """Whether lease_pid granted it. The number says so on oncelog; elsewhere all pids are InitProducerId's."""
    return 0 < identity.pid < FIRST_KAFKA_PID
