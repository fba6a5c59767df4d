"""A stock producer in transactions, step by step, as a program is told to do it: what may be tried again is, and what
has to be aborted is begun anew."""

from collections.abc import Callable, Iterable
from enum import Enum, auto
from functools import partial
from itertools import count
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Final

from confluent_kafka import KafkaException, Producer

TRIES: Final = 20
PATIENCE_S: Final = 60
HANGS_S: Final = 10  # a call that takes so long is taken for one that never returns


class Step(Enum):
    """What has just been done."""

    BEGUN = auto()
    SENDING = auto()
    SENT = auto()
    OFFSETS_SENT = auto()


class Hung(Exception):
    """The producer is of no use any more. Another of its name goes on."""


def again(step: Callable[[], object]) -> None:
    for tries in count(1):
        try:
            step()
            return
        except KafkaException as refusal:
            if not refusal.args[0].retriable() or tries == TRIES:
                raise


def transact(
    producer: Producer,
    records: Iterable[tuple[str, int, bytes]],
    *,
    is_kept: bool,
    meanwhile: Callable[[Step], object] = lambda step: None,
    offsets: tuple[Any, Any] | None = None,
    anew: Callable[[], Producer] | None = None,
) -> Producer:
    """`records`: topic, partition, and value of each. `offsets`: the positions, and whose they are. Returns the
    producer that goes on: where `producer` hangs, it is one that `anew` has made."""
    records = list(records)
    while True:
        try:
            _once(producer, records, is_kept, meanwhile, offsets)
            return producer
        except KafkaException as refusal:
            if not refusal.args[0].txn_requires_abort():
                raise
            again(partial(producer.abort_transaction, PATIENCE_S))
        except Hung:
            if anew is None:
                raise
            producer = anew()


def _once(
    producer: Producer,
    records: list[tuple[str, int, bytes]],
    is_kept: bool,
    meanwhile: Callable[[Step], object],
    offsets: tuple[Any, Any] | None,
) -> None:
    producer.begin_transaction()
    meanwhile(Step.BEGUN)
    for topic, partition, value in records:
        producer.produce(topic, value, partition=partition)
    meanwhile(Step.SENDING)
    producer.flush(PATIENCE_S)
    meanwhile(Step.SENT)
    if offsets is not None:
        again(lambda: send_offsets(producer, *offsets))
        meanwhile(Step.OFFSETS_SENT)
    end = producer.commit_transaction if is_kept else producer.abort_transaction
    again(lambda: end(PATIENCE_S))


def send_offsets(producer: Producer, positions: Any, group: Any) -> None:
    """Send them, as long as the client does so. librdkafka 2.16 may wait for ever, whatever its timeout, for the handle
    of a coordinator that it has given up (its issues 5456 and 5511), on Kafka, too."""
    outcome: SimpleQueue[KafkaException | None] = SimpleQueue()

    def send() -> None:
        try:
            producer.send_offsets_to_transaction(positions, group, PATIENCE_S)
        except KafkaException as refusal:
            outcome.put(refusal)
        else:
            outcome.put(None)

    Thread(target=send, daemon=True).start()
    try:
        refusal = outcome.get(timeout=HANGS_S)
    except Empty:
        raise Hung from None
    if refusal is not None:
        raise refusal
