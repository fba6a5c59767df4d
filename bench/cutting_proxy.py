"""A TCP proxy that cuts connections, driven by a seed.

Each connection may carry a random number of bytes, and is then cut in one of two ways: in the middle of a request, or
after a whole request has reached the server and before its answer has reached the client. The second is the one that
makes duplicates: the client cannot know, and must send again.
"""

import asyncio
import threading
from dataclasses import dataclass
from random import Random
from types import TracebackType
from typing import Self

CHUNK_BYTES = 64 * 1024
START_SECONDS = 10


@dataclass(slots=True)
class Fate:
    """What is decided about a connection when it is made."""

    left_bytes: int
    loses_answer: bool


class CuttingProxy:
    """Runs in a thread of its own. `connect_to` names the server; until then nothing can get through."""

    def __init__(self, *, seed: int, carries_bytes: tuple[int, int]) -> None:
        self.cuts = 0
        self.answers_lost = 0
        self.cutting = True
        self.port = 0
        self.carries_bytes = carries_bytes  # the least and the most; may be changed for the connections to come
        self._random = Random(seed)
        self._target: tuple[str, int] | None = None
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._stopped = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="cutting-proxy", daemon=True)

    def connect_to(self, host: str, port: int) -> None:
        self._target = (host, port)

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._started.wait(START_SECONDS):
            raise RuntimeError("the proxy did not start")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._started.set()
        await self._stopped.wait()
        server.close()

    async def _carry(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        if self._target is None:
            to_client.transport.abort()
            return
        try:
            from_server, to_server = await asyncio.open_connection(*self._target)
        except OSError:
            to_client.transport.abort()
            return
        fate = Fate(self._random.randint(*self.carries_bytes), self._random.random() < 0.5)
        pumps = [
            asyncio.create_task(self._requests(from_client, to_server, fate)),
            asyncio.create_task(self._answers(from_server, to_client, fate)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            return  # the proxy is being closed; asyncio.start_server would print the cancellation as an error
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            to_client.transport.abort()
            to_server.transport.abort()

    async def _requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, fate: Fate) -> None:
        while chunk := await reader.read(CHUNK_BYTES):
            if self.cutting and not fate.loses_answer and len(chunk) > fate.left_bytes:
                writer.write(chunk[: fate.left_bytes])
                await writer.drain()
                self.cuts += 1
                return
            fate.left_bytes -= len(chunk)
            writer.write(chunk)
            await writer.drain()

    async def _answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, fate: Fate) -> None:
        while chunk := await reader.read(CHUNK_BYTES):
            if self.cutting and fate.left_bytes < len(chunk):
                self.cuts += 1
                self.answers_lost += fate.loses_answer
                return
            fate.left_bytes -= len(chunk)
            writer.write(chunk)
            await writer.drain()
