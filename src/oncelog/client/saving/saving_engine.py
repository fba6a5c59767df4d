"""The engine, as a producer that is saved needs it."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from oncelog.client.errors import KafkaError
from oncelog.client.net.brokers import Brokers
from oncelog.client.net.transaction import Transaction
from oncelog.client.partitioners import Partitioner
from oncelog.client.producer.accumulator import Topic, Unbatched
from oncelog.client.producer.closing import Closing
from oncelog.client.producer.delivery import Report
from oncelog.slots import Place
from oncelog.slots.batch import Batch
from oncelog.slots.messages import Delivered
from oncelog.slots.sender import Sender

if TYPE_CHECKING:
    from oncelog.client.properties import ProducerSettings

Prepare = Callable[[Topic, Sequence[Unbatched]], None]


class SavingEngine(Protocol):
    settings: "ProducerSettings"
    partitioner: Partitioner
    brokers: Brokers
    sender: Sender
    closing: Closing

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...

    @property
    def is_held(self) -> bool: ...

    def wake(self) -> None: ...

    def flush(self, by: int) -> None: ...

    def hold(self, is_held: bool) -> None: ...

    def stop(self, error: KafkaError) -> None: ...

    def keep_times(self) -> None: ...

    def write_in(self, transaction: Transaction | None) -> None: ...

    def pin_by(self, pin: Callable[[str], Awaitable[None]]) -> None: ...

    def pin_topic(self, name: str, topic_id: UUID | None, count: int, prepare: Prepare) -> None: ...

    def pending(self, place: Place) -> int: ...

    def is_idle(self, place: Place) -> bool: ...

    def report(self, report: Report) -> None: ...

    def report_failed(self, batch: Batch, error: KafkaError) -> None: ...

    def report_delivered(self, action: Delivered) -> None: ...
