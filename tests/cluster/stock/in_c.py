"""librdkafka, and ours, which has the same doors."""

from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

import confluent_kafka

import oncelog.client
from tests.cluster.stock.doors import COMMIT_MS, IMPATIENT_MS, SESSION_MS, TOPIC, Member, OnDelivery

CLIENT = {"socket.timeout.ms": IMPATIENT_MS, "socket.connection.setup.timeout.ms": IMPATIENT_MS}
GROUP = {
    "auto.offset.reset": "earliest",
    "auto.commit.interval.ms": COMMIT_MS,
    "session.timeout.ms": SESSION_MS,
    "heartbeat.interval.ms": 500,
}


class LibrdkafkaSender:
    module: Any = confluent_kafka

    def __init__(self, servers: str, codec: str = "none") -> None:
        how = {"enable.idempotence": True, "compression.type": codec, "linger.ms": 2, **CLIENT}
        self._producer = self.module.Producer({"bootstrap.servers": servers, **how})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._producer.flush(IMPATIENT_MS / 1000)

    def produce(self, topic: str, value: bytes, key: bytes, *, on_delivery: OnDelivery) -> object:
        return self._producer.produce(topic, value, key, on_delivery=on_delivery)

    def poll(self, timeout: float) -> object:
        return self._producer.poll(timeout)

    def flush(self, timeout: float) -> int:
        return int(self._producer.flush(timeout))


class LibrdkafkaMember(Member):
    module: Any = confluent_kafka

    def read(self) -> None:
        consumer = self.module.Consumer({"bootstrap.servers": self.servers, "group.id": self.group, **CLIENT, **GROUP})

        def hold(_: object, partitions: Iterable[Any]) -> None:
            self.assigned |= {each.partition for each in partitions}

        def let_go(_: object, partitions: Iterable[Any]) -> None:
            self.assigned -= {each.partition for each in partitions}

        try:
            consumer.subscribe([TOPIC], on_assign=hold, on_revoke=let_go)
            while not self.is_ending:
                message = consumer.poll(0.2)
                if message is None:
                    continue
                if message.error() is not None:
                    self.errors.append(str(message.error()))
                else:
                    self.take(message.partition(), message.offset(), message.value())
        finally:
            consumer.close()


class OurSender(LibrdkafkaSender):
    module = oncelog.client


class OurMember(LibrdkafkaMember):
    module = oncelog.client
