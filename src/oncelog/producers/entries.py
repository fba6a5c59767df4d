"""The columns behind a partition's producer map: a handful of machine words per producer, no object each.

A producer is a row number. Rows are taken and given back; the columns grow with the number of producers seen at one
time and never beyond the owner's bound, so a partition without idempotent producers costs next to nothing.
"""

from array import array

from oncelog.producers.kafka_rules import BATCHES_REMEMBERED, Remembered
from oncelog.producers.sequences import NO_SEQUENCE, SEQUENCE_MASK, SEQUENCE_WINDOW, sequence_after

_FIRST_ROWS = 8


def growth(rows: int, capacity: int) -> int:
    """How many rows to add: by halves up to exactly the capacity, and in small steps where replay goes beyond it."""
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
        # How many batches were remembered; from 9 back to 5, so that (batches - 1) % 5 is always the newest's place.
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
        """Where the record with this sequence was appended, or -1 when that is no longer known."""
        behind = (self.last_sequence[row] - sequence) & SEQUENCE_MASK
        for at in reversed(self.places(row)):
            first_sequence = self.first_sequence[at]
            if (self.last_sequence[row] - first_sequence) & SEQUENCE_MASK >= behind:
                return self.base_offset[at] + ((sequence - first_sequence) & SEQUENCE_MASK)
        return -1

    def last_offset(self, row: int) -> int:
        return self.offset_of(row, self.last_sequence[row]) if self.batches[row] else -1

    def places(self, row: int) -> list[int]:
        """Where this row's remembered batches are in `first_sequence` and `base_offset`, oldest first."""
        batches, first = self.batches[row], row * BATCHES_REMEMBERED
        return [first + n % BATCHES_REMEMBERED for n in range(max(0, batches - BATCHES_REMEMBERED), batches)]

    def put(
        self,
        row: int,
        last_sequence: int,
        accepted_records: int,
        timestamp_ms: int,
        remembered: list[tuple[int, int]],
    ) -> None:
        """A producer as a snapshot had it; the remembered batches as (first sequence, base offset), oldest first."""
        self.last_sequence[row] = last_sequence
        self.accepted_records[row] = accepted_records
        self.timestamp_ms[row] = timestamp_ms
        self.batches[row] = len(remembered)
        for at, (first_sequence, base_offset) in enumerate(remembered, row * BATCHES_REMEMBERED):
            self.first_sequence[at] = first_sequence
            self.base_offset[at] = base_offset

    def _grow(self) -> None:
        rows = len(self.generation)
        more = growth(rows, self._capacity)
        for column in (self.generation, self.last_sequence, self.accepted_records, self.seen_ms, self.timestamp_ms):
            column.frombytes(bytes(column.itemsize * more))
        self.batches.frombytes(bytes(more))
        for column in (self.first_sequence, self.base_offset):
            column.frombytes(bytes(column.itemsize * more * BATCHES_REMEMBERED))
        self._free.extend(range(rows + more - 1, rows - 1, -1))

    def size_bytes(self) -> int:
        columns = (
            self.generation,
            self.last_sequence,
            self.accepted_records,
            self.seen_ms,
            self.timestamp_ms,
            self.batches,
            self.first_sequence,
            self.base_offset,
            self._free,
        )
        return sum(len(column) * column.itemsize for column in columns)
