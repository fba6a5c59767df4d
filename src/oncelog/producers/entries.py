"""The columns behind a partition's producer map: a handful of machine words per producer, no object each.

A producer is a row number. Rows are taken and given back; the columns grow with the number of producers seen at one
time and never beyond the owner's bound, so a partition without idempotent producers costs next to nothing.
"""

from array import array
from collections.abc import Sequence

from oncelog.clock import Now
from oncelog.producers.kafka_rules import BATCHES_REMEMBERED, Remembered
from oncelog.producers.sequences import NO_SEQUENCE, SEQUENCE_MASK, SEQUENCE_WINDOW, sequence_after

EXPIRED_AT_A_TIME = 1_000  # of one kind: two milliseconds
_FIRST_ROWS = 8

# First sequence, record count, base offset, timestamp_ms, and when it came.
Appended = tuple[int, int, int, int, Now]

Columns = tuple["array[int]", ...]
# Type and items a row, in the order of `Entries.columns`.
COLUMNS = (
    ("h", 1),
    ("i", 1),
    ("i", 1),
    ("q", 1),
    ("q", 1),
    ("B", 1),
    ("i", BATCHES_REMEMBERED),
    ("q", BATCHES_REMEMBERED),
)
ROW_BYTES = sum(array(kind).itemsize * width for kind, width in COLUMNS)


