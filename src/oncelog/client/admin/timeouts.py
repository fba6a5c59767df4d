"""The time that an administrator's request may take, and asking within it."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from oncelog.client.errors import KafkaError, KafkaException, error_of
from oncelog.client.net.leaders import ask_leaders, ask_nodes
from oncelog.client.net.retry import UNKNOWN, Key, Outcomes, Patience, ask_for_each
from oncelog.clock import monotonic_s

if TYPE_CHECKING:
    from oncelog.client.net.brokers import Brokers
    from oncelog.slots import AnyPlace

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Timeouts:
    """The time for all attempts of a request together, from now on, and for the broker's own work in each of them."""

    request_timeout_ms: int
    operation_timeout_ms: int = 0
    began_s: float = field(default_factory=monotonic_s)

    @property
    def patience(self) -> Patience:
        """No repetition makes an unknown topic, partition or broker another: metadata were asked for it just now."""
        return Patience(self.request_timeout_ms / 1000, lag_s=0, lagging=UNKNOWN | {KafkaError._UNKNOWN_BROKER})

    @property
    def left_s(self) -> float:
        return max(0.0, self.began_s + self.request_timeout_ms / 1000 - monotonic_s())

    @property
    def operation_timeout(self) -> timedelta:
        return timedelta(milliseconds=self.operation_timeout_ms or self.request_timeout_ms)

    async def spend_on(self, doing: Awaitable[T]) -> T:
        """Await it within the time of the request, once."""
        try:
            async with asyncio.timeout(self.left_s):
                return await doing
        except TimeoutError:
            raise self.patience.over(None) from None

    async def ask(
        self,
        keys: Iterable[Key],
        once: Callable[[list[Key]], Awaitable[Mapping[Key, Any]]],
        *,
        done_already: int = 0,
    ) -> Outcomes[Key]:
        return await ask_for_each(keys, once, self.patience, began_s=self.began_s, done_already=done_already)

    async def ask_nodes(
        self,
        by_node: Mapping[int, list[Key]],
        ask_node: Callable[[int, list[Key]], Awaitable[Mapping[Key, Any]]],
    ) -> Outcomes[Key]:
        return await ask_nodes(by_node, ask_node, self.left_s)

    async def ask_leaders(
        self,
        brokers: "Brokers",
        partitions: "Iterable[AnyPlace]",
        ask_node: "Callable[[int, list[AnyPlace]], Awaitable[Mapping[AnyPlace, Any]]]",
    ) -> "Outcomes[AnyPlace]":
        return await ask_leaders(brokers, partitions, ask_node, self.patience, began_s=self.began_s, is_fresh=True)

    async def ask_controller(self, brokers: "Brokers", name: str, build: Callable[[Any], Any]) -> Any:
        node_id = await brokers.controller()
        return await brokers.request(node_id, name, build, timeout_ms=self.request_timeout_ms)


def refusal(code: int, message: str | None = None) -> KafkaException | None:
    """The failure that a code stands for; None where all went well."""
    return KafkaException(error_of(int(code), message)) if code else None
