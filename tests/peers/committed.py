"""What readers of committed records see, by librdkafka."""

from collections.abc import Iterator

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

PATIENCE_S = 120.0


def committed(bootstrap_servers: str, topic: str, partitions: int, count: int) -> Iterator[Message]:
    """The first `count`, as they come."""
    reader = _reader(bootstrap_servers, topic, partitions)
    seen = 0
    while seen < count:
        message = reader.poll(PATIENCE_S)
        assert message is not None, f"{seen} of {count}"
        if message.error() is None:
            seen += 1
            yield message
    reader.close()


def all_committed(bootstrap_servers: str, topic: str, partitions: int) -> list[Message]:
    """Up to the last stable offset of each partition."""
    reader = _reader(bootstrap_servers, topic, partitions, **{"enable.partition.eof": True})
    found: list[Message] = []
    at_end: set[int | None] = set()
    while len(at_end) < partitions:
        message = reader.poll(PATIENCE_S)
        assert message is not None, f"{len(found)} records, and no end"
        error = message.error()
        if error is None:
            found.append(message)
        elif error.code() == KafkaError._PARTITION_EOF:
            at_end.add(message.partition())
    reader.close()
    return found


def _reader(bootstrap_servers: str, topic: str, partitions: int, **more: object) -> Consumer:
    reader = Consumer(
        {"bootstrap.servers": bootstrap_servers, "group.id": "reader", "isolation.level": "read_committed", **more}
    )
    reader.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    return reader
