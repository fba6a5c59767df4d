"""The application's side of a consumer: takes what the engine fetched, decodes it, and knows what was handed out.

It belongs to the application's thread. Only `done` is asked by the engine's, for commits by the clock.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from oncelog.client.consumer.chunk_readers import ArrowReading, Position, Reading, RowReading
from oncelog.client.consumer.decoding import Damaged
from oncelog.client.consumer.engine import Told
from oncelog.client.consumer.message import ErrorMessage, Message
from oncelog.client.errors import KafkaError
from oncelog.client.fetching.events import Chunk, EndReached, Event, Failed
from oncelog.slots import AnyPlace

_NO_ROWS: Iterator[Message] = iter(())


class Delivery:
    """`next_event` gives what was fetched, oldest first, or None; `taken` gets chunks that leave the queue;
    `damaged` gets a partition and a position behind which it cannot be read now."""

    def __init__(
        self,
        next_event: Callable[[], Event | Told | None],
        taken: Callable[[Chunk], None],
        damaged: Callable[[Chunk, Position], None],
        *,
        check_crcs: bool,
    ) -> None:
        self.rows: Iterator[Message] = _NO_ROWS
        self._next_event = next_event
        self._taken = taken
        self._damaged = damaged
        self._check_crcs = check_crcs
        self._reading: Reading | None = None
        self._handed: dict[AnyPlace, Position] = {}  # behind what was handed out, without what is being read
        self._starts: dict[AnyPlace, Position] = {}
        self._columns: dict[AnyPlace, Any] = {}  # of Arrow data, what is the same in every chunk of a partition
        self.asked = 0  # how often the application came for more
        self._put_back: Message | None = None
        self._before_bulk: Mapping[AnyPlace, Position] | None = None

    def activity(self) -> object:
        """Something that changes whenever the application takes a record or asks for one."""
        reading = self._reading
        return self.asked, reading.taken if isinstance(reading, RowReading) else 0

    # --- what was handed out

    def begin(self, partition: AnyPlace, offset: int, leader_epoch: int = -1) -> None:
        """The application has chosen a place; what it was given before counts no more."""
        self.forget(partition)
        if offset >= 0:
            self._starts[partition] = Position(offset, leader_epoch)

    def hold(self, partition: AnyPlace) -> None:
        """Hand out no more of this partition for now; it will be fetched again from its position."""
        self._handed = self.handed()
        self._let_go(partition)

    def forget(self, partition: AnyPlace) -> None:
        self._let_go(partition)
        self._handed.pop(partition, None)
        self._starts.pop(partition, None)
        self._columns.pop(partition, None)

    def _let_go(self, partition: AnyPlace) -> None:
        if self._reading is not None and self._reading.chunk.partition == partition:
            self._drop_reading()

    def position(self, partition: AnyPlace) -> Position | None:
        """The position of the next record, where it is known."""
        return self.handed().get(partition) or self._starts.get(partition)

    def handed(self) -> dict[AnyPlace, Position]:
        """The positions behind the last record of each partition that was handed out."""
        return self._with_reading(0)

    def done(self) -> Mapping[AnyPlace, Position]:
        """The same without what the application has in its hands: that it has dealt with that shows when it asks for
        more."""
        before_bulk = self._before_bulk
        return before_bulk if before_bulk is not None else self._with_reading(1)

    def _with_reading(self, in_hand: int) -> dict[AnyPlace, Position]:
        reading = self._reading
        handed = dict(self._handed)
        if reading is not None:
            handed[reading.chunk.partition] = reading.position(in_hand)
        return handed

    def begin_bulk(self) -> None:
        """Records handed out before are done; those handed out now are in hand until the application asks again."""
        self.asked += 1
        self._before_bulk = self.handed()

    def take_back(self) -> dict[AnyPlace, Position | None]:
        """Take back what was handed out since `begin_bulk`, for it has not reached the application. The answer is where
        that stands again in each partition that gave something; None where it had nothing of it."""
        before = self._before_bulk or {}
        places = {each: before.get(each) for each, position in self.handed().items() if position != before.get(each)}
        for partition, position in places.items():
            self._let_go(partition)
            if position is None:
                self._handed.pop(partition, None)
            else:
                self._handed[partition] = position
        return {each: position or self._starts.get(each) for each, position in places.items()}

    def end_bulk(self) -> None:
        """The application polls record by record: what it got in bulk is done."""
        self.asked += 1
        self._before_bulk = None

    # --- records

    def advance(self) -> bool:
        """Bring messages into `rows`, which are all taken; False where nothing has been fetched."""
        while True:
            reading = self._reading
            if isinstance(reading, ArrowReading):
                # The rest of what was begun as Arrow data.
                self._reading = reading = RowReading(reading.chunk, reading.position(), check_crcs=self._check_crcs)
            if reading is not None:
                try:
                    rows = reading.next_rows()
                except Damaged as damaged:
                    self.rows = iter((self._damage(reading, damaged),))
                    return True
                if rows is not None:
                    self.rows = rows
                    return True
                self._finish(reading)
            found = self._next()
            if found is None:
                return False
            if isinstance(found, Message):
                self.rows = iter((found,))
                return True
            self._reading = RowReading(found, self._begin(found), check_crcs=self._check_crcs)

    def take_arrow(self, most_rows: int) -> Any:
        """The next rows of one partition as a RecordBatch, an ErrorMessage, or None where nothing has been fetched."""
        while True:
            reading = self._reading
            if isinstance(reading, RowReading):
                position = reading.position()
                reading.drop()
                self.rows = _NO_ROWS
                self._reading = reading = ArrowReading(
                    reading.chunk, position, self._columns, check_crcs=self._check_crcs
                )
            if reading is not None:
                try:
                    rows = reading.take(most_rows)
                except Damaged as damaged:
                    return self._damage(reading, damaged)
                if rows is not None:
                    return rows
                self._finish(reading)
            found = self._next()
            if not isinstance(found, Chunk):
                return found
            self._reading = ArrowReading(found, self._begin(found), self._columns, check_crcs=self._check_crcs)

    def put_back(self, message: Message) -> None:
        """An error that comes too late for what is being collected: it is the next thing to be handed out."""
        self._put_back = message

    def _next(self) -> Chunk | Message | None:
        """The oldest thing that is not stale: a chunk to read, or a message that is an error."""
        put_back, self._put_back = self._put_back, None
        if put_back is not None:
            return put_back
        while (event := self._next_event()) is not None:
            if isinstance(event, Chunk):
                self._taken(event)
            if event.is_current:
                return event if isinstance(event, Chunk) else self._message_of(event)
        return None

    def _begin(self, chunk: Chunk) -> Position:
        start = Position(chunk.start_offset, chunk.start_epoch)
        self._handed[chunk.partition] = start
        return start

    def _message_of(self, event: EndReached | Failed | Told) -> Message:
        if isinstance(event, Told):
            return ErrorMessage(event.error, "", -1, -1)
        topic, index = event.cursor.partition
        if isinstance(event, Failed):
            error = KafkaError(event.code, event.message)
        else:
            self._handed[event.cursor.partition] = Position(event.offset, event.cursor.read_epoch)
            error = KafkaError(KafkaError._PARTITION_EOF, "Broker: No more messages")
        return ErrorMessage(error, topic, index, event.offset)

    def _finish(self, reading: Reading) -> None:
        """Aborted and control records at the chunk's end were passed over."""
        at = reading.position()
        end = reading.chunk.next_offset
        self._handed[reading.chunk.partition] = at if at.offset >= end else Position(end, at.leader_epoch)
        self._reading = None

    def _damage(self, reading: Reading, damaged: Damaged) -> Message:
        """The error for damaged bytes. Nothing behind them is handed out; they are fetched again, since they may be
        whole elsewhere."""
        at = reading.position()
        topic, index = partition = reading.chunk.partition
        position = Position(max(at.offset, damaged.offset), at.leader_epoch)
        self._drop_reading()
        self._handed[partition] = position
        self._damaged(reading.chunk, position)
        message = f"{topic} [{index}]: what was fetched at offset {position.offset} is damaged: {damaged}"
        return ErrorMessage(KafkaError(KafkaError._BAD_MSG, message, retriable=True), topic, index, position.offset)

    def _drop_reading(self) -> None:
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.drop()
        self.rows = _NO_ROWS
