"""The way of a lane whose batches are transactions (`transactional.batches`): its one task begins one and writes to it.

Beginning fences the task that wrote the batch before, an orphan too, and takes back what it wrote. So nothing is
compared and rows need not repeat: of all attempts one is committed, as a whole, by the driver. That the batch is
written stands in the same transaction as its rows, so the two cannot disagree, wherever anybody dies: there is nothing
to resume.
"""

import asyncio
from contextlib import suppress
from typing import Final

from oncelog.client import KafkaException, SavedProducer
from oncelog.client.door import TopicGone, TransactionName
from oncelog.error_codes import ErrorCodes as Code
from oncelog.spark.sink import milestones
from oncelog.spark.sink.deciding import Doing, ended_by_others, is_one_ahead, one_task, state_lost, topic_changed
from oncelog.spark.sink.due_batch import DueBatch
from oncelog.spark.sink.errors import MayPass, SinkRefused
from oncelog.spark.sink.held_producer import HeldProducer
from oncelog.spark.sink.lane import topic_of
from oncelog.spark.sink.lane_producer import LaneProducer
from oncelog.spark.sink.option_checking import transaction_timeout_ms
from oncelog.spark.sink.rows import Portion
from oncelog.spark.sink.sink_register import SinkRegister
from oncelog.spark.sink.warm_worker import read_on

GIVE_UP_S: Final = 5.0  # a task's failure is told soon, also where no broker answers
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


class TransactionalLane:
    repeats: Final = False

    def __init__(self, due: DueBatch, held: HeldProducer) -> None:
        self._due = due
        self._held = held
        self._transaction: TransactionName | None = None

    def read(self) -> SinkRegister | None:
        """The register of the sink. The driver's commit may show a moment later; beginning a transaction waits for
        that."""
        place, register = self._due.place, self._due.read()
        if register is not None and place.lane == 0 and is_one_ahead(register, place.query, place.batch):
            return self._fence()
        return register

    def resume(self) -> None:
        """Nothing: beginning the transaction takes back the rows of an earlier attempt."""

    def expect_rows(self) -> None:
        due = self._due
        if due.place.lane:
            raise SinkRefused(one_task(due.sink, due.place.batch))
        if due.doing is Doing.WRITE and self._transaction is None:
            register = self._fence()
            if register is None:
                raise SinkRefused(state_lost(due.sink, due.place.batch))
            due.take(register)
            due.reached(milestones.CLAIMED, doing=due.doing.value)

    def producer_for(self, portion: Portion) -> LaneProducer:
        """The counts of partitions are this attempt's own."""
        output, producer, name = portion.topic, self._held.producer, self._transaction
        destination, topic, run = self._due.connected.destination, self._due.topic, self._due.connected.run
        assert name is not None, "rows are written in it"
        if producer is None:
            saved = run(topic.patiently(lambda: destination.lane_of(name.identity, output)))
            producer = self._held.start(saved, is_fresh=True, transaction=name)
        elif output not in (began := producer.began).topics:
            more = run(topic.patiently(lambda: destination.further_topic(began, output, None)))
            producer.extend(more, is_fresh=True)
        return producer

    def check_acknowledged(self, began: SavedProducer) -> None:
        """In a transaction rows go to topics by their names. One that was made again meanwhile has a part of them."""
        self._due.connected.run(self._due.connected.destination.counts(began))

    def give_up(self) -> None:
        """End the transaction, which keeps readers of committed records waiting: the driver does not know of it, as a
        task that failed tells it nothing."""
        if self._transaction is not None:
            connected = self._due.connected
            ending = connected.transaction(self._transaction).end(commits=False)
            with suppress(KafkaException, TimeoutError):  # it ends by itself when its time is over
                connected.run(asyncio.wait_for(ending, GIVE_UP_S))

    def refusal(self, failure: Exception) -> SinkRefused | None:
        sink, batch = self._due.sink, self._due.place.batch
        if isinstance(failure, TopicGone):
            return MayPass(topic_changed(sink, batch, failure.what))
        if isinstance(failure, KafkaException) and failure.error.code() in ENDED:
            words = ended_by_others(sink, batch, transaction_timeout_ms(self._due.options))
            return MayPass(f"{words}: {failure.error.str()}")
        return None

    def _fence(self) -> SinkRegister | None:
        """Begin a transaction, and read again: only now is everything to be seen that a fenced attempt had
        committed."""
        due = self._due
        self._transaction = due.connected.begin(topic_of(due.sink), transaction_timeout_ms(due.options))
        return read_on(due.connected, due.sink, batch=due.place.batch, to_end=True, is_expected=True)
