"""The work of a task: it writes its rows as one lane, and says how far it got.

The end of the input is not the end of the task's rows. When the JVM is killed, a worker may see its iterator end
half-way as if nothing were wrong. So nothing is recorded here as done: what was sent is a true prefix of the lane's
rows, which the next attempt finds in the log; and only the driver, which Spark tells when all tasks have ended well,
writes down that a batch is complete.

What stands there already, and under whose identity the rows go out, is the affair of the lane: `claimed_lane.py`, or
`transactional_lane.py` where each batch is a transaction.
"""

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Final, Protocol, Self

import pyarrow as pa

from oncelog.client import KafkaError, KafkaException, SavedProducer
from oncelog.client.door import BadSavedProducer, CannotResume, TopicGone
from oncelog.spark.options import SinkOptions
from oncelog.spark.sink import milestones
from oncelog.spark.sink.claimed_lane import ClaimedLane
from oncelog.spark.sink.deciding import Doing, cannot_begin, cannot_go_on, difference, other_rows
from oncelog.spark.sink.destination import LAG_S
from oncelog.spark.sink.due_batch import DueBatch
from oncelog.spark.sink.errors import MayPass, SinkRefused, refused
from oncelog.spark.sink.hashing import RowHash
from oncelog.spark.sink.held_producer import HeldProducer
from oncelog.spark.sink.lane import Json, LaneMessage, LaneTask, SinkState
from oncelog.spark.sink.lane_producer import LaneProducer
from oncelog.spark.sink.replay_comparing import Kept
from oncelog.spark.sink.rows import Portion, chosen, columns_of, named_partitions, oldest_ms, portions
from oncelog.spark.sink.saved_lanes import together
from oncelog.spark.sink.sink_register import SinkRegister
from oncelog.spark.sink.transactional_lane import TransactionalLane
from oncelog.spark.sink.under_way import in_lane
from oncelog.spark.sink.warm_worker import Cluster

LAST_LOOK_S: Final = LAG_S + 3.0  # only after that time is a topic believed to be gone
_GIVEN_UP: Final = (KafkaError._MSG_TIMED_OUT, KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.UNKNOWN_TOPIC_ID)


def write_lane(options: SinkOptions, place: LaneTask, iterator: Iterable[pa.RecordBatch]) -> LaneMessage:
    """Write a task's rows. Raises where they cannot be written, or would not be what an earlier attempt wrote."""
    with LaneWriter(options, place) as lane:
        for batch in iterator:
            lane.write(batch)
        return lane.finish()


class LaneWay(Protocol):
    """The way in which rows of a lane come into the log."""

    @property
    def repeats(self) -> bool:
        """Each run of a batch must bring the same rows."""

    def read(self) -> SinkRegister | None:
        """The register in the topic of the sink; None where there is no such topic."""

    def resume(self) -> None:
        """The task begins: what an earlier attempt of it left half-way is gone on with."""

    def expect_rows(self) -> None:
        """Rows are about to come."""

    def producer_for(self, portion: Portion) -> LaneProducer:
        """The producer for these rows, once everything that must precede them is sent."""

    def check_acknowledged(self, began: SavedProducer) -> None:
        """All rows were acknowledged to the producer that went on as `began`."""

    def give_up(self) -> None:
        """The task has failed, and no other attempt of it need come."""

    def refusal(self, failure: Exception) -> SinkRefused | None:
        """The failure in the words of this way, where it has its own."""


