"""Numbered records that are sent while something happens to the processes that take them, and the audit behind that:
nothing that was acknowledged is lost, nothing is there twice, and each key's records are in order."""

from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any, Protocol

from oncelog.client import Consumer, TopicPartition
from tests.waiting import until

PARTITIONS, KEYS = 3, 20


class Sends(Protocol):
    def produce(self, topic: str, value: bytes, key: bytes, *, on_delivery: Callable[[Any, Any], None]) -> object: ...

    def poll(self, timeout: float) -> object: ...

    def flush(self, timeout: float) -> int: ...


class Writing:
    """Numbered records, of which more are sent while something happens to the brokers; `before` another has sent."""

    def __init__(self, producer: Sends, before: int = 0) -> None:
        self._producer = producer
        self.sent = before
        self.acknowledged = set(range(before))
        self.failed: list[str] = []

    def send(self, count: int) -> None:
        for number in range(self.sent, self.sent + count):
            self._producer.produce("orders", b"%d" % number, b"%d" % (number % KEYS), on_delivery=self._delivered)
        self.sent += count

    def _delivered(self, error: object, message: Any) -> None:
        if error is None:
            self.acknowledged.add(int(message.value()))
        else:
            self.failed.append(str(error))

    def is_all_acknowledged(self) -> bool:
        self._producer.poll(0)
        return len(self.acknowledged) + len(self.failed) == self.sent

    def end(self) -> None:
        until(self.is_all_acknowledged, "answers to all that was sent", give_up_seconds=60)
        assert self.failed == []


def read(servers: str, count: int) -> dict[int, list[tuple[bytes | None, int]]]:
    """Key and number of each record, by partition."""
    found: dict[int, list[tuple[bytes | None, int]]] = {index: [] for index in range(PARTITIONS)}
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "audit", "auto.offset.reset": "earliest"})
    try:
        places = [TopicPartition("orders", index) for index in range(PARTITIONS)]
        ends = {each.partition: (consumer.get_watermark_offsets(each) or (0, 0))[1] for each in places}
        consumer.assign([TopicPartition("orders", index, 0) for index in range(PARTITIONS)])

        def take() -> bool:
            for message in consumer.consume(1000, 0.2):
                assert message.error() is None, message.error()
                found[message.partition()].append((message.key(), int(message.value() or b"")))
            return all(len(some) >= ends[index] for index, some in found.items())

        until(take, "all records", give_up_seconds=60)
    finally:
        consumer.close()
    return found


def check(servers: str, writing: Writing) -> None:
    found = read(servers, writing.sent)
    times = Counter(number for some in found.values() for _, number in some)
    by_key: dict[bytes | None, list[int]] = {}
    for some in found.values():
        for key, number in some:
            by_key.setdefault(key, []).append(number)
    lost = writing.acknowledged - times.keys()
    twice = [number for number, count in times.items() if count > 1]
    disordered = [
        key for key, numbers in by_key.items() if any(later <= earlier for earlier, later in pairwise(numbers))
    ]
    assert (sorted(lost), twice, disordered) == ([], [], [])
    assert len(times) == writing.sent