def growth(rows: int, capacity: int) -> int:
    """The number of rows to add: by halves up to exactly the capacity, and in small steps where replay goes beyond
    it."""
    if rows < capacity:
        return min(max(_FIRST_ROWS, rows // 2), capacity - rows)
    return max(_FIRST_ROWS, capacity // 8)


class Entries:
    __slots__ = (
        "_capacity",
        "_free",
        "accepted_records",
        "base_offset",
        "batches",
        "first_sequence",
        "generation",
        "last_sequence",
        "seen_ms",
        "timestamp_ms",
    )

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self.generation = array("h")
        self.last_sequence = array("i")
        self.accepted_records = array("i")
        self.seen_ms = array("q")  # monotonic; of the first message for a lease, of the last one for a Kafka pid
        self.timestamp_ms = array("q")  # the last batch's own
        # The number of remembered batches; from 9 back to 5, so that (batches - 1) % 5 is always the newest's place.
        self.batches = array("B")
        # Five places a row.
        self.first_sequence = array("i")
        self.base_offset = array("q")
        self._free = array("I")

    def take(self, generation: int, seen_ms: int) -> int:
        """A row of its own for a producer that has sent nothing yet."""
        if not self._free:
            self._grow()
        row = self._free.pop()
        self.generation[row] = generation
        self.last_sequence[row] = NO_SEQUENCE
        self.accepted_records[row] = 0
        self.seen_ms[row] = seen_ms
        self.timestamp_ms[row] = -1
        self.batches[row] = 0
        return row

    def give_back(self, row: int) -> None:
        self._free.append(row)

    def remember(self, row: int, first_sequence: int, record_count: int, base_offset: int, timestamp_ms: int) -> None:
        """A batch was appended. One that does not follow on (after compaction, or in a new epoch) starts afresh."""
        batches = self.batches[row]
        last_sequence = self.last_sequence
        if first_sequence == (last_sequence[row] + 1) & SEQUENCE_MASK and batches:
            accepted = self.accepted_records[row] + record_count
            self.accepted_records[row] = accepted if accepted < SEQUENCE_WINDOW else SEQUENCE_WINDOW
        else:
            self.accepted_records[row] = record_count
            batches = 0
        at = row * BATCHES_REMEMBERED + batches % BATCHES_REMEMBERED
        self.first_sequence[at] = first_sequence
        self.base_offset[at] = base_offset
        self.batches[row] = batches + 1 if batches < 9 else BATCHES_REMEMBERED
        last_sequence[row] = (first_sequence + record_count - 1) & SEQUENCE_MASK
        self.timestamp_ms[row] = timestamp_ms

    def remember_all(self, row: int, batches: Sequence[Appended]) -> None:
        """Remember several batches, as `remember` does one by one, where each follows on, the first one on a remembered
        one."""
        remembered = self.batches[row] + len(batches)
        self.batches[row] = remembered if remembered <= 9 else BATCHES_REMEMBERED + remembered % BATCHES_REMEMBERED
        first_sequences, base_offsets = self.first_sequence, self.base_offset
        start = row * BATCHES_REMEMBERED
        accepted = self.accepted_records[row]
        for _, record_count, _, _, _ in batches[:-BATCHES_REMEMBERED]:
            accepted += record_count
        batches = batches[-BATCHES_REMEMBERED:]
        number = remembered - len(batches)
        for first_sequence, record_count, base_offset, _, _ in batches:
            at = start + number % BATCHES_REMEMBERED
            first_sequences[at] = first_sequence
            base_offsets[at] = base_offset
            accepted += record_count
            number += 1
        self.accepted_records[row] = accepted if accepted < SEQUENCE_WINDOW else SEQUENCE_WINDOW
        self.last_sequence[row] = (first_sequence + record_count - 1) & SEQUENCE_MASK
        self.timestamp_ms[row] = batches[-1][3]

    def forget_batches(self, row: int) -> None:
        self.batches[row] = 0

    def remembered(self, row: int) -> tuple[Remembered, ...]:
        """The last batches, oldest first."""
        places = self.places(row)
        firsts = [self.first_sequence[at] for at in places]
        lasts = [sequence_after(first, -1) for first in firsts[1:]] + [self.last_sequence[row]]
        return tuple(
            Remembered(first, last, self.base_offset[at])
            for first, last, at in zip(firsts, lasts, places, strict=False)
        )

    def offset_of(self, row: int, sequence: int) -> int:
        """The offset at which the record with this sequence was appended, or -1 when that is no longer known."""
        behind = (self.last_sequence[row] - sequence) & SEQUENCE_MASK
        for at in reversed(self.places(row)):
            first_sequence = self.first_sequence[at]
            if (self.last_sequence[row] - first_sequence) & SEQUENCE_MASK >= behind:
                return self.base_offset[at] + ((sequence - first_sequence) & SEQUENCE_MASK)
        return -1

    def last_offset(self, row: int) -> int:
        return self.offset_of(row, self.last_sequence[row]) if self.batches[row] else -1

    def newest_place(self, row: int) -> int:
        """The place of the newest batch of a row that has remembered any."""
        return row * BATCHES_REMEMBERED + (self.batches[row] - 1) % BATCHES_REMEMBERED

    def places(self, row: int) -> list[int]:
        """The places of this row's remembered batches in `first_sequence` and `base_offset`, oldest first."""
        batches, first = self.batches[row], row * BATCHES_REMEMBERED
        return [first + n % BATCHES_REMEMBERED for n in range(max(0, batches - BATCHES_REMEMBERED), batches)]

    @property
    def rows(self) -> int:
        return len(self.generation)

    @property
    def capacity(self) -> int:
        return self._capacity

    @property
    def columns(self) -> Columns:
        """All that the rows hold, in the order of `COLUMNS`."""
        return (
            self.generation,
            self.last_sequence,
            self.accepted_records,
            self.seen_ms,
            self.timestamp_ms,
            self.batches,
            self.first_sequence,
            self.base_offset,
        )

    def picked(self, rows: "array[int]") -> Columns:
        """The columns with these rows alone."""
        return tuple(
            array(kind, [column[row * width + place] for row in rows for place in range(width)])
            for column, (kind, width) in zip(self.columns, COLUMNS, strict=True)
        )

    @classmethod
    def of(cls, capacity: int, columns: Columns, taken: "array[int]") -> "Entries":
        """Rows as they were put away; those that are not taken are free."""
        entries = cls(capacity)
        (
            entries.generation,
            entries.last_sequence,
            entries.accepted_records,
            entries.seen_ms,
            entries.timestamp_ms,
            entries.batches,
            entries.first_sequence,
            entries.base_offset,
        ) = columns
        entries._free = array("I", sorted(set(range(entries.rows)).difference(taken), reverse=True))
        return entries

    def shift_seen(self, by_ms: int) -> None:
        self.seen_ms = array("q", [seen_ms + by_ms for seen_ms in self.seen_ms])

    def _grow(self) -> None:
        rows = len(self.generation)
        more = growth(rows, self._capacity)
        for column, (_, width) in zip(self.columns, COLUMNS, strict=True):
            column.frombytes(bytes(column.itemsize * more * width))
        self._free.extend(range(rows + more - 1, rows - 1, -1))

    def size_bytes(self) -> int:
        return sum(len(column) * column.itemsize for column in (*self.columns, self._free))
