"""What a cell asks for, and what it is told."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

from oncelog.slots import Identity, Place
from oncelog.slots.messages import LookUp, NeedMetadata, Produce
from oncelog.slots.register import Record
from oncelog.slots.replay import Output


class InputRecord(NamedTuple):
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str | bytes, bytes | None]]
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class JournalBatch:
    """As it is read: `records` are those that compaction left, `last_offset` counts those that it took."""

    base_offset: int
    last_offset: int
    identity: Identity
    records: Sequence[Record]


class ReadJournal(NamedTuple):
    """All that is below the high watermark now. Answered by `journal`."""

    from_offset: int


class NeedPids(NamedTuple):
    """So many producer ids by InitProducerId. Answered by `pids`."""

    how_many: int


class AppendClaim(NamedTuple):
    """One record without a producer id, until it is acknowledged or no answer comes. Answered by `claimed`; a second
    one of the same does no harm."""

    key: bytes
    value: bytes
    timestamp_ms: int


class Fetch(NamedTuple):
    """What an input has from an offset on. Answered by `fetched`, with nothing where the input is at its end."""

    input: int
    from_offset: int


class ReadBack(NamedTuple):
    """The records that stand in these slots. Answered by `read_back`."""

    place: Place
    identity: Identity
    first_sequence: int
    records: int
    from_offset: int  # none of them lies below; -1: read from the start


class End(Enum):
    AGAIN = "everything in hand is dropped; another life of the holder begins with what stands in the journal"
    OUTRANKED = "a newer tenancy holds the cell"
    LEFT = "everything is committed, and goodbye is said"
    STOPPED = "a person has to look at it"


class Ended(NamedTuple):
    """Nothing more is sent, and no answer is waited for: its connections can be closed."""

    how: End
    why: str


Action = Produce | LookUp | NeedMetadata | ReadJournal | NeedPids | AppendClaim | Fetch | ReadBack | Ended


class Stepped(NamedTuple):
    """What one input record comes to."""

    changes: Mapping[bytes, bytes | None]  # of the state; None: the entry is removed
    outputs: Iterable[tuple[Place, Output]]


class Unworkable(Exception):
    """A record that cannot be stepped over: one that does not decode, or whose step failed."""


class Work(Protocol):
    """The user's code, as bytes. It gives the same for the same, always."""

    def step(self, state: Mapping[bytes, bytes], input: int, record: InputRecord) -> Stepped: ...
