"""The coordinators of groups and transactional ids, kept until one says that it is none, or does not answer."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from oncelog.client.errors import KafkaError, KafkaException

GROUP: Final = 0
MOST_KEPT: Final = 1_000
# One that still loads what it needs to know is the right one, and asked again.
MOVED: Final = frozenset(
    {KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.NOT_COORDINATOR, KafkaError.NETWORK_EXCEPTION}
)


def has_moved(code: int) -> bool:
    """Whether another node is to be looked for after this error."""
    return code in MOVED or code < 0  # below 0: it was not reached, or did not answer


class Coordinators:
    def __init__(self, find: Callable[[str, int], Awaitable[int]]) -> None:
        self._find = find
        self._known: dict[tuple[str, int], int] = {}

    async def node(self, key: str, kind: int = GROUP) -> int:
        known = self._known.get((key, kind))
        return await self.anew(key, kind) if known is None else known

    async def anew(self, key: str, kind: int = GROUP) -> int:
        """The node, looked for again: the one that is kept is lost."""
        found = await self._find(key, kind)
        if len(self._known) >= MOST_KEPT:
            self._known.clear()
        self._known[key, kind] = found
        return found

    def forget(self, key: str, kind: int = GROUP) -> None:
        self._known.pop((key, kind), None)

    @asynccontextmanager
    async def at(self, key: str, kind: int = GROUP) -> AsyncIterator[int]:
        """The node, for as long as it is asked: what it answers with an error is raised inside of this. The next who
        asks looks for another one, where that may be why."""
        node_id = await self.node(key, kind)
        try:
            yield node_id
        except KafkaException as failure:
            if has_moved(failure.error.code()):
                self.forget(key, kind)
            raise
        except BaseException:  # the caller gave up by its own clock: that node may never answer
            self.forget(key, kind)
            raise
