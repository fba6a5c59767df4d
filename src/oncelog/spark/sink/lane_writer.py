"""What a task does: it writes its rows as one lane, and says how far it got.

The end of the input is not the end of the task's rows. When the JVM is killed, a worker may see its iterator end
half-way as if nothing were wrong. So nothing is recorded here as done: what was sent is a true prefix of the lane's
rows, which the next attempt finds in the log; and only the driver, which Spark tells when all tasks have ended well,
writes down that a batch is complete.
"""

from collections.abc import Callable, Coroutine, Iterable
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from oncelog.client.errors import KafkaError, KafkaException
from oncelog.spark.options import SinkOptions
from oncelog.spark.sink import steps
from oncelog.spark.sink.claiming import claim_lane, claim_sink, claim_topic
from oncelog.spark.sink.deciding import Doing, decide, difference, other_rows
from oncelog.spark.sink.errors import SinkRefused
from oncelog.spark.sink.hashing import RowHash
from oncelog.spark.sink.lane import Json, LaneMessage, LanePlace
from oncelog.spark.sink.lane_producer import LaneProducer
from oncelog.spark.sink.rows import chosen, columns_of, portions
from oncelog.spark.sink.standing import Standing
from oncelog.spark.sink.steps import reached
from oncelog.spark.sink.warm import Cluster, cluster, lane_properties

Claim = Callable[..., Coroutine[Any, Any, None]]


def write_lane(options: SinkOptions, place: LanePlace, iterator: Iterable[pa.RecordBatch]) -> LaneMessage:
    """Write a task's rows. Raises where they cannot be written, or would not be what an earlier attempt wrote."""
    with Lane(options, place) as lane:
        for batch in iterator:
            lane.write(batch)
        return lane.finish()


def sink_name(options: SinkOptions, query: str) -> str:
    return options.sink_name or options.job_id or query


class Lane:
    """One task's writing, for those who bring their rows themselves: `write` again and again, then `finish`."""

    def __init__(self, options: SinkOptions, place: LanePlace) -> None:
        self._options = options
        self._place = place
        self.sink = sink_name(options, place.query)
        self._hash = RowHash()
        self._columns: tuple[str, ...] | None = None
        self._producer: LaneProducer | None = None
        self._properties = lane_properties(options)
        self._reached(steps.BEGUN)
        self._cluster: Cluster = cluster(self._properties)
        self._log = self._cluster.log(self.sink)
        self._standing = Standing()
        self._doing = self._begin()
        self._reached(steps.STATE_READ, doing=self._doing.value)
        if self._doing is Doing.WRITE and self._standing.producer(place.lane) is not None:
            self._resume()

    def _reached(self, step: str, **facts: object) -> None:
        place = self._place
        reached(step, sink=self.sink, batch=place.batch, lane=place.lane, attempt=place.attempt, **facts)

    # --- its beginning

    def _begin(self) -> Doing:
        run, place = self._cluster.run, self._place
        if not run(self._log.exists()):
            self._decide()  # refuses before a topic is made
            run(self._log.create())
        self._standing = run(self._log.read())
        doing = self._decide()
        if doing is Doing.BEGIN:
            run(claim_sink(self._cluster.brokers, self._log, self._standing, self.sink, place))
            doing = self._decide()
        return doing

    def _decide(self) -> Doing:
        place = self._place
        return decide(self._standing, self.sink, place.query, place.batch, self._options.first_batch)

    def _resume(self) -> None:
        """Find out how far an earlier attempt got, be it that there was none."""
        saved = self._standing.producer(self._place.lane)
        assert saved is not None
        self._producer = LaneProducer(self._properties, saved, self._more_topics())
        self._reached(steps.RESUMED, replayed=self._producer.replayed)

    def _more_topics(self) -> list[Json]:
        lane = self._place.lane
        return [claim.producer for (number, _), claim in self._standing.topics.items() if number == lane]

    # --- rows

    def write(self, batch: pa.RecordBatch) -> None:
        """These rows are next."""
        if not batch.num_rows:
            return
        if self._columns is None:
            self._columns = columns_of(batch, self._options.topic)
        rows = chosen(batch, self._columns)
        first_row = self._hash.rows
        if self._doing is not Doing.VERIFY:
            self._send(rows, first_row)
        self._hash.add(rows)

    def _send(self, rows: pa.RecordBatch, first_row: int) -> None:
        for topic, portion, at in portions(rows, self._options.topic, first_row):
            producer = self._ready_for(topic)
            if not first_row:
                self._reached(steps.FIRST_SEND, topic=topic)
            try:
                producer.send(topic, portion)
            except KafkaException as failure:
                raise self._refusal(failure, at) from failure
        self._reached(steps.SENT, rows=first_row + rows.num_rows)

    def _ready_for(self, topic: str) -> LaneProducer:
        """Whatever is to be claimed for the topic is."""
        if self._producer is None:
            self._claim(claim_lane, topic)
            self._resume()
        assert self._producer is not None
        if topic not in self._producer.topics:
            self._claim(claim_topic, topic)
            self._producer.extend(self._standing.topics[self._place.lane, topic].producer)
        return self._producer

    def _claim(self, claim: Claim, topic: str) -> None:
        arguments = (self._cluster.brokers, self._log, self._standing, self._place, self._properties, topic)
        self._cluster.run(claim(*arguments))
        self._decide_again()
        self._reached(steps.CLAIMED, topic=topic)

    def _decide_again(self) -> None:
        """What was read meanwhile may say that the batch was saved by another driver."""
        if self._decide() is not Doing.WRITE:
            raise SinkRefused(
                f"batch {self._place.batch} of sink {self.sink!r} was saved by another driver while this task wrote it"
            )

    def _refusal(self, failure: KafkaException, first_row: int) -> Exception:
        place = self._place
        where = f"batch {place.batch} of sink {self.sink!r}, lane {place.lane}"
        if failure.error.code() == KafkaError._INCONSISTENT:
            return SinkRefused(other_rows(self.sink, place.batch, place.lane, failure.error.str()))
        return SinkRefused(f"{where}, in the rows from {first_row} on: {failure.error.str()}")

    # --- its end

    def finish(self) -> LaneMessage:
        """All rows were written; wait until all are in the log."""
        place = self._place
        self._reached(steps.INPUT_ENDED, rows=self._hash.rows)
        producer: Json | None = None
        if self._doing is Doing.VERIFY:
            self._verify()
        elif self._producer is not None:
            try:
                producer = self._producer.finish()
            except KafkaException as failure:
                raise self._refusal(failure, 0) from failure
            self._reached(steps.ACKNOWLEDGED, rows=self._hash.rows)
        message = LaneMessage(
            self.sink,
            place.query,
            place.batch,
            place.lane,
            place.attempt,
            self._hash.rows,
            self._hash.digest(),
            producer,
        )
        self._reached(steps.RETURNING, rows=self._hash.rows)
        return message

    def _verify(self) -> None:
        place, state = self._place, self._standing.state
        assert state is not None
        found = difference(state, place.lane, self._hash.rows, self._hash.digest())
        if found is not None:
            raise SinkRefused(other_rows(self.sink, place.batch, place.lane, found))

    def close(self) -> None:
        if self._producer is not None:
            self._producer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
