"""Which nodes coordinate groups and transactional ids, kept until one says that it does not, or does not answer."""

from collections.abc import Awaitable, Callable
from typing import Final

from oncelog.client.errors import KafkaError

GROUP: Final = 0
MOST_KEPT: Final = 1_000
MOVED: Final = frozenset(
    {
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
    }
)


class Coordinators:
    def __init__(self, find: Callable[[str, int], Awaitable[int]]) -> None:
        self._find = find
        self._known: dict[tuple[str, int], int] = {}

    async def node(self, key: str, kind: int = GROUP) -> int:
        known = self._known.get((key, kind))
        if known is None:
            known = await self._find(key, kind)
            if len(self._known) >= MOST_KEPT:
                self._known.clear()
            self._known[key, kind] = known
        return known

    def failed(self, error: KafkaError, key: str, kind: int = GROUP) -> None:
        """What came of asking that node. The next who asks looks for another one, where that may be why."""
        if error.code() in MOVED or error.code() < 0:  # below 0: it was not reached, or did not answer
            self._known.pop((key, kind), None)
