"""The requests of a cell, and the answers to them."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple

from oncelog.flow.formats import SOURCE, TIME
from oncelog.slots import Identity, Place
from oncelog.slots.comparing import Headers
from oncelog.slots.messages import LookUp, NeedMetadata, Produce
from oncelog.slots.replay import Output

Row = tuple[int, bytes | None, bytes | None, int]


def size_of(cells: Collection[bytes | None]) -> int:
    """The bytes of a column."""
    known: int | None = getattr(cells, "size_bytes", None)
    if known is not None:
        return known
    try:
        return sum(map(len, cells))  # type: ignore[arg-type]
    except TypeError:  # some are null
        return sum(map(len, filter(None, cells)))


def plain(numbers: Sequence[int]) -> Sequence[int]:
    """The items of an array as Python numbers, all at once."""
    return numbers.tolist() if isinstance(numbers, memoryview) else numbers


class Records(NamedTuple):
    """Input of one partition, in its order, as columns: where the compiled loops are at hand, of keys and values
    `BytesColumn`, and of numbers a memoryview; else lists."""

    offsets: Sequence[int]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    times: Sequence[int]  # event times
    headers: Sequence[Headers] | None = None  # None: nobody asked for them

    def part(self, first: int, end: int | None = None) -> "Records":
        offsets, keys, values, times, headers = self
        here = slice(first, end)
        return Records(offsets[here], keys[here], values[here], times[here], headers and headers[here])

    def rows(self) -> Iterator[Row]:
        return zip(plain(self.offsets), self.keys, self.values, plain(self.times), strict=True)

    @property
    def newest_ms(self) -> int:
        if isinstance(self.times, memoryview):
            import numpy as np

            return int(np.asarray(self.times).max())
        return max(self.times)


class Outputs(NamedTuple):
    """Records for one partition, in their order, as columns."""

    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    times: Sequence[int] | None = None  # event times: they travel in a header, and the record's own is that of sending
    sources: Sequence[bytes] | None = None  # topic, partition and offset of the causing record; a header too
    more: Mapping[bytes, Sequence[bytes]] = {}  # headers, by their names

    def part(self, first: int, end: int | None = None) -> "Outputs":
        keys, values, times, sources, more = self
        here = slice(first, end)
        more = {name: column[here] for name, column in more.items()}
        return Outputs(keys[here], values[here], times and times[here], sources and sources[here], more)

    @property
    def headers(self) -> dict[bytes, Sequence[bytes]]:
        """All of them as columns, in their order."""
        columns: dict[bytes, Sequence[bytes]] = {}
        if self.times is not None:
            written = {time_ms: b"%d" % time_ms for time_ms in set(self.times)}  # many records have the same
            columns[TIME] = [written[time_ms] for time_ms in self.times]
        if self.sources is not None:
            columns[SOURCE] = self.sources
        return {**columns, **self.more}

    def each(self) -> Iterator[Output]:
        columns = self.headers
        for key, value, *cells in zip(self.keys, self.values, *columns.values(), strict=True):
            yield Output(key, value, tuple(zip(columns, cells, strict=True)), None)


EMPTY: Final = Records((), (), (), ())

Changes = Mapping[bytes, bytes | None]  # of the state; None: the entry is removed


class ColumnChanges(Changes, ABC):
    """Changes of keys that one `owner` numbers, as columns: no key twice, and none is removed. To ask for one of them
    makes a Python object of each."""

    owner: object

    @property
    @abstractmethod
    def size_bytes(self) -> int: ...
    @property
    @abstractmethod
    def keys_known(self) -> int:
        """The number of keys that the owner knows, these and others."""

    @abstractmethod
    def over(self, before: Sequence["ColumnChanges"]) -> "ColumnChanges":
        """The sum of these and of earlier changes of the same owner."""

    @abstractmethod
    def rows(self) -> Iterator[tuple[bytes, bytes]]: ...
    @abstractmethod
    def records(self, before: Outputs, behind: Outputs) -> Outputs:
        """The changes as they stand in a journal, between others."""


@dataclass(frozen=True, slots=True)
class JournalBatch:
    """A batch of the journal as it is read: keys and values are those that compaction left, `last_offset` counts those
    that it took."""

    base_offset: int
    last_offset: int
    identity: Identity
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]

    @property
    def rows(self) -> "zip[tuple[bytes | None, bytes | None]]":
        return zip(self.keys, self.values, strict=True)


class ReadJournal(NamedTuple):
    """All that is below the high watermark now. Answered by `journal_read`; where nothing is there, when something is
    or the wait is over."""

    from_offset: int
    waits_ms: int = 0


class NeedPids(NamedTuple):
    """Producer ids by InitProducerId, `how_many` of them. Answered by `pids`."""

    how_many: int


class AppendClaim(NamedTuple):
    """One record without a producer id, until it is acknowledged or no answer comes. Answered by `claimed`; a second
    one of the same does no harm."""

    key: bytes
    value: bytes
    timestamp_ms: int


class Recall(NamedTuple):
    """Whether brokers still remember what this producer has written there. Answered by `recalled`, or not at all."""

    pid: int
    places: Sequence[Place]


class Expect(NamedTuple):
    """The records of an input from an offset on will be fetched soon. There is no answer: it makes the `Fetch` that
    follows a short one."""

    input: int
    from_offset: int


class Fetch(NamedTuple):
    """The records of an input from an offset on. Answered by `fetched`, with no records where the input is at its
    end."""

    input: int
    from_offset: int


class ReadBack(NamedTuple):
    """The records that stand in these slots. Answered by `read_back`."""

    place: Place
    identity: Identity
    first_sequence: int
    records: int
    from_offset: int  # none of them lies below; -1: read from the start


class HourRows(NamedTuple):
    """Rows of one hour, in the order of their offsets."""

    folder: str
    is_late: bool  # the hour was over when the plan was made
    rows: Any  # a pyarrow.RecordBatch


class WriteRows(NamedTuple):
    """More rows of a file that is not visible before it is finished. Answered by `rows_written`."""

    name: str
    rows: Any


class FinishFiles(NamedTuple):
    """All whose rows were asked for get their names, where nothing stands yet; what stands there has the same rows.
    Answered by `files_finished` or `files_failed`."""

    about: Mapping[str, str]  # goes into each file
    until_ms: int  # by the monotonic clock


class LifeEnd(Enum):
    AGAIN = "everything in hand is dropped; another life of the holder begins with what stands in the journal"
    OUTRANKED = "a newer tenancy holds the cell"
    LEFT = "everything is committed, and goodbye is said"
    STOPPED = "a person has to look at it"


class RunEnd(Enum):
    """Whether all of its run is done when a holder leaves."""

    OPEN = "more is to be done"
    CUT = "a cell before it has stopped, and all is done that there will be without that one"
    WHOLE = "all is done"


class Ended(NamedTuple):
    """The end of a life: nothing more is sent, and no answer is waited for. Its connections can be closed."""

    how: LifeEnd
    why: str


Action = (
    Produce
    | LookUp
    | NeedMetadata
    | ReadJournal
    | NeedPids
    | AppendClaim
    | Recall
    | Expect
    | Fetch
    | ReadBack
    | WriteRows
    | FinishFiles
    | Ended
)


class Stepped(NamedTuple):
    """The result of a run of input."""

    changes: Changes
    outputs: Mapping[Place, Outputs]
    taken: int  # of the records; less than all where timers come first
    held: Sequence[tuple[Place, Outputs]] = ()  # that do not repeat: sent from the commit
    files: Sequence[HourRows] = ()


class Unworkable(Exception):
    """A record that cannot be stepped over: one that does not decode, or whose step failed."""


class Work(ABC):
    """The user's code, as bytes. It gives the same for the same, always, but for what is held.

    The mark of an input says that no record of it is waited for that is older. The least of them is the watermark: by
    it timers are due.
    """

    marks: list[int]
    watermark_ms: int
    planned_at_ms: int = -1  # the watermark when the plan was made
    late: int = 0  # records that were, since the flow began

    def begin(self, state: Mapping[bytes, bytes], marks: Sequence[int]) -> None:
        """Begin with what was committed."""
        self.marks = list(marks)
        self.watermark_ms = self.planned_at_ms = min(marks)
        self.late = 0

    def committed(self) -> None:
        """The next plan begins here."""
        self.planned_at_ms = self.watermark_ms

    def dated(self, input: int, records: Records) -> Records:
        """The records with the times that their topic has for them, before they are planned. The same, where they have
        them."""
        return records

    @abstractmethod
    def run(self, input: int, records: Records, most: int) -> Stepped:
        """Go through the due timers and the records, until this many timers have fired."""

    @abstractmethod
    def undo(self) -> None:
        """Take back the changes of the last run: they do not fit, and a shorter run follows."""

    def told(self, number: int, changes: Mapping[bytes, bytes | None]) -> Mapping[Place, Outputs]:
        """Outputs that follow from the state entries of this commit; they are sent when it is acknowledged. Nothing
        may follow from what was removed: compaction takes tombstones, after a while."""
        return {}

    def mark(self, input: int, mark_ms: int) -> None:
        self.marks[input] = max(self.marks[input], mark_ms)
        self.watermark_ms = min(self.marks)

    @property
    def next_timer_ms(self) -> int | None:
        return None
