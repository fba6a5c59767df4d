"""The identity of a producer: leases where the server grants them, Kafka's producer ids elsewhere; and how far it
got."""

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING

from oncelog.client.errors import KafkaError, KafkaException
from oncelog.client.net.retry import Patience, ask
from oncelog.client.net.tasks import Tasks
from oncelog.client.saving.fencing import new_identity
from oncelog.client.saving.look_up import look_up
from oncelog.clock import monotonic_s, wall_s
from oncelog.slots import Identity
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
        # Without an end: records that are too old give up by themselves.
        self._patience = Patience(inf, settings.retry_backoff_ms / 1000, settings.retry_backoff_max_ms / 1000)
        self._tell = tell
        self._wake = wake
        self._tasks = Tasks()

    def need(self, asked: NeedIdentity) -> None:
        self._tasks.begin(self._grant(asked))

    def look_up(self, asked: LookUp) -> None:
        self._tasks.begin(self._find(asked))

    async def close(self) -> None:
        await self._tasks.close()

    async def _grant(self, asked: NeedIdentity) -> None:
        async def grant() -> Identity:
            asked_ms = int(wall_s() * 1000)
            return await new_identity(self._brokers, asked.places, asked_ms)

        try:
            granted = await ask(grant, self._patience, failed=self._tell)
        except KafkaException as failure:
            error = failure.error
            self._sender.not_granted(asked.places, error.code(), error.str(), int(monotonic_s() * 1000))
        else:
            self._sender.granted(asked.places, granted, int(monotonic_s() * 1000))
        self._wake()

    async def _find(self, asked: LookUp) -> None:
        try:
            found = await ask(lambda: look_up(self._brokers, asked), self._patience, failed=self._tell)
        except KafkaException:
            found = None
        self._sender.looked_up(asked.place, found, int(monotonic_s() * 1000))
        self._wake()
