"""The links that a partition of the network cuts: those by which a broker is reached, and by which it reaches others.

Each broker is reached at a port of its own here, by clients and by other brokers, and reaches the tree by a socket of
its own. Bytes pass as they are. A link that is cut passes nothing and tells nobody; once it is whole again what was
sent arrives, as TCP would send it again. Followers say who they are in the first request of a connection.
"""

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Coroutine
from typing import Any, Final

from oncelog.chaos.life import HOST
from oncelog.client.net.loop_thread import LoopThread

PIECE_BYTES: Final = 64 * 1024
NAME_AT: Final = 14  # in a request, after its length, key, version, correlation id and the name's length
FOLLOWER: Final = b"broker-"
TREE: Final = 0
CLIENT: Final = -1


class Relay:
    """`cut` ends nothing; `mend` lets everything pass again."""

    def __init__(self) -> None:
        self._thread = LoopThread("oncelog-relay")
        self._folder = tempfile.mkdtemp(prefix="oncelog-relay-")
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._cut: Callable[[int, int], bool] = lambda source, target: False
        self._mended = asyncio.Event()

    def close(self) -> None:
        try:
            self._thread.run(self._close())
        finally:
            self._thread.stop()
            shutil.rmtree(self._folder, ignore_errors=True)

    def reach_broker(self, broker: int, port: int) -> str:
        """The address at which others reach this broker."""
        return self._thread.run(self._listen_for_broker(broker, port))

    def reach_tree(self, broker: int, path: str) -> str:
        """The path at which this broker reaches the tree."""
        return self._thread.run(self._listen_for_tree(broker, path))

    def cut(self, broker: int, *, are_clients_cut: bool) -> None:
        """Cut the connections between this broker and the others, and the tree."""

        def is_cut(source: int, target: int) -> bool:
            return broker in (source, target) and (are_clients_cut or source != CLIENT)

        self._thread.run(self._set(is_cut))

    def mend(self) -> None:
        self._thread.run(self._set(lambda source, target: False))

    # On its loop

    async def _set(self, is_cut: Callable[[int, int], bool]) -> None:
        self._cut = is_cut
        self._mended.set()
        self._mended = asyncio.Event()

    async def _listen_for_broker(self, broker: int, port: int) -> str:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            first = await _first_of(reader)
            await self._serve(
                source_of(first), broker, first, (reader, writer), lambda: asyncio.open_connection(HOST, port)
            )

        server = await asyncio.start_server(accept, HOST, 0)
        self._servers.append(server)
        return f"{HOST}:{server.sockets[0].getsockname()[1]}"

    async def _listen_for_tree(self, broker: int, path: str) -> str:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._serve(broker, TREE, b"", (reader, writer), lambda: asyncio.open_unix_connection(path))

        own = f"{self._folder}/{broker}"
        self._servers.append(await asyncio.start_unix_server(accept, own))
        return own

    async def _serve(
        self,
        source: int,
        target: int,
        first: bytes,
        here: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        connect: Callable[[], Coroutine[Any, Any, tuple[asyncio.StreamReader, asyncio.StreamWriter]]],
    ) -> None:
        reader, writer = here
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            there_reader, there_writer = await connect()
        except OSError:
            writer.transport.abort()
            self._tasks.discard(task)
            return
        pumps = [
            asyncio.ensure_future(self._pump(source, target, first, reader, there_writer)),
            asyncio.ensure_future(self._pump(source, target, b"", there_reader, writer)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            there_writer.close()
            writer.close()
            self._tasks.discard(task)

    async def _pump(
        self, source: int, target: int, data: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Pump bytes. While a connection is cut, its end is not told either."""
        try:
            while True:
                while self._cut(source, target):
                    await self._mended.wait()
                if data:
                    writer.write(data)
                    await writer.drain()
                data = await reader.read(PIECE_BYTES)
                while self._cut(source, target):
                    await self._mended.wait()
                if not data:
                    return
        except OSError:
            return

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _first_of(reader: asyncio.StreamReader) -> bytes:
    """The first bytes: as much as says who asks."""
    data = b""
    while len(data) < NAME_AT or len(data) < NAME_AT + int.from_bytes(data[NAME_AT - 2 : NAME_AT], "big", signed=True):
        more = await reader.read(PIECE_BYTES)
        if not more:
            break
        data += more
    return data


def source_of(first: bytes) -> int:
    """The broker that begins like this, or CLIENT."""
    size = int.from_bytes(first[NAME_AT - 2 : NAME_AT], "big", signed=True)
    name = first[NAME_AT : NAME_AT + max(0, size)]
    number = name.removeprefix(FOLLOWER)
    return int(number) if name.startswith(FOLLOWER) and number.isdigit() else CLIENT
