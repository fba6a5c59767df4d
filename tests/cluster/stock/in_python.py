"""kafka-python, and aiokafka on a loop in a thread of its own."""

import asyncio
import threading
from collections.abc import Callable, Iterable
from functools import partial
from types import TracebackType
from typing import Any, Self

import aiokafka
import kafka

from tests.cluster.stock.doors import COMMIT_MS, IMPATIENT_MS, SESSION_MS, TOPIC, Delivered, Member, OnDelivery

GROUP = {
    "auto_offset_reset": "earliest",
    "auto_commit_interval_ms": COMMIT_MS,
    "session_timeout_ms": SESSION_MS,
    "heartbeat_interval_ms": 500,
}


class KafkaPythonSender:
    def __init__(self, servers: str, codec: str | None = None) -> None:
        self._producer = kafka.KafkaProducer(
            bootstrap_servers=servers,
            enable_idempotence=True,
            acks="all",
            request_timeout_ms=IMPATIENT_MS,
            compression_type=codec,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._producer.close()

    def produce(self, topic: str, value: bytes, key: bytes, *, on_delivery: OnDelivery) -> object:
        sent = self._producer.send(topic, value, key)
        sent.add_callback(lambda _: on_delivery(None, Delivered(value)))
        sent.add_errback(lambda error: on_delivery(error, Delivered(value)))
        return sent

    def poll(self, timeout: float) -> object:
        return None

    def flush(self, timeout: float) -> int:
        self._producer.flush(timeout)
        return 0


class Holding:
    """Told by either of them which partitions a member has."""

    def __init__(self, member: Member) -> None:
        self._member = member

    def hold(self, partitions: Iterable[Any]) -> None:
        self._member.assigned |= {each.partition for each in partitions}

    def let_go(self, partitions: Iterable[Any]) -> None:
        self._member.assigned -= {each.partition for each in partitions}


class OfKafkaPython(Holding, kafka.ConsumerRebalanceListener):  # type: ignore[misc]
    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        self.hold(assigned)

    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        self.let_go(revoked)


class KafkaPythonMember(Member):
    def read(self) -> None:
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=self.servers, group_id=self.group, request_timeout_ms=SESSION_MS + IMPATIENT_MS, **GROUP
        )
        try:
            consumer.subscribe([TOPIC], listener=OfKafkaPython(self))
            while not self.is_ending:
                for messages in _polled(consumer).values():
                    for message in messages:
                        self.take(message.partition, message.offset, message.value)
        finally:
            consumer.close()


def _polled(consumer: Any) -> dict[Any, list[Any]]:
    """While it looks for a coordinator it lets its application know, now and then, that a broker which is away refuses
    connections, whoever's broker that is; and goes on with the next poll."""
    try:
        return dict(consumer.poll(timeout_ms=200))
    except kafka.errors.KafkaConnectionError:
        return {}


class AiokafkaSender:
    """What is to be sent comes to its loop by a queue, so that it is sent in that order."""

    def __init__(self, servers: str, codec: str | None = None) -> None:
        self._servers = servers
        self._codec = codec
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="aiokafka")
        self._queue: asyncio.Queue[tuple[str, bytes, bytes, OnDelivery] | None] = asyncio.Queue()

    def __enter__(self) -> Self:
        self._thread.start()
        self._sending = asyncio.run_coroutine_threadsafe(self._send(), self._loop)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._put(None)
        try:
            self._sending.result()
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def produce(self, topic: str, value: bytes, key: bytes, *, on_delivery: OnDelivery) -> None:
        self._put((topic, value, key, on_delivery))

    def poll(self, timeout: float) -> object:
        return None

    def flush(self, timeout: float) -> int:
        return 0

    def _put(self, what: tuple[str, bytes, bytes, OnDelivery] | None) -> None:
        self._loop.call_soon_threadsafe(self._queue.put_nowait, what)

    async def _send(self) -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=self._servers,
            enable_idempotence=True,
            request_timeout_ms=IMPATIENT_MS,
            compression_type=self._codec,
        )
        await producer.start()
        try:
            while (asked := await self._queue.get()) is not None:
                topic, value, key, on_delivery = asked
                sent = await producer.send(topic, value, key)
                sent.add_done_callback(partial(_tell, on_delivery, value))
        finally:
            await producer.stop()


def _tell(on_delivery: Callable[[Any, Any], None], value: bytes, sent: "asyncio.Future[Any]") -> None:
    on_delivery(sent.exception(), Delivered(value))


class OfAiokafka(Holding, aiokafka.ConsumerRebalanceListener):  # type: ignore[misc]
    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        self.hold(assigned)

    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        self.let_go(revoked)


class AiokafkaMember(Member):
    def read(self) -> None:
        asyncio.run(self._read())

    async def _read(self) -> None:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=self.servers, group_id=self.group, request_timeout_ms=IMPATIENT_MS, **GROUP
        )
        consumer.subscribe([TOPIC], listener=OfAiokafka(self))
        await consumer.start()
        try:
            while not self.is_ending:
                for messages in (await consumer.getmany(timeout_ms=200)).values():
                    for message in messages:
                        self.take(message.partition, message.offset, message.value)
        finally:
            await consumer.stop()
