"""Records on their way into batches: one list for each partition, and the bound on all of them.

An application thread only appends to a list; the thread that closes a batch takes a piece off its front. Both are one
step of the interpreter, so a record costs no lock. Five entries of the list are one record: a tuple for each would be
an object more for the garbage collector to look at, and columns are wanted in the end.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import InitVar, dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from oncelog.client.errors import KafkaError
from oncelog.client.partitioners import StickyChoice
from oncelog.slots import Place

if TYPE_CHECKING:
    from oncelog.slots.replay import PartitionReplay

# One record is five entries: key, value, headers, time, and what is called when it is delivered. The time is in seconds
# on the monotonic clock, or negative milliseconds since 1970 where the user gave one: floats alone are quicker to read.
COLUMNS: Final = 5
KEY, VALUE, HEADERS, TIME, CALLBACK = range(COLUMNS)

# What a record takes in a batch beside its bytes, at most, without headers; it counts against all bounds.
RECORD_OVERHEAD_BYTES: Final = 12
HEADER_OVERHEAD_BYTES: Final = 4

Row = tuple[bytes | None, bytes | None, Any, float, Any]
NEVER_S: Final = float("-inf")


class Budget:
    """The bound on records and bytes between `produce` and the end of their reports.

    Producing threads add; the thread that is done with records gives them back. What was added and what was given back
    are counted apart, so that the two sides never write the same number.
    """

    def __init__(self, most_messages: int, most_bytes: int) -> None:
        self._most_messages = most_messages or 1 << 62
        self._most_bytes = most_bytes
        self._lock = Lock()
        self._returned_messages = 0
        self._returned_bytes = 0
        self.taken_messages = 0
        self.taken_bytes = 0
        self.bulk_messages = 0  # of bulk sends, which only the bound on bytes counts
        self.ceiling_messages = self._most_messages
        self.ceiling_bytes = self._most_bytes

    @property
    def messages(self) -> int:
        return self.taken_messages - self._returned_messages + self.bulk_messages

    @property
    def size_bytes(self) -> int:
        return self.taken_bytes - self._returned_bytes

    def has_room(self, size_bytes: int) -> bool:
        """Whether there is room. A record larger than the whole bound fits while there is nothing else, or it never
        would."""
        fits = self.taken_messages < self.ceiling_messages and self.taken_bytes + size_bytes <= self.ceiling_bytes
        return fits or self.messages == 0

    def has_room_for_bytes(self, size_bytes: int) -> bool:
        return self.taken_bytes + size_bytes <= self.ceiling_bytes or self.taken_bytes == self._returned_bytes

    def take(self, size_bytes: int) -> None:
        self.taken_messages += 1
        self.taken_bytes += size_bytes

    def take_bulk(self, size_bytes: int, messages: int) -> None:
        with self._lock:
            self.bulk_messages += messages
            self.taken_bytes += size_bytes

    def give_back(self, size_bytes: int, messages: int, *, is_bulk: bool = False) -> None:
        with self._lock:
            if is_bulk:
                self.bulk_messages -= messages
            else:
                self._returned_messages += messages
            self._returned_bytes += size_bytes
            self.ceiling_messages = self._returned_messages + self._most_messages
            self.ceiling_bytes = self._returned_bytes + self._most_bytes


@dataclass(slots=True, eq=False)
class Unbatched:
    """The records of one partition that are in no batch yet."""

    topic: str
    partition: int
    most_records: InitVar[int] = 1
    most_entries: int = field(init=False)  # with this many entries `produce` closes a batch
    is_wanted: bool = False  # the engine would have them in a batch now, however few
    place: Place = field(init=False)
    rows: list[Any] = field(default_factory=list)
    size_bytes: int = 0  # of what was appended since the last piece was taken; about right while many threads add
    # Pieces of a batch's size that wait until fewer batches are on their way.
    chunks: deque[list[Any]] = field(default_factory=deque)
    is_noticed: bool = False  # the engine knows that there are records
    opened_s: float = 0.0
    made_batches: int = 0  # counted by the holder of the lock
    added_batches: int = 0  # of these at the Sender, and those it is done with: counted by the engine's thread
    done_batches: int = 0
    replay: "PartitionReplay | None" = None  # a resumed producer's first records are compared, not sent
    lock: Lock = field(default_factory=Lock)  # held while batches are made, so that they stay in order

    def __post_init__(self, most_records: int) -> None:
        self.most_entries = most_records * COLUMNS
        self.place = Place(self.topic, self.partition)

    @property
    def record_count(self) -> int:
        return len(self.rows) // COLUMNS

    def take(self, most_records: int) -> list[Any]:
        """The oldest records. What is appended meanwhile stays."""
        rows = self.rows
        count = min(len(rows) // COLUMNS, most_records) * COLUMNS
        self.size_bytes = 0
        taken = rows[:count]
        del rows[:count]
        return taken

    @property
    def batches_under_way(self) -> int:
        return self.made_batches - self.done_batches


class Held(NamedTuple):
    """A record whose topic is not known yet."""

    partition: int
    since_s: float
    size_bytes: int
    row: Row


@dataclass(slots=True, eq=False)
class Topic:
    """A topic as `produce` sees it. Without partitions its records are held until the cluster has named it."""

    name: str
    opened_s: float
    sticky_ms: InitVar[int]
    partitions: Sequence[Unbatched] = ()
    topic_id: object = None  # of the one that they are partitions of
    error: KafkaError | None = None  # why nothing can be produced to it
    is_pinned: bool = False
    # What places a key that is not empty, where nothing else has a say in it and there are partitions.
    hash: Callable[[bytes], int] | None = None
    sticky_choice: StickyChoice = field(init=False)
    # Until then records without a key go here. Nothing does before a partition was chosen.
    sticky: Unbatched = field(init=False)
    sticky_until_s: float = NEVER_S
    held: deque[Held] = field(default_factory=deque)
    lock: Lock = field(default_factory=Lock)  # between those who find the topic unknown and who makes it known

    def __post_init__(self, sticky_ms: int) -> None:
        self.sticky_choice = StickyChoice(sticky_ms)
        self.sticky = Unbatched(self.name, -1)

    def stick(self, partition: Unbatched) -> None:
        """Records without a key go to this partition for a while, without anybody choosing."""
        if self.sticky_choice.linger_ms and not self.is_pinned:
            self.sticky = partition
            self.sticky_until_s = self.sticky_choice.until_ms / 1000


def row_bytes(key: bytes | None, value: bytes | None) -> int:
    return RECORD_OVERHEAD_BYTES + (len(key) if key else 0) + (len(value) if value else 0)


def headers_bytes(headers: Sequence[tuple[bytes, bytes | None]]) -> int:
    return sum(HEADER_OVERHEAD_BYTES + len(name) + (len(value) if value else 0) for name, value in headers)


def time_ms(time: float, wall_offset_s: float) -> int:
    """Milliseconds since 1970 of a row's time."""
    return int((time + wall_offset_s) * 1000) if time >= 0 else int(-time)


def given_time(timestamp_ms: int) -> float:
    """The time as a row has it: negative where the user gave one; the very beginning of 1970 has no sign."""
    return -float(timestamp_ms) or -0.5
