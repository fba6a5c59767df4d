"""What a task does: it writes its rows as one lane, and says how far it got.

The end of the input is not the end of the task's rows. When the JVM is killed, a worker may see its iterator end
half-way as if nothing were wrong. So nothing is recorded here as done: what was sent is a true prefix of the lane's
rows, which the next attempt finds in the log; and only the driver, which Spark tells when all tasks have ended well,
writes down that a batch is complete.

Before the first row of a batch is sent, the lane's mark stands in the sink's topic. Who finds his own mark to be the
first goes on from what was saved; who does not, asks the log how far the others got, and compares.
"""

import asyncio
from collections.abc import Coroutine, Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final, Self

import pyarrow as pa

from oncelog.client import KafkaError, KafkaException, SavedProducer
from oncelog.client.door import BadSavedProducer, CannotResume, TopicGone, TopicMissing
from oncelog.spark.options import SinkOptions
from oncelog.spark.sink import milestones
from oncelog.spark.sink.claiming import Claims
from oncelog.spark.sink.deciding import Doing, cannot_begin, cannot_go_on, decide, difference, other_rows, topic_gone
from oncelog.spark.sink.destination import LAG_S
from oncelog.spark.sink.errors import MayPass, SinkRefused, refused
from oncelog.spark.sink.hashing import RowHash
from oncelog.spark.sink.lane import Json, LaneMessage, LaneTask, SinkState
from oncelog.spark.sink.lane_producer import LaneProducer
from oncelog.spark.sink.milestones import reached
from oncelog.spark.sink.option_checking import lane_properties
from oncelog.spark.sink.replay_comparing import Kept
from oncelog.spark.sink.rows import Portion, chosen, columns_of, named_partitions, oldest_ms, portions
from oncelog.spark.sink.saved_lanes import together
from oncelog.spark.sink.sink_register import SinkRegister
from oncelog.spark.sink.under_way import in_lane
from oncelog.spark.sink.warm_worker import Cluster, cluster, read_on

LAST_LOOK_S: Final = LAG_S + 3.0  # only after that time is a topic believed to be gone
_GIVEN_UP: Final = (KafkaError._MSG_TIMED_OUT, KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.UNKNOWN_TOPIC_ID)


def write_lane(
    options: SinkOptions,
    place: LaneTask,
    iterator: Iterable[pa.RecordBatch],
    kind: "type[LaneWriter] | None" = None,
) -> LaneMessage:
    """Write a task's rows. Raises where they cannot be written, or would not be what an earlier attempt wrote."""
    with (kind or LaneWriter)(options, place) as lane:
        for batch in iterator:
            lane.write(batch)
        return lane.finish()


def sink_name(options: SinkOptions, query: str) -> str:
    return options.sink_name or options.job_id or query


