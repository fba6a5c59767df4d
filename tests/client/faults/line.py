"""A long line to a server: whatever goes over it arrives so much later, in order, at any rate."""

import asyncio
from collections import deque
from types import TracebackType
from typing import Self

from oncelog.chaos.life import free_ports
from oncelog.client.net.loop_thread import LoopThread

CHUNK_BYTES = 1 << 18


class Line:
    """The port is known before the server is, so that the server can advertise it."""

    def __init__(self, server_port: int, delay_ms: float) -> None:
        (self.port,) = free_ports(1)
        self._server_port = server_port
        self._delay_s = delay_ms / 1000
        self._thread: LoopThread | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def __enter__(self) -> Self:
        self._thread = LoopThread("line")
        self._thread.run(self._listen())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._thread is not None
        self._thread.run(self._end())
        self._thread.stop()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port, limit=CHUNK_BYTES)

    async def _end(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._server_port, limit=CHUNK_BYTES)
        except OSError:
            writer.transport.abort()
            return
        for way in (self._carry(reader, far_writer), self._carry(far_reader, writer)):
            task = asyncio.ensure_future(way)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        under_way: deque[tuple[float, bytes]] = deque()
        came = asyncio.Event()

        async def deliver() -> None:
            while True:
                while not under_way:
                    came.clear()
                    await came.wait()
                due_s, chunk = under_way.popleft()
                await asyncio.sleep(max(0.0, due_s - loop.time()))
                writer.write(chunk)
                if not chunk:
                    writer.close()
                    return

        delivery = asyncio.ensure_future(deliver())
        try:
            while True:
                try:
                    chunk = await reader.read(CHUNK_BYTES)
                except OSError:
                    chunk = b""  # the other end goes away when it gets nothing
                under_way.append((loop.time() + self._delay_s, chunk))
                came.set()
                if not chunk:
                    break
            await delivery
        finally:
            delivery.cancel()