class LaneWriter:
    """One task's writing, for those who bring their rows themselves: `write` again and again, then `finish`."""

    def __init__(self, options: SinkOptions, place: LaneTask, connected: Cluster | None = None) -> None:
        self._options = options
        self._place = place
        self._hash = RowHash()
        self._columns: tuple[str, ...] | None = None
        self._kept = Kept()
        self._oldest_ms: dict[str, int] = {}
        self._due = due = DueBatch(options, place, connected)
        self.sink = due.sink
        held = self._held = HeldProducer(due.connected)
        in_transactions = options.transactional_batches
        self._lane: LaneWay = TransactionalLane(due, held) if in_transactions else ClaimedLane(due, held)
        try:
            with self._in_words():
                due.begin(self._lane.read())
                due.reached(milestones.STATE_READ, doing=due.doing.value)
                self._lane.resume()
        except BaseException:
            self.close()  # nobody has this lane, so nobody else can
            raise

    # --- rows

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the next rows."""
        if not batch.num_rows:
            return
        with self._in_words():
            self._lane.expect_rows()
        is_written = self._due.doing is Doing.VERIFY
        if is_written and not self._lane.repeats:  # this run of it is for the query's state alone
            self._hash.rows += batch.num_rows
            return
        if self._columns is None:
            self._columns = columns_of(batch, self._options.topic)
        rows = chosen(batch, self._columns)
        if is_written:
            self._kept.add(rows)
        else:
            self._send(rows, self._hash.rows)
        self._hash.add(rows)

    def _send(self, rows: pa.RecordBatch, first_row: int) -> None:
        with self._in_words():
            divided = list(portions(rows, self._options.topic, first_row))
        for portion in divided:
            with self._in_words(portion):
                producer = self._lane.producer_for(portion)
                if not first_row:
                    self._due.reached(milestones.FIRST_SEND, topic=portion.topic)
                producer.send(portion)
                self._note_oldest(portion)
        self._due.reached(milestones.SENT, rows=first_row + rows.num_rows)

    def _note_oldest(self, portion: Portion) -> None:
        oldest = oldest_ms(portion.rows)
        if oldest is not None:
            self._oldest_ms[portion.topic] = min(oldest, self._oldest_ms.get(portion.topic, oldest))

    # --- its end

    def finish(self) -> LaneMessage:
        """All rows were written; wait until all are in the log."""
        place, rows = self._place, self._hash.rows
        self._due.reached(milestones.INPUT_ENDED, rows=rows)
        producer: Json | None = None
        if self._due.doing is Doing.VERIFY:
            self._verify()
        elif self._held.producer is not None:
            with self._in_words():
                producer = self._acknowledged(self._held.producer)
        message = LaneMessage(
            sink=self.sink,
            query=place.query,
            batch=place.batch,
            lane=place.lane,
            attempt=place.attempt,
            rows=rows,
            order_hash=self._hash.digest(),
            producer=producer,
            oldest_ms=self._oldest_ms,
        )
        self._due.reached(milestones.RETURNING, rows=rows)
        return message

    def _acknowledged(self, producer: LaneProducer) -> Json:
        began, saved = producer.began, self._held.finish(producer)
        self._due.reached(milestones.ACKNOWLEDGED, rows=self._hash.rows)
        self._lane.check_acknowledged(began)
        return saved

    def _verify(self) -> None:
        if not self._lane.repeats:
            return  # what this run came to is of no account
        place, state = self._place, self._due.register.state
        assert state is not None
        found = difference(state, place.lane, self._hash.rows, self._hash.digest())
        if found is None:
            return
        first = self._first_difference(state)
        raise SinkRefused(
            other_rows(self.sink, place.batch, place.lane, found if first is None else f"{found}; {first}")
        )

    def _first_difference(self, state: SinkState) -> str | None:
        number, connected = self._place.lane, self._due.connected
        before = self._due.register.before_batch(number)
        after = state.lanes.get(number)
        if not before or after is None or after.idle_batches:
            return None
        comparing = connected.destination.first_difference(
            together(before), SavedProducer.from_json(after.producer), self._kept, self._options.topic
        )
        return connected.run(comparing)

    def close(self) -> None:
        self._held.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
        if isinstance(error, Exception) and not isinstance(error, MayPass):
            self._lane.give_up()

    # --- what fails

    @contextmanager
    def _in_words(self, portion: Portion | None = None) -> Iterator[None]:
        """A failure inside becomes a refusal that names batch and lane, and the row where the portion has it."""
        try:
            yield
        except (KafkaException, ValueError, TypeError) as failure:
            row = self._held.refused()
            if row is not None:  # that ended all that was sent with it
                raise self._refusal(KafkaException(row), None) from failure
            raise self._refusal(self._cause(failure), portion) from failure

    def _cause(self, failure: Exception) -> Exception:
        """Records that were given up in the end may have had nowhere to go."""
        producer, connected = self._held.producer, self._due.connected
        gives_up = isinstance(failure, KafkaException) and failure.error.code() in _GIVEN_UP
        if producer is None or not gives_up:
            return failure
        counting = connected.destination.counts(producer.began)
        try:
            connected.run(asyncio.wait_for(counting, LAST_LOOK_S))
        except TopicGone as gone:
            return gone
        except (KafkaException, TimeoutError):
            pass  # nobody knows
        return failure

    def _refusal(self, failure: Exception, portion: Portion | None) -> SinkRefused:
        own, place = self._lane.refusal(failure), self._place
        if own is not None:
            return own
        if isinstance(failure, CannotResume):
            return SinkRefused(cannot_go_on(self.sink, place.batch, place.lane, failure.what))
        if isinstance(failure, BadSavedProducer):
            return SinkRefused(cannot_begin(self.sink, place.batch, place.lane, failure.what))
        error = failure.error if isinstance(failure, KafkaException) else None
        if error is not None and error.code() == KafkaError._INCONSISTENT:
            return SinkRefused(other_rows(self.sink, place.batch, place.lane, error.str()))
        words = str(failure) if error is None else error.str()
        if portion is not None:
            words = in_lane(words, portion.numbers) or words
            if error is not None and error.code() == KafkaError._UNKNOWN_PARTITION and self._is_later(portion):
                words += (
                    " for this batch: where other rows of it leave the choice to the partitioner, none can name a "
                    "partition that came after the batch before was saved"
                )
        return refused(f"batch {place.batch} of sink {self.sink!r}, lane {place.lane}, {words}", failure)

    def _is_later(self, portion: Portion) -> bool:
        """Whether all partitions that these rows name are there by now, as far as the cluster says."""
        producer, connected = self._held.producer, self._due.connected
        assert producer is not None, "rows were sent"
        counting = connected.destination.counts(producer.began)
        try:
            count = connected.run(asyncio.wait_for(counting, LAST_LOOK_S))[portion.topic]
        except (KafkaException, TimeoutError):
            return True
        return named_partitions(portion.rows)[0] <= count
