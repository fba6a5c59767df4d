"""What works inside a client, for tests that step in between two of its steps. No other test names it."""

from typing import Any, overload

from oncelog.client import AsyncConsumer, Consumer, Producer
from oncelog.client.consumer.in_thread import InThread
from oncelog.client.consumer.on_loop import OnLoop
from oncelog.client.net.loop_thread import LoopThread
from oncelog.client.producer.asynchronous import AsyncProducer
from oncelog.client.producer.engine import Engine


def engine_of(producer: Producer | AsyncProducer) -> Engine:
    return producer._engine


def thread_of(producer: Producer) -> LoopThread:
    return producer._thread


@overload
def driver_of(consumer: Consumer) -> InThread: ...


@overload
def driver_of(consumer: AsyncConsumer) -> OnLoop: ...


def driver_of(consumer: Any) -> Any:
    return consumer._driver
