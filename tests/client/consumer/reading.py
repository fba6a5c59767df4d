"""What tests of consumers do again and again: write records, read a known number of them."""

from collections.abc import Iterable, Sequence

from oncelog.client.consumer.consumer import Consumer
from oncelog.client.consumer.message import Message
from oncelog.client.types import OFFSET_BEGINNING, TopicPartition
from tests.raw import CODECS, RawConnection, Rec, batch

PATIENCE_S = 20.0


def write(
    raw: RawConnection, topic: str, records: Sequence[bytes | Rec], *, partition: int = 0, codec: str = "none"
) -> None:
    answer = raw.produce(topic, partition, batch(records, codec=CODECS[codec]))
    assert answer.error_code == 0


def values(messages: Iterable[Message]) -> list[bytes | None]:
    return [message.value() for message in messages]


def take(consumer: Consumer, count: int) -> list[Message]:
    """Exactly so many records; an error fails the test."""
    messages = consumer.consume(count, PATIENCE_S)
    for message in messages:
        assert message.error() is None, message.error()
    assert len(messages) == count, f"{len(messages)} of {count} records came"
    return messages


def beginning(topic: str, partition: int = 0) -> list[TopicPartition]:
    return [TopicPartition(topic, partition, OFFSET_BEGINNING)]
