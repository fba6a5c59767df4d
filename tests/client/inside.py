"""What works inside a client, for tests that step in between two of its steps. No other test names it."""

from oncelog.client import Consumer, Producer
from oncelog.client.consumer.in_thread import InThread
from oncelog.client.net.loop_thread import LoopThread
from oncelog.client.producer.asynchronous import AsyncProducer
from oncelog.client.producer.engine import Engine


def engine_of(producer: Producer | AsyncProducer) -> Engine:
    return producer._engine


def thread_of(producer: Producer) -> LoopThread:
    return producer._thread


def driver_of(consumer: Consumer) -> InThread:
    return consumer._driver
