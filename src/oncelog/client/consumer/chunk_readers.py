"""A chunk in the application's hands: as messages or as Arrow data. Either knows how far it has come."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from oncelog.client.consumer.block import Block
from oncelog.client.consumer.decoding import blocks_of, columns_of, committed_records
from oncelog.client.consumer.message import Message
from oncelog.client.fetching.events import Chunk
from oncelog.slots import AnyPlace

if TYPE_CHECKING:
    from oncelog.client.consumer.arrow import PartitionColumns
    from oncelog.records.column_types import Columns


class Position(NamedTuple):
    """The offset to go on from, and the leader epoch of the record before it."""

    offset: int
    leader_epoch: int = -1


class RowReading:
    def __init__(self, chunk: Chunk, start: Position, *, check_crcs: bool) -> None:
        self.chunk = chunk
        self._start = start
        self._blocks = blocks_of(chunk, start.offset, check_crcs=check_crcs)
        self._block: Block | None = None

    def next_rows(self) -> Iterator[Message] | None:
        """The messages that follow, once those before have all been taken; None at the chunk's end. May be Damaged."""
        self._start = self.position()
        self._block = None
        self._block = next(self._blocks, None)
        return None if self._block is None else self._block.rows

    @property
    def taken(self) -> int:
        return 0 if self._block is None else self._block.taken

    def position(self, in_hand: int = 0) -> Position:
        """The position behind what was taken; without the last `in_hand` records of it."""
        block = self._block
        found = None if block is None else block.position(block.taken - in_hand)
        return self._start if found is None else Position(*found)

    def drop(self) -> None:
        if self._block is not None:
            self._start = self.position()
            self._block.drop()


class ArrowReading:
    """`known` is kept from chunk to chunk: the columns that are the same in each."""

    def __init__(
        self, chunk: Chunk, start: Position, known: "dict[AnyPlace, PartitionColumns]", *, check_crcs: bool
    ) -> None:
        self.chunk = chunk
        self._known = known
        self._at = start
        self._columns = _columns_of(chunk, start.offset, check_crcs)
        self._batch: Any = None
        self._offsets: Any = None
        self._epochs: Any = None
        self._taken = 0

    def take(self, most_rows: int) -> Any:
        """The next rows as a RecordBatch, or None at the chunk's end. May be Damaged."""
        while self._batch is None or self._taken == self._batch.num_rows:
            if not self._next_batch():
                return None
        rows = self._batch.slice(self._taken, most_rows)
        self._taken += rows.num_rows
        self._at = Position(int(self._offsets[self._taken - 1]) + 1, self._epoch_of(self._taken - 1))
        return rows

    def _next_batch(self) -> bool:
        from oncelog.client.consumer.arrow import PartitionColumns, record_batch

        columns = next(self._columns, None)
        if columns is None:
            return False
        own = self._known.get(self.chunk.partition)
        if own is None:
            own = self._known[self.chunk.partition] = PartitionColumns(*self.chunk.partition)
        self._batch = record_batch(columns, own)
        self._offsets = columns.offset
        self._epochs = columns.batches
        self._taken = 0
        return True

    def _epoch_of(self, row: int) -> int:
        batch = int(self._epochs.first_row.searchsorted(row, side="right")) - 1
        return int(self._epochs.leader_epoch[batch])

    def position(self, in_hand: int = 0) -> Position:
        return self._at

    def drop(self) -> None:
        self._batch = None
        self._columns = iter(())


def _columns_of(chunk: Chunk, start_offset: int, check_crcs: bool) -> "Iterator[Columns]":
    records = committed_records(chunk, start_offset, check_crcs=check_crcs)
    yield from columns_of(records, start_offset, check_crcs=check_crcs)


Reading = RowReading | ArrowReading
