"""The way of a lane whose batches are no transactions: under an identity that it has claimed, behind its mark.

Before the first row of a batch is sent, the lane's mark stands in the sink's topic. The task that finds its own mark to
be the first goes on from what was saved; any other asks the log how far the earlier ones got, and compares.
"""

from collections.abc import Coroutine
from typing import Any, Final

from oncelog.client import SavedProducer
from oncelog.client.door import TopicGone, TopicMissing
from oncelog.spark.sink import milestones
from oncelog.spark.sink.deciding import Doing, topic_gone
from oncelog.spark.sink.due_batch import DueBatch
from oncelog.spark.sink.errors import MayPass, SinkRefused
from oncelog.spark.sink.held_producer import HeldProducer
from oncelog.spark.sink.lane_producer import LaneProducer
from oncelog.spark.sink.rows import Portion, named_partitions
from oncelog.spark.sink.sink_register import SinkRegister


class ClaimedLane:
    repeats: Final = True

    def __init__(self, due: DueBatch, held: HeldProducer) -> None:
        self._due = due
        self._held = held
        self._left: set[str] = set()  # topics of which rows of this batch were left to the partitioner

    def read(self) -> SinkRegister | None:
        return self._due.read()

    def resume(self) -> None:
        if self._due.doing is Doing.WRITE and self._due.place.lane in self._due.register.marked():
            self._go_on(is_fresh=False)

    def expect_rows(self) -> None:
        """The mark waits until it is known which topic the first row goes to."""

    def producer_for(self, portion: Portion) -> LaneProducer:
        output = portion.topic
        producer = self._held.producer or self._start(output)
        if output not in producer.began.topics:
            self._extend(producer, self._due.claims.topic(output), output, 0)
        self._widen(producer, portion)
        return producer

    def check_acknowledged(self, began: SavedProducer) -> None:
        """Each row was sent to the topic of the id that was claimed."""

    def give_up(self) -> None:
        """Nothing is taken back: what was sent stands in its slots, and the next attempt finds it."""

    def refusal(self, failure: Exception) -> SinkRefused | None:
        if not isinstance(failure, TopicGone):
            return None
        words = topic_gone(self._due.options, self._due.sink, self._due.place.batch, failure.what)
        return MayPass(words) if isinstance(failure, TopicMissing) else SinkRefused(words)

    def _start(self, output: str) -> LaneProducer:
        claims = self._due.claims
        is_known = self._due.register.lane(self._due.place.lane) is not None
        return self._go_on(is_fresh=bool(self._say(claims.mark() if is_known else claims.lane(output))))

    def _extend(
        self, producer: LaneProducer, claiming: Coroutine[Any, Any, bool | None], output: str, first: int
    ) -> bool:
        """Write to the topic's partitions from `first` on, too; False where there are none."""
        is_fresh = self._say(claiming)
        if is_fresh is None:
            return False
        claim = self._due.register.topic_claim(self._due.place.lane, output, first)
        assert claim is not None, "it was claimed just now"
        producer.extend(SavedProducer.from_json(claim.producer), is_fresh=is_fresh)
        return True

    def _say(self, saying: Coroutine[Any, Any, bool | None]) -> bool | None:
        is_first = self._due.connected.run(saying)
        self._due.check()
        if is_first is not None:
            self._due.reached(milestones.CLAIMED, first=is_first)
        return is_first

    def _go_on(self, *, is_fresh: bool) -> LaneProducer:
        """Go on as what was saved or claimed; where others may have sent something, behind what they sent."""
        number, register = self._due.place.lane, self._due.register
        saved = register.beginning(number)
        if saved is None:
            raise SinkRefused(
                f"sink {self._due.sink!r}: lane {number} has a mark but no claim in its state topic, so records of it "
                "are missing. Nothing was written; begin with a new checkpoint, sink.name and output topic"
            )
        producer = self._held.start(saved, is_fresh=is_fresh)
        for claim in register.further_topics(number):
            producer.extend(SavedProducer.from_json(claim.producer), is_fresh=False)
        self._due.reached(milestones.RESUMED, replayed=producer.replayed())
        return producer

    def _widen(self, producer: LaneProducer, portion: Portion) -> None:
        """Rows may name partitions that the topic has got since the batch before was saved. That is only well as long
        as no row of this batch was left to the partitioner: a replay would spread it over more of them."""
        output, number = portion.topic, self._due.place.lane
        wanted, is_left = named_partitions(portion.rows)
        if is_left:
            self._left.add(output)
        register = self._due.register
        while output not in self._left and (first := register.partitions_of(number, output)) < wanted:
            if not self._extend(producer, self._due.claims.partitions(output), output, first):
                return  # there are no more; the producer says so, with the row