class LaneWriter:
    """One task's writing, for those who bring their rows themselves: `write` again and again, then `finish`."""

    def __init__(self, options: SinkOptions, place: LaneTask, connected: Cluster | None = None) -> None:
        self._options = options
        self._place = place
        self.sink = sink_name(options, place.query)
        self._hash = RowHash()
        self._columns: tuple[str, ...] | None = None
        self._producer: LaneProducer | None = None
        self._kept = Kept()
        self._oldest_ms: dict[str, int] = {}
        self._left: set[str] = set()  # topics of which rows of this batch were left to the partitioner
        self._reached(milestones.BEGUN)
        self._connected: Cluster = connected or cluster(lane_properties(options))
        self._topic = self._connected.log(self.sink)
        self._register = SinkRegister()
        try:
            with self._in_words():
                self._doing = self._begin()
                self._reached(milestones.STATE_READ, doing=self._doing.value)
                if self._doing is Doing.WRITE and place.lane in self._register.marked():
                    self._go_on(is_fresh=False)
        except BaseException:
            self.close()  # nobody has this lane, so nobody else can
            raise

    def _reached(self, step: str, **facts: object) -> None:
        place = self._place
        reached(step, sink=self.sink, batch=place.batch, lane=place.lane, attempt=place.attempt, **facts)

    @contextmanager
    def _in_words(self, portion: Portion | None = None) -> Iterator[None]:
        """What fails inside is told with the batch and the lane, and with the row where it is one of the portion's."""
        try:
            yield
        except (KafkaException, ValueError, TypeError) as failure:
            row = None if self._producer is None else self._producer.refused()
            if row is not None:  # that ended all that was sent with it
                raise self._refusal(KafkaException(row), None) from failure
            raise self._refusal(self._cause(failure), portion) from failure

    def _cause(self, failure: Exception) -> Exception:
        """Records that were given up in the end may have had nowhere to go."""
        gives_up = isinstance(failure, KafkaException) and failure.error.code() in _GIVEN_UP
        if self._producer is None or not gives_up:
            return failure
        counting = self._connected.destination.counts(self._producer.began)
        try:
            self._connected.run(asyncio.wait_for(counting, LAST_LOOK_S))
        except TopicGone as gone:
            return gone
        except (KafkaException, TimeoutError):
            pass  # nobody knows
        return failure

    def _refusal(self, failure: Exception, portion: Portion | None) -> SinkRefused:
        place = self._place
        if isinstance(failure, TopicGone):
            words = topic_gone(self._options, self.sink, place.batch, failure.what)
            return MayPass(words) if isinstance(failure, TopicMissing) else SinkRefused(words)
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
        assert self._producer is not None, "rows were sent"
        counting = self._connected.destination.counts(self._producer.began)
        try:
            count = self._connected.run(asyncio.wait_for(counting, LAST_LOOK_S))[portion.topic]
        except (KafkaException, TimeoutError):
            return True
        return named_partitions(portion.rows)[0] <= count

    # --- its beginning

    def _begin(self) -> Doing:
        run, topic = self._connected.run, self._topic
        register = self._read()
        if register is None:
            self._decide()  # refuses before a topic is made
            run(topic.create())
            register = read_on(self._connected, self.sink)
        if register is not None:
            self._register = register
        self._claims = Claims(topic, self._register, self._connected.destination, self._place)
        doing = self._decide()
        if doing is Doing.BEGIN:
            run(topic.check_config())
            run(self._claims.sink(self.sink, in_transactions=self._options.transactional_batches))
            doing = self._decide()
        return doing

    def _read(self) -> SinkRegister | None:
        return read_on(self._connected, self.sink, batch=self._place.batch)

    def _decide(self) -> Doing:
        place = self._place
        options = self._options
        return decide(
            self._register,
            self.sink,
            place.query,
            place.batch,
            options.first_batch,
            in_transactions=options.transactional_batches,
        )

    def _check_due(self) -> None:
        """What was read meanwhile may say that another driver has saved the batch."""
        if self._decide() is not Doing.WRITE:
            raise MayPass(
                f"batch {self._place.batch} of sink {self.sink!r} was saved by another driver while this task ran it"
            )

    # --- its producer

    def _ready_for(self, output: str) -> LaneProducer:
        """Whatever is to be said before the first row to this topic is said."""
        if self._producer is None:
            self._start(output)
        assert self._producer is not None
        if output not in self._producer.began.topics:
            self._extend(self._claims.topic(output), output, 0)
        return self._producer

    def _start(self, output: str) -> None:
        is_known = self._register.lane(self._place.lane) is not None
        self._go_on(is_fresh=bool(self._say(self._claims.mark() if is_known else self._claims.lane(output))))

    def _extend(self, claiming: Coroutine[Any, Any, bool | None], output: str, first: int) -> bool:
        """By the topic's partitions from `first` on; says whether there are any."""
        is_fresh = self._say(claiming)
        if is_fresh is None:
            return False
        claim = self._register.topic_claim(self._place.lane, output, first)
        assert claim is not None and self._producer is not None, "it was claimed just now"
        self._producer.extend(SavedProducer.from_json(claim.producer), is_fresh=is_fresh)
        return True

    def _say(self, saying: Coroutine[Any, Any, bool | None]) -> bool | None:
        is_first = self._connected.run(saying)
        self._check_due()
        if is_first is not None:
            self._reached(milestones.CLAIMED, first=is_first)
        return is_first

    def _go_on(self, *, is_fresh: bool) -> None:
        """As what was saved or claimed; where others may have sent something, behind what they sent."""
        number = self._place.lane
        saved = self._register.beginning(number)
        if saved is None:
            raise SinkRefused(
                f"sink {self.sink!r}: lane {number} has a mark but no claim in its state topic, so records of it "
                "are missing. Nothing was written; begin with a new checkpoint, sink.name and output topic"
            )
        producer = self._producer = self._connected.producer(saved)
        producer.start(saved, is_fresh=is_fresh)
        for claim in self._register.further_topics(number):
            producer.extend(SavedProducer.from_json(claim.producer), is_fresh=False)
        self._reached(milestones.RESUMED, replayed=producer.replayed())

    # --- rows

    def write(self, batch: pa.RecordBatch) -> None:
        """These rows are next."""
        if not batch.num_rows:
            return
        if self._columns is None:
            self._columns = columns_of(batch, self._options.topic)
        rows = chosen(batch, self._columns)
        if self._doing is Doing.VERIFY:
            self._kept.add(rows)
        else:
            self._send(rows, self._hash.rows)
        self._hash.add(rows)

    def _send(self, rows: pa.RecordBatch, first_row: int) -> None:
        with self._in_words():
            divided = list(portions(rows, self._options.topic, first_row))
        for portion in divided:
            with self._in_words(portion):
                producer = self._ready_for(portion.topic)
                self._widen(portion)
                if not first_row:
                    self._reached(milestones.FIRST_SEND, topic=portion.topic)
                producer.send(portion)
                self._note_oldest(portion)
        self._reached(milestones.SENT, rows=first_row + rows.num_rows)

    def _note_oldest(self, portion: Portion) -> None:
        oldest = oldest_ms(portion.rows)
        if oldest is not None:
            self._oldest_ms[portion.topic] = min(oldest, self._oldest_ms.get(portion.topic, oldest))

    def _widen(self, portion: Portion) -> None:
        """Rows may name partitions that the topic has got since the batch before was saved. That is only well as long
        as no row of this batch was left to the partitioner: a replay would spread it over more of them."""
        output, number = portion.topic, self._place.lane
        wanted, is_left = named_partitions(portion.rows)
        if is_left:
            self._left.add(output)
        while output not in self._left and (first := self._register.partitions_of(number, output)) < wanted:
            if not self._extend(self._claims.partitions(output), output, first):
                return  # there are no more; the producer says so, with the row

    # --- its end

    def finish(self) -> LaneMessage:
        """All rows were written; wait until all are in the log."""
        place, rows = self._place, self._hash.rows
        self._reached(milestones.INPUT_ENDED, rows=rows)
        producer: Json | None = None
        if self._doing is Doing.VERIFY:
            self._verify()
        elif self._producer is not None:
            with self._in_words():
                producer = self._acknowledged(self._producer)
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
        self._reached(milestones.RETURNING, rows=rows)
        return message

    def _acknowledged(self, producer: LaneProducer) -> Json:
        saved = producer.finish()
        self._reached(milestones.ACKNOWLEDGED, rows=self._hash.rows)
        self._producer = None
        self._connected.release(producer)
        return saved

    def _verify(self) -> None:
        place, state = self._place, self._register.state
        assert state is not None
        found = difference(state, place.lane, self._hash.rows, self._hash.digest())
        if found is None:
            return
        first = self._first_difference(state)
        raise SinkRefused(
            other_rows(self.sink, place.batch, place.lane, found if first is None else f"{found}; {first}")
        )

    def _first_difference(self, state: SinkState) -> str | None:
        number = self._place.lane
        before = self._register.before_batch(number)
        after = state.lanes.get(number)
        if not before or after is None or after.idle_batches:
            return None
        comparing = self._connected.destination.first_difference(
            together(before), SavedProducer.from_json(after.producer), self._kept, self._options.topic
        )
        return self._connected.run(comparing)

    def close(self) -> None:
        if self._producer is not None:
            self._producer.close()
            self._producer = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
