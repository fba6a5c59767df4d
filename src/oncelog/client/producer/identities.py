"""Who the producer is: leases where the server grants them, Kafka's producer ids elsewhere; and how far it got."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from oncelog.client.errors import KafkaError, KafkaException
from oncelog.client.saving.errors import CannotResume
from oncelog.client.saving.fencing import kafka_pid, lease
from oncelog.client.saving.look_up import look_up
from oncelog.clock import monotonic_s, wall_s
from oncelog.slots.messages import LookUp, NeedIdentity
from oncelog.slots.sender import Sender

if TYPE_CHECKING:
    from oncelog.client.net.brokers import Brokers
    from oncelog.client.properties import ProducerSettings


class Identities:
    """Asks until it is answered, and wakes the engine when it was."""

    def __init__(
        self,
        brokers: "Brokers",
        sender: Sender,
        settings: "ProducerSettings",
        tell: Callable[[KafkaError], None],
        wake: Callable[[], None],
    ) -> None:
        self._brokers = brokers
        self._sender = sender
        self._settings = settings
        self._tell = tell
        self._wake = wake
        self._tasks: set[asyncio.Task[None]] = set()

    def need(self, asked: NeedIdentity) -> None:
        self._spawn(self._grant(asked))

    def look_up(self, asked: LookUp) -> None:
        self._spawn(self._find(asked))

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _grant(self, asked: NeedIdentity) -> None:
        attempt = 0
        while True:
            asked_ms = int(wall_s() * 1000)
            try:
                is_leased = (await self._brokers.connection(None)).is_oncelog
                if is_leased:
                    granted = await lease(self._brokers, asked.places, asked_ms)
                else:
                    granted = await kafka_pid(self._brokers)
            except KafkaException as failure:
                error = failure.error
                self._tell(error)
                if not error.retriable():
                    self._sender.not_granted(asked.places, error.code(), error.str(), int(monotonic_s() * 1000))
                    break
                attempt += 1
                await self._pause(attempt)
                continue
            self._sender.granted(asked.places, granted, int(monotonic_s() * 1000))
            break
        self._wake()

    async def _find(self, asked: LookUp) -> None:
        attempt = 0
        while True:
            try:
                found = await look_up(self._brokers, asked)
                break
            except KafkaException as failure:
                self._tell(failure.error)
                if isinstance(failure, CannotResume) or not failure.error.retriable():
                    found = None
                    break
                attempt += 1
                await self._pause(attempt)
        self._sender.looked_up(asked.place, found, int(monotonic_s() * 1000))
        self._wake()

    async def _pause(self, attempt: int) -> None:
        settings = self._settings
        pause_ms = min(settings.retry_backoff_ms * 2 ** min(attempt, 20), settings.retry_backoff_max_ms)
        await asyncio.sleep(pause_ms / 1000)

    def _spawn(self, coroutine: Any) -> None:
        task = asyncio.ensure_future(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
