"""The kinds of trees that the promises of `test_tree_promises.py` are kept by, and what they are put through."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Protocol

from oncelog.clock import ManualClock
from oncelog.cluster.tree import SESSION_TIMEOUT_MS, Change, Tree
from oncelog.cluster.tree_memory import Doubt, MemorySession, MemoryTree

PATIENCE_S = 20


class Trees(Protocol):
    """One store and its sessions."""

    clock: ManualClock

    async def session(self) -> Tree:
        """Another one, begun."""
        ...

    async def cut(self, tree: Tree) -> None:
        """It cannot reach the store from here on, and knows that."""
        ...

    async def mend(self, tree: Tree) -> None: ...

    async def expire(self, tree: Tree) -> None:
        """Its session is over because it was not heard of for its timeout. It must have been cut."""
        ...

    async def doubt(self, tree: Tree, *changes: Change, is_done: bool) -> None:
        """Asks for them, and the answer is lost. Raises what `change` raises."""
        ...


Kind = Callable[[Path], AbstractAsyncContextManager[Trees]]


class Told:
    """What a watcher was told, to be waited for."""

    def __init__(self, tree: Tree) -> None:
        self.paths: list[str] = []
        self._more = asyncio.Event()
        tree.watch(self._told)

    def _told(self, path: str) -> None:
        self.paths.append(path)
        self._more.set()

    async def until(self, path: str) -> None:
        async def there() -> bool:
            return path in self.paths

        await until(there, self._more)

    async def until_seen(self, answer: Callable[[], Awaitable[bool]]) -> None:
        """Asks after everything that is told."""
        await until(answer, self._more)


async def until(answer: Callable[[], Awaitable[bool]], more: asyncio.Event) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            more.clear()
            if await answer():
                return
            await more.wait()


class InMemory:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = MemoryTree()

    async def session(self) -> MemorySession:
        tree = self.store.session(self.clock)
        await tree.begin_session()
        return tree

    async def cut(self, tree: Tree) -> None:
        assert isinstance(tree, MemorySession)
        tree.suspend()

    async def mend(self, tree: Tree) -> None:
        assert isinstance(tree, MemorySession)
        tree.resume()

    async def expire(self, tree: Tree) -> None:
        assert isinstance(tree, MemorySession)
        self.clock.advance(SESSION_TIMEOUT_MS)
        tree.expire()

    async def doubt(self, tree: Tree, *changes: Change, is_done: bool) -> None:
        assert isinstance(tree, MemorySession)
        tree.doubt_next(Doubt.DONE if is_done else Doubt.NEVER)
        await tree.change(*changes)


@asynccontextmanager
async def in_memory(folder: Path) -> AsyncIterator[Trees]:
    yield InMemory()


KINDS: dict[str, Kind] = {"memory": in_memory}
