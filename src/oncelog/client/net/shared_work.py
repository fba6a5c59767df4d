"""Work that several ask for at the same time is done once, and goes on when one of them gives up waiting."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

from oncelog.client.errors import KafkaError, KafkaException

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


def closed_meanwhile() -> KafkaError:
    return KafkaError(KafkaError._DESTROY, "the client was closed meanwhile")


class Shared(Generic[K, T]):
    def __init__(self) -> None:
        self._running: dict[K, asyncio.Task[T]] = {}
        self._is_closed = False

    def __contains__(self, key: K) -> bool:
        return key in self._running

    def keys(self) -> list[K]:
        return list(self._running)

    async def do(self, key: K, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        if self._is_closed:
            raise KafkaException(closed_meanwhile())
        task = self._running.get(key)
        if task is None:
            task = self._running[key] = asyncio.create_task(work())
            task.add_done_callback(lambda done: self._ended(key, done))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            # Either the work was ended by `close`, or only the one who waits for it here was.
            if self._is_closed and task.done() and not _is_cancelled():
                raise KafkaException(closed_meanwhile()) from None
            raise

    async def close(self) -> None:
        self._is_closed = True
        running = list(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _ended(self, key: K, done: "asyncio.Task[T]") -> None:
        self._running.pop(key, None)
        if not done.cancelled():
            done.exception()  # those who asked were told; where nobody waits any more, nobody need be


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
