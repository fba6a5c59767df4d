"""What stands in a topic, asked of the server's consumer, and callbacks that are remembered."""

from typing import Any, NamedTuple

from oncelog.client.consumer.consumer import Consumer
from oncelog.client.types import OFFSET_BEGINNING, TopicPartition

PATIENCE_S = 30.0


class Stored(NamedTuple):
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] | None
    timestamp_ms: int


def stored(servers: str, topic: str, partitions: int = 1, *, from_offset: int = OFFSET_BEGINNING) -> list[Stored]:
    """Every record of the topic, partition by partition."""
    found: list[Stored] = []
    properties = {
        "bootstrap.servers": servers,
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 0,  # where nothing stands, the end would be told half a second later
    }
    with Consumer(properties) as consumer:
        consumer.assign([TopicPartition(topic, index, from_offset) for index in range(partitions)])
        ended: set[int] = set()
        while len(ended) < partitions:
            each = consumer.poll(PATIENCE_S)
            assert each is not None, "neither a record nor an end came"
            error = each.error()
            if error is None:
                place = each.partition(), each.offset()
                found.append(Stored(*place, each.key(), each.value(), each.headers(), each.timestamp()[1]))
            else:
                assert error.code() == error._PARTITION_EOF, error
                ended.add(each.partition())
    return sorted(found, key=lambda each: (each.partition, each.offset))


class Heard:
    """A callback that remembers."""

    def __init__(self) -> None:
        self.errors: list[Any] = []
        self.messages: list[Any] = []

    def __call__(self, error: Any, message: Any) -> None:
        self.errors.append(error)
        self.messages.append(message)

    @property
    def codes(self) -> list[int | None]:
        return [None if error is None else error.code() for error in self.errors]
