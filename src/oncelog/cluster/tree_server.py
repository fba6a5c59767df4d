"""Serves a tree to the processes of one machine, on a Unix socket in a folder that only their user may enter.

A session that says nothing for its timeout is over; whatever it asks counts as a word. A stream that ends at its
client's side is the end of its process (or of its session, by `close`): then nobody is there who could be sure of it,
and what it owns is gone at once. After anything else, a frame that cannot be read or another start of this server, the
client may still be sure of its session, so that goes on, and it can come back to it with the session's number.

A process that forks must not leave the socket to its child: while that lives, the stream does not end.
"""

import asyncio
import logging
import os
import secrets
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from oncelog.clock import Clock
from oncelog.cluster.tree import (
    MOST_SESSIONS,
    SESSION_TIMEOUT_MS,
    Outdated,
    Refused,
    TreeError,
    check_changes,
    check_folder,
    check_path,
)
from oncelog.cluster.tree_frames import (
    MOST_REQUEST_BYTES,
    BadFrame,
    Frame,
    decode_changes,
    encode,
    encode_nodes,
    read,
)
from oncelog.cluster.tree_nodes import NOBODY, Writes
from oncelog.cluster.tree_store import TreeStore

logger = logging.getLogger(__name__)

MOST_ASKED = 1_024  # changes of a connection that are not answered; more are not read
BEHIND_BYTES = 2**20  # of what a client does not take: it is told once that anything may have changed


class _Session:
    def __init__(self, now_ms: int) -> None:
        self.heard_ms = now_ms
        self.is_suspect = False
        self.connection: _Connection | None = None

    def heard(self, now_ms: int) -> None:
        self.heard_ms = now_ms
        self.is_suspect = False


class TreeServer:
    def __init__(
        self,
        path: str,
        store: TreeStore,
        clock: Clock,
        *,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        look_s: float = 0.2,
    ) -> None:
        self._path = path
        self.store = store
        self.clock = clock
        self.session_timeout_ms = session_timeout_ms
        self._look_s = look_s
        now_ms = clock.now().monotonic_ms
        self._sessions = {number: _Session(now_ms) for number in store.sessions}
        self._left: set[int] = set()  # sessions that are over, but the disk did not take that
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        store.on_written = self._tell

    async def start(self) -> None:
        self._server = await asyncio.start_unix_server(self._accept, self._path)
        self.begin(self._look_often())

    async def stop(self) -> None:
        """Sessions go on: their clients may come back to another start. The store is its owner's."""
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with suppress(FileNotFoundError):
            os.unlink(self._path)

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Sessions

    def is_live(self, number: int) -> bool:
        return number in self._sessions

    def open_session(self, number: int, connection: "_Connection") -> int:
        """The session's number, or NOBODY where it is over."""
        now_ms = self.clock.now().monotonic_ms
        if number == NOBODY:
            if len(self._sessions) >= MOST_SESSIONS:
                raise Refused(f"more than {MOST_SESSIONS} sessions")
            number = secrets.randbits(63) | 1
            self._sessions[number] = _Session(now_ms)
        session = self._sessions.get(number)
        if session is None:
            return NOBODY
        session.heard(now_ms)
        if session.connection is not None:
            session.connection.drop()
        session.connection = connection
        return number

    def heard(self, number: int) -> None:
        if number in self._sessions:
            self._sessions[number].heard(self.clock.now().monotonic_ms)

    def end(self, number: int) -> "asyncio.Future[None]":
        """It is over from here on; done when its nodes are gone."""
        self._sessions.pop(number, None)
        self._left.discard(number)
        over = self.store.end(number)
        over.add_done_callback(lambda done: self._left.add(number) if done.exception() else None)
        return over

    def look(self) -> None:
        """Ends what was not heard of. Only at the second look: where this process itself stood still, what was sent to
        it meanwhile is read first."""
        for number in list(self._left):
            self.end(number)
        now_ms = self.clock.now().monotonic_ms
        for number, session in list(self._sessions.items()):
            if now_ms - session.heard_ms < self.session_timeout_ms:
                continue
            if not session.is_suspect:
                session.is_suspect = True
                continue
            logger.warning("a broker was not heard of for %d ms: its session is over", now_ms - session.heard_ms)
            self.end(number)
            if session.connection is not None:
                session.connection.drop()

    async def _look_often(self) -> None:
        while True:
            await asyncio.sleep(self._look_s)
            self.look()

    def _tell(self, writes: Writes) -> None:
        for session in self._sessions.values():
            if session.connection is not None:
                session.connection.tell(writes)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.begin(_Connection(self, reader, writer).serve())


