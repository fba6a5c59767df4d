"""The kinds of trees that the promises of `test_tree_promises.py` are kept by, and what they are put through."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Protocol

from oncelog.clock import ManualClock
from oncelog.cluster.tree import SESSION_TIMEOUT_MS, Change, Tree
from oncelog.cluster.tree_memory import Doubt, MemorySession, MemoryTree
from oncelog.cluster.tree_server import TreeServer
from oncelog.cluster.tree_socket import SocketTree
from oncelog.cluster.tree_store import TreeStore
from tests.log.memory_disk import MemoryDisk

PATIENCE_S = 20
NEVER_S = 1e6


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


class Proxy:
    """Between one client and the server: a stream that ends at the client's side goes on at the server's."""

    def __init__(self, path: str, server_path: str) -> None:
        self.path = path
        self.swallows: str | None = None  # what is not passed on, and is the last thing: "asked" or "answered"
        self._server_path = server_path
        self._listener: asyncio.Server | None = None
        self._clients: list[asyncio.StreamWriter] = []
        self._upstream: list[asyncio.StreamWriter] = []

    async def start(self) -> None:
        self._listener = await asyncio.start_unix_server(self._accept, self.path)

    def cut(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
            Path(self.path).unlink(missing_ok=True)
        for writer in self._clients:
            writer.transport.abort()
        self._clients.clear()

    def stop(self) -> None:
        self.cut()
        for writer in self._upstream:
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream_reader, upstream = await asyncio.open_unix_connection(self._server_path)
        self._clients.append(writer)
        self._upstream.append(upstream)
        await asyncio.gather(
            self._pass_on(reader, upstream, "asked"), self._pass_on(upstream_reader, writer, "answered")
        )

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, what: str) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                if self.swallows == what:
                    self.swallows = None
                    self.cut()
                    return
                writer.write(data)
        if what == "answered":
            writer.close()


class OverSockets:
    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock()
        self.store = TreeStore.open(MemoryDisk(), "tree", self.clock)
        self.path = str(folder / "tree")
        self.server = TreeServer(self.path, self.store, self.clock, look_s=NEVER_S)
        self._sessions: dict[SocketTree, Proxy] = {}
        self._folder = folder

    async def session(self) -> SocketTree:
        proxy = Proxy(str(self._folder / f"p{len(self._sessions)}"), self.path)
        await proxy.start()
        tree = SocketTree(proxy.path, self.clock)
        self._sessions[tree] = proxy
        await tree.begin_session()
        return tree

    async def cut(self, tree: Tree) -> None:
        assert isinstance(tree, SocketTree)
        self._sessions[tree].cut()
        await turns_until(lambda: not tree.is_connected)

    async def mend(self, tree: Tree) -> None:
        assert isinstance(tree, SocketTree)
        await self._sessions[tree].start()

    async def expire(self, tree: Tree) -> None:
        self.clock.advance(SESSION_TIMEOUT_MS)
        self.server.look()
        for other in self._sessions:
            if other.is_connected:
                await other.get("/config")
        self.server.look()

    async def doubt(self, tree: Tree, *changes: Change, is_done: bool) -> None:
        assert isinstance(tree, SocketTree)
        self._sessions[tree].swallows = "answered" if is_done else "asked"
        await tree.change(*changes)

    async def stop(self) -> None:
        for tree, proxy in self._sessions.items():
            await tree.close()
            proxy.stop()
        await self.server.stop()
        await self.store.close()


async def turns_until(answer: Callable[[], bool]) -> None:
    """What comes by itself, in turns of the loop."""
    async with asyncio.timeout(PATIENCE_S):
        while not answer():
            await asyncio.sleep(0)


@asynccontextmanager
async def over_sockets(folder: Path) -> AsyncIterator[Trees]:
    trees = OverSockets(folder)
    await trees.server.start()
    yield trees
    await trees.stop()


KINDS: dict[str, Kind] = {"memory": in_memory, "socket": over_sockets}
