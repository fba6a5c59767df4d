"""What the one task of a batch does that is a transaction (`transactional.batches`): it begins it and writes to it.

Beginning fences the task that wrote the batch before, an orphan too, and takes back what it wrote. So nothing is
compared and rows need not repeat: of all attempts one is committed, as a whole, by the driver. That the batch is
written stands in the same transaction as its rows, so the two cannot disagree, wherever anybody dies: there is nothing
to resume.
"""

from typing import Final

import pyarrow as pa

from oncelog.client import KafkaException
from oncelog.client.door import TopicGone, TransactionName
from oncelog.error_codes import ErrorCodes as Code
from oncelog.spark.sink import milestones
from oncelog.spark.sink.deciding import Doing, ended_by_others, is_one_ahead, one_task, topic_changed
from oncelog.spark.sink.errors import MayPass, SinkRefused
from oncelog.spark.sink.lane import Json, topic_of
from oncelog.spark.sink.lane_producer import LaneProducer
from oncelog.spark.sink.lane_writer import LaneWriter
from oncelog.spark.sink.option_checking import transaction_timeout_ms
from oncelog.spark.sink.rows import Portion
from oncelog.spark.sink.sink_register import SinkRegister
from oncelog.spark.sink.warm_worker import read_on

# The transaction is not what it was: another attempt began one, or its time was over.
ENDED: Final = frozenset(
    {
        Code.INVALID_PRODUCER_EPOCH,
        Code.PRODUCER_FENCED,
        Code.INVALID_TXN_STATE,
        Code.INVALID_PRODUCER_ID_MAPPING,
        Code.OUT_OF_ORDER_SEQUENCE_NUMBER,
        Code.UNKNOWN_PRODUCER_ID,
        Code.TRANSACTION_ABORTABLE,
    }
)


class TransactionalLane(LaneWriter):
    _transaction: TransactionName | None = None

    def write(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        if self._place.lane:
            raise SinkRefused(one_task(self.sink, self._place.batch))
        with self._in_words():
            if self._doing is Doing.WRITE and self._transaction is None:
                self._begin_transaction()
        if self._doing is Doing.WRITE:
            super().write(batch)
        else:  # it is written, and this run of it is for the query's state alone
            self._hash.rows += batch.num_rows

    def _read(self) -> SinkRegister | None:
        """What the driver has committed may show a moment later. Beginning a transaction waits for that, too."""
        place, register = self._place, super()._read()
        if register is not None and place.lane == 0 and is_one_ahead(register, place.query, place.batch):
            return self._fence()
        return register

    def _fence(self) -> SinkRegister | None:
        """What another one had committed when it was fenced is seen only now."""
        self._transaction = self._connected.begin(topic_of(self.sink), transaction_timeout_ms(self._options))
        return read_on(self._connected, self.sink, batch=self._place.batch, to_end=True)

    def _begin_transaction(self) -> None:
        register = self._fence()
        if register is None:
            raise SinkRefused(f"the state of sink {self.sink!r} was lost while batch {self._place.batch} was written")
        self._register = register
        self._doing = self._decide()
        self._reached(milestones.CLAIMED, doing=self._doing.value)

    def _ready_for(self, output: str) -> LaneProducer:
        destination, topic, run = self._connected.destination, self._topic, self._connected.run
        name = self._transaction
        assert name is not None, "rows are written in it"
        if self._producer is None:
            saved = run(topic.patiently(lambda: destination.lane_of(name.identity, output)))
            self._producer = self._connected.producer(saved)
            self._producer.start(saved, is_fresh=True, transaction=name)
        elif output not in self._producer.began.topics:
            began = self._producer.began
            more = run(topic.patiently(lambda: destination.further_topic(began, output, None)))
            self._producer.extend(more, is_fresh=True)
        return self._producer

    def _widen(self, portion: Portion) -> None:
        """The counts of partitions are this attempt's own."""

    def _acknowledged(self, producer: LaneProducer) -> Json:
        """In a transaction rows go to topics by their names. One that was made again meanwhile has a part of them."""
        began, saved = producer.began, super()._acknowledged(producer)
        self._connected.run(self._connected.destination.counts(began))
        return saved

    def _verify(self) -> None:
        """What this run came to is of no account."""

    def _refusal(self, failure: Exception, portion: Portion | None) -> SinkRefused:
        if isinstance(failure, TopicGone):
            return MayPass(topic_changed(self.sink, self._place.batch, failure.what))
        if isinstance(failure, KafkaException) and failure.error.code() in ENDED:
            words = ended_by_others(self.sink, self._place.batch, transaction_timeout_ms(self._options))
            return MayPass(f"{words}: {failure.error.str()}")
        return super()._refusal(failure, portion)