class _Connection:
    def __init__(self, server: TreeServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._server = server
        self._store = server.store
        self._reader = reader
        self._writer = writer
        self._session = NOBODY
        self._room = asyncio.Semaphore(MOST_ASKED)
        self._is_behind = False
        self._is_dropped = False

    async def serve(self) -> None:
        try:
            if not await self._begin():
                return
            while True:
                await self._answer(await read(self._reader, MOST_REQUEST_BYTES))
                await self._writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            if not self._is_dropped and self._server.is_live(self._session):
                self._server.end(self._session)
        except (BadFrame, ValueError) as error:
            logger.error("a connection to the tree is closed: %s", error)
        finally:
            self._writer.close()

    async def _begin(self) -> bool:
        frame = await read(self._reader, MOST_REQUEST_BYTES)
        match frame.head:
            case ["hello", int(number)]:
                pass
            case _:
                raise BadFrame("no greeting")
        try:
            self._session = self._server.open_session(number, self)
        except Refused as refusal:
            self._write(encode(("refused", str(refusal))))
            return False
        stands = self._session != NOBODY
        self._write(encode(("welcome", self._session, self._server.session_timeout_ms) if stands else ("over",)))
        return stands

    async def _answer(self, frame: Frame) -> None:
        self._server.heard(self._session)
        match frame.head:
            case ["beat", int(number)]:
                self._write(encode(("done", number)))
            case ["change", int(number), int(deadline_ms), list(heads)]:
                await self._change(number, deadline_ms, heads, frame.values)
            case ["get", int(number), str(path)]:
                check_path(path)
                stored = self._store.nodes.get(path)
                self._write(encode_nodes(number, {} if stored is None else {path: stored.node}))
            case ["children", int(number), str(folder)]:
                self._write(encode_nodes(number, self._store.nodes.children(check_folder(folder))))
            case ["close", int(number)]:
                self._server.end(self._session).add_done_callback(lambda over: self._write(_outcome(number, over)))
            case _:
                raise BadFrame(f"nothing that is known: {frame.head!r:.100}")

    async def _change(self, number: int, deadline_ms: int, heads: list[Any], values: bytes) -> None:
        changes = decode_changes(heads, values)
        check_changes(changes)
        session, server = self._session, self._server

        def may_be_done() -> bool:
            return server.is_live(session) and server.clock.now().monotonic_ms < deadline_ms

        def answered(answer: "asyncio.Future[None]") -> None:
            self._room.release()
            self._write(_outcome(number, answer))

        await self._room.acquire()
        self._store.change(changes, session, may_be_done).add_done_callback(answered)

    # What it is told unasked

    def tell(self, writes: Writes) -> None:
        if self._is_behind or self._is_dropped:
            return
        if self._writer.transport.get_write_buffer_size() > BEHIND_BYTES:
            self._is_behind = True
            self._server.begin(self._catch_up())
            return
        self._write(b"".join(encode(("told", path)) for path in writes))

    async def _catch_up(self) -> None:
        with suppress(ConnectionError):
            await self._writer.drain()
            self._is_behind = False
            self._write(encode(("told", "")))

    def drop(self) -> None:
        """Its session goes on elsewhere, or is over, as its client learns when it comes back. Nothing waits until a
        client that stands still has taken what is on its way to it."""
        self._is_dropped = True
        self._writer.transport.abort()

    def _write(self, data: bytes) -> None:
        if not self._writer.is_closing():
            self._writer.write(data)


def _outcome(number: int, answer: "asyncio.Future[None]") -> bytes:
    failure = answer.exception()
    match failure:
        case None:
            return encode(("done", number))
        case Outdated():
            return encode(("outdated", number, failure.path))
        case Refused():
            return encode(("refused", number, str(failure)))
        case TreeError():
            return encode(("unsure", number, str(failure)))
        case _:
            raise failure
