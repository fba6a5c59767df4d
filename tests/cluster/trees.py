"""The kinds of trees that the promises of `test_tree_promises.py` are kept by, and what they are put through."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Protocol

from oncelog.chaos.life import free_ports
from oncelog.clock import BoottimeClock, Clock, ManualClock
from oncelog.cluster.tree import SESSION_TIMEOUT_MS, Change, PutEphemeral, Tree
from oncelog.cluster.tree_server import TreeServer
from oncelog.cluster.tree_socket import SocketTree
from oncelog.cluster.tree_store import TreeStore
from oncelog.cluster.tree_zookeeper import ZooKeeperTree
from tests.cluster.tree_memory import Doubt, MemorySession, MemoryTree
from tests.cluster.zookeeper import ZooKeeper, running_zookeeper
from tests.log.memory_disk import MemoryDisk

PATIENCE_S = 20
NEVER_S = 1e6
_numbers = count()


class Trees(Protocol):
    """One store and its sessions."""

    timeout_ms: int

    @property
    def clock(self) -> Clock: ...

    def let_pass(self, some_ms: int) -> None:
        """Where time does not pass by itself."""
        ...

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


Accept = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Listen = Callable[[Accept], Awaitable[asyncio.Server]]
Connect = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]
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


class ByHand:
    """Time passes at a word."""

    timeout_ms = SESSION_TIMEOUT_MS

    def __init__(self) -> None:
        self.clock = ManualClock()

    def let_pass(self, some_ms: int) -> None:
        self.clock.advance(some_ms)


class InMemory(ByHand):
    def __init__(self) -> None:
        super().__init__()
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

    def __init__(self, listen: Listen, connect: Connect) -> None:
        self._listen = listen
        self._connect = connect
        self._listener: asyncio.Server | None = None
        self._clients: list[asyncio.StreamWriter] = []
        self._upstream: list[asyncio.StreamWriter] = []
        self._doubtful = b""
        self._is_done = False

    async def start(self) -> None:
        self._listener = await self._listen(self._accept)

    def cut(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        for writer in self._clients:
            writer.transport.abort()
        self._clients.clear()

    def doubt(self, asked: bytes, *, is_done: bool) -> None:
        """The stream ends with the request that has this in it, before or after the server has that."""
        self._doubtful, self._is_done = asked, is_done

    def stop(self) -> None:
        self.cut()
        for writer in self._upstream:
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream_reader, upstream = await self._connect()
        self._clients.append(writer)
        self._upstream.append(upstream)
        await asyncio.gather(self._ask(reader, upstream), self._answer(upstream_reader, writer))

    async def _ask(self, reader: asyncio.StreamReader, upstream: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                is_doubtful = bool(self._doubtful) and self._doubtful in data
                if not is_doubtful or self._is_done:
                    upstream.write(data)
                if is_doubtful:
                    self._doubtful = b""
                    self.cut()
                    return

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                writer.write(data)
        writer.close()


class OverSockets(ByHand):
    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.store = TreeStore.open(MemoryDisk(), "tree", self.clock)
        self.path = str(folder / "tree")
        self.server = TreeServer(self.path, self.store, self.clock, look_s=NEVER_S)
        self._sessions: dict[SocketTree, Proxy] = {}
        self._folder = folder

    async def session(self) -> SocketTree:
        path = str(self._folder / f"p{len(self._sessions)}")
        proxy = Proxy(partial(asyncio.start_unix_server, path=path), partial(asyncio.open_unix_connection, self.path))
        await proxy.start()
        tree = SocketTree(path, self.clock)
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
        self._sessions[tree].doubt(changes[0].path.encode(), is_done=is_done)
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


class InZooKeeper:
    """Its time is real."""

    timeout_ms = 2_000

    def __init__(self, server: ZooKeeper) -> None:
        self.clock = BoottimeClock()
        self._server = server
        self._folder = f"/tests/of-{next(_numbers)}"
        self._sessions: dict[ZooKeeperTree, Proxy] = {}
        self._observer = self._tree(server.port)
        self._observed = Told(self._observer)

    def let_pass(self, some_ms: int) -> None:
        pass

    async def start(self) -> None:
        await self._observer.begin_session()

    def _tree(self, port: int) -> ZooKeeperTree:
        return ZooKeeperTree(f"127.0.0.1:{port}", self._folder, self.clock, session_timeout_ms=self.timeout_ms)

    async def session(self) -> ZooKeeperTree:
        (port,) = free_ports(1)
        proxy = Proxy(
            partial(asyncio.start_server, host="127.0.0.1", port=port),
            partial(asyncio.open_connection, "127.0.0.1", self._server.port),
        )
        await proxy.start()
        tree = self._tree(port)
        self._sessions[tree] = proxy
        await tree.begin_session()
        await tree.change(PutEphemeral(self._mark(tree), b""))
        return tree

    def _mark(self, tree: ZooKeeperTree) -> str:
        return f"/live/mark-{list(self._sessions).index(tree)}"

    async def cut(self, tree: Tree) -> None:
        assert isinstance(tree, ZooKeeperTree)
        self._sessions[tree].cut()
        await turns_until(lambda: not tree.is_connected)

    async def mend(self, tree: Tree) -> None:
        assert isinstance(tree, ZooKeeperTree)
        await self._sessions[tree].start()

    async def expire(self, tree: Tree) -> None:
        assert isinstance(tree, ZooKeeperTree)

        async def is_gone() -> bool:
            return await self._observer.get(self._mark(tree)) is None

        await self._observed.until_seen(is_gone)

    async def doubt(self, tree: Tree, *changes: Change, is_done: bool) -> None:
        assert isinstance(tree, ZooKeeperTree)
        self._sessions[tree].doubt(changes[0].path.encode(), is_done=is_done)
        await tree.change(*changes)

    async def stop(self) -> None:
        for tree, proxy in self._sessions.items():
            await tree.close()
            proxy.stop()
        await self._observer.close()


@asynccontextmanager
async def in_zookeeper(folder: Path) -> AsyncIterator[Trees]:
    trees = InZooKeeper(running_zookeeper())
    await trees.start()
    yield trees
    await trees.stop()


KINDS: dict[str, Kind] = {"memory": in_memory, "socket": over_sockets, "zookeeper": in_zookeeper}
