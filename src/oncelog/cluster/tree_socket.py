"""A tree that another process of this machine serves (`tree_server.py`)."""

import asyncio
import logging
from collections.abc import Callable
from itertools import count

from oncelog.clock import Clock
from oncelog.cluster.tree import (
    SESSION_TIMEOUT_MS,
    WITHIN_S,
    Change,
    Node,
    Outdated,
    Refused,
    Unsure,
    check_changes,
    check_folder,
    check_path,
    in_time,
)
from oncelog.cluster.tree_frames import (
    MOST_ANSWER_BYTES,
    BadFrame,
    Frame,
    decode_nodes,
    encode,
    encode_changes,
    read,
)
from oncelog.cluster.tree_nodes import NOBODY

logger = logging.getLogger(__name__)

AGAIN_S = 0.1  # after a connection that could not be made


class SocketTree:
    """A `Tree`. Its clock must be that of the server: the monotonic clock of a machine is."""

    def __init__(self, path: str, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._session = NOBODY
        self._timeout_ms = SESSION_TIMEOUT_MS
        self._sure_until_ms = 0
        self._writer: asyncio.StreamWriter | None = None
        self._numbers = count(1)
        self._asked: dict[int, asyncio.Future[Frame]] = {}
        self._watchers: list[Callable[[str], None]] = []
        self._losers: list[Callable[[], None]] = []
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def is_connected(self) -> bool:
        return self._writer is not None

    def sure_until_ms(self) -> int:
        return self._sure_until_ms

    def watch(self, told: Callable[[str], None]) -> None:
        self._watchers.append(told)

    def on_lost(self, lost: Callable[[], None]) -> None:
        self._losers.append(lost)

    async def begin_session(self) -> None:
        if self._session != NOBODY:
            return
        await self._stop()
        reader = await self._connect()
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._live(reader)), loop.create_task(self._beat())]

    async def change(self, *changes: Change, within_s: float = WITHIN_S) -> None:
        check_changes(changes)
        deadline_ms = self._clock.now().monotonic_ms + int(within_s * 1000)
        async with in_time(within_s):
            await self._ask(lambda number: encode_changes(number, deadline_ms, changes))

    async def get(self, path: str, *, within_s: float = WITHIN_S) -> Node | None:
        check_path(path)
        return (await self._nodes("get", path, within_s)).get(path)

    async def children(self, folder: str, *, within_s: float = WITHIN_S) -> dict[str, Node]:
        check_folder(folder)
        return await self._nodes("children", folder, within_s)

    async def _nodes(self, kind: str, path: str, within_s: float) -> dict[str, Node]:
        async with in_time(within_s):
            frame = await self._ask(lambda number: encode((kind, number, path)))
        return decode_nodes(frame.head[2], frame.values)

    async def close(self) -> None:
        self._sure_until_ms = 0  # before anybody else can know that it is over
        try:
            async with in_time(WITHIN_S):
                await self._ask(lambda number: encode(("close", number)))
        except Unsure as failure:
            logger.info("a session of the tree is left to end by itself: %s", failure)
        await self._stop()
        self._session = NOBODY

    async def _stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        self._disconnected()

    # The connection

    async def _connect(self) -> asyncio.StreamReader:
        """Connect, until there is a session that goes on or another one. Raises `Refused`, and `_Over`."""
        while True:
            try:
                reader, writer = await asyncio.open_unix_connection(self._path)
                try:
                    await self._greet(reader, writer)
                    return reader
                finally:
                    if self._writer is not writer:
                        writer.close()
            except (OSError, asyncio.IncompleteReadError, BadFrame) as failure:
                self._failed(failure)
                await asyncio.sleep(AGAIN_S)

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sent_ms = self._clock.now().monotonic_ms
        writer.write(encode(("hello", self._session)))
        head = (await read(reader, MOST_ANSWER_BYTES)).head
        match head:
            case ["welcome", int(session), int(timeout_ms)]:
                self._session, self._timeout_ms = session, timeout_ms
                self._sure_until_ms = sent_ms + timeout_ms
                self._writer = writer
                self._tell("")
            case ["over"]:
                raise _Over
            case ["refused", str(why)]:
                raise Refused(why)
            case _:
                raise BadFrame(f"no welcome: {head!r:.100}")

    async def _live(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                try:
                    while True:
                        self._received(await read(reader, MOST_ANSWER_BYTES))
                except (OSError, asyncio.IncompleteReadError, BadFrame) as failure:
                    self._failed(failure)
                self._disconnected()
                reader = await self._connect()
        except _Over:
            self._disconnected()
            self._session, self._sure_until_ms = NOBODY, 0
            for lost in self._losers:
                asyncio.get_running_loop().call_soon(lost)

    def _failed(self, failure: Exception) -> None:
        if isinstance(failure, BadFrame):
            self._sure_until_ms = 0  # a stream that ends at this side ends its session
        logger.log(logging.DEBUG if self._writer is None else logging.WARNING, "no connection to the tree: %s", failure)

    def _disconnected(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
        asked, self._asked = self._asked, {}
        for future in asked.values():
            if not future.done():
                future.set_exception(Unsure("the connection was lost before the answer came"))

    def _received(self, frame: Frame) -> None:
        match frame.head:
            case ["told", str(path)]:
                self._tell(path)
            case [str(_), int(number), *_]:
                future = self._asked.pop(number, None)
                if future is not None and not future.done():
                    future.set_result(frame)
            case _:
                raise BadFrame(f"nothing that is known: {frame.head!r:.100}")

    def _tell(self, path: str) -> None:
        for told in self._watchers:
            asyncio.get_running_loop().call_soon(told, path)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._timeout_ms / 3000)
            if self._writer is None:
                continue
            sent_ms = self._clock.now().monotonic_ms
            try:
                async with in_time(self._timeout_ms / 1000):
                    await self._ask(lambda number: encode(("beat", number)))
            except Unsure:
                continue
            self._sure_until_ms = max(self._sure_until_ms, sent_ms + self._timeout_ms)

    async def _ask(self, encoded: Callable[[int], bytes]) -> Frame:
        # uvloop raises a RuntimeError on a connection that broke, until its reader has noticed that.
        if self._writer is None or self._writer.is_closing():
            raise Unsure("there is no connection to the tree; nothing was sent")
        number = next(self._numbers)
        future: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        self._asked[number] = future
        try:
            self._writer.write(encoded(number))
            frame = await future
        finally:
            self._asked.pop(number, None)
        match frame.head:
            case ["outdated", _, str(path)]:
                raise Outdated(path)
            case ["refused", _, str(why)]:
                raise Refused(why)
            case ["unsure", _, str(why)]:
                raise Unsure(why)
        return frame


class _Over(Exception):
    """The session is."""
