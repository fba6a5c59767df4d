"""A stock producer in transactions, step by step, as a program is told to do it: what may be tried again is, and what
has to be aborted is begun anew."""

from collections.abc import Callable, Iterable
from enum import Enum, auto
from itertools import count
from typing import Any, Final

from confluent_kafka import KafkaException, Producer

TRIES: Final = 20
PATIENCE_S: Final = 60


class Step(Enum):
    """What has just been done."""

    BEGUN = auto()
    SENDING = auto()
    SENT = auto()
    OFFSETS_SENT = auto()


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
) -> None:
    """`records`: topic, partition, and value of each. `offsets`: the positions, and whose they are."""
    records = list(records)
    while True:
        try:
            _once(producer, records, is_kept, meanwhile, offsets)
            return
        except KafkaException as refusal:
            if not refusal.args[0].txn_requires_abort():
                raise
            again(lambda: producer.abort_transaction(PATIENCE_S))


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
        again(lambda: producer.send_offsets_to_transaction(*offsets, PATIENCE_S))
        meanwhile(Step.OFFSETS_SENT)
    end = producer.commit_transaction if is_kept else producer.abort_transaction
    again(lambda: end(PATIENCE_S))
