"""A tree in ZooKeeper, by kazoo (extra `zookeeper`). All that is known of kazoo stands here.

kazoo works in threads of its own; whatever it says comes to the event loop by `call_soon_threadsafe`. Some of what it
does by itself would not do here:

- It keeps what is asked while there is no connection, and sends it later. So nothing is asked then, and where the
  connection was lost in that very moment, its queue is emptied.
- Its own pings go on while our loop hangs. So a thread ends a session whose loop was silent for the timeout; and what a
  broker is sure of rests on heartbeats that the loop itself has sent.
- It begins another session where one has expired. So each request looks whose session it would be.
- It sends from a queue. What was asked before the connection stood still may leave until kazoo notices that, after two
  thirds of the timeout; the versions that it names are what makes that harmless.
- It does not say how long a session lasts that the server has granted. So the server is asked for one before.

It knows no recursive watches: each folder and each node has its own, set anew by whatever tells that it fired.
"""

import asyncio
import logging
import ssl
import struct
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from kazoo.client import KazooClient, KazooState, TransactionRequest
from kazoo.exceptions import (
    BadVersionError,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    RolledBackError,
    RuntimeInconsistency,
)
from kazoo.protocol.states import EventType, WatchedEvent

from oncelog.clock import Clock
from oncelog.cluster.tree import (
    ABSENT,
    FOLDERS,
    SESSION_TIMEOUT_MS,
    WITHIN_S,
    Change,
    Check,
    Node,
    Outdated,
    Put,
    PutEphemeral,
    Refused,
    Remove,
    Unsure,
    check_changes,
    check_folder,
    check_path,
    in_time,
)
from oncelog.cluster.zookeeper_security import OPEN, ZooKeeperSecurity

logger = logging.getLogger(__name__)
kazoo_logger = logging.getLogger(f"{__name__}.kazoo")

MOST_SAID = 50
NOT_WATCHED = frozenset({"gone"})  # each change of a topic makes and removes a node there, of which none has to hear
AGAIN_S = 0.1  # after a connection that could not be made
# kazoo varies each pause by chance and the next one from there: in the long run they would come to nothing.
RETRY: Final[dict[str, Any]] = {"max_tries": -1, "delay": AGAIN_S, "backoff": 1, "max_jitter": 0.0}
BEGIN_S = 20.0  # then it is tried with another client
GREETING_S = 2.0  # then another server is asked
CONNECT = struct.Struct(">iqiqi16s?")  # what the protocol of ZooKeeper begins with
CONNECTED = struct.Struct(">iiq")
CLOSE = struct.pack(">iii", 8, 1, -11)

_LOST = "the connection was lost before the answer came"
_NONE = "there is no connection to the tree; nothing was sent"


class SaidOnce(logging.Filter):
    """A filter: kazoo's line about each try to connect, ten times a second, is let through once until there is a
    connection."""

    def __init__(self) -> None:
        super().__init__()
        self._said: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if "established" in text or len(self._said) == MOST_SAID:
            self._said.clear()
        is_new = text not in self._said
        self._said.add(text)
        return is_new


kazoo_logger.addFilter(SaidOnce())


class ZooKeeperTree:
    """A `Tree`. `hosts` is "host:port,host:port", `folder` where the tree stands there, such as "/oncelog".

    The machine may sleep while ZooKeeper's goes on, so the clock's monotonic time must go on in sleep.
    """

    def __init__(
        self,
        hosts: str,
        folder: str,
        clock: Clock,
        *,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        security: ZooKeeperSecurity = OPEN,
    ) -> None:
        self.hosts = hosts
        self.security = security
        self.folder = folder
        self.clock = clock
        self.asked_timeout_ms = session_timeout_ms
        self._session: _Session | None = None
        self._watchers: list[Callable[[str], None]] = []
        self._losers: list[Callable[[], None]] = []

    @property
    def is_connected(self) -> bool:
        return self._session is not None and self._session.is_connected

    def sure_until_ms(self) -> int:
        return 0 if self._session is None else self._session.sure_until_ms

    def watch(self, told: Callable[[str], None]) -> None:
        self._watchers.append(told)

    def on_lost(self, lost: Callable[[], None]) -> None:
        self._losers.append(lost)

    async def begin_session(self) -> None:
        while self._session is None:
            timeout_ms = await _granted_ms(self.hosts, self.asked_timeout_ms, self.security)
            session = _Session(self, timeout_ms)
            try:
                await session.begin()
            except Unsure:
                await session.end()
                await asyncio.sleep(AGAIN_S)
                continue
            except BaseException:
                await session.end()
                raise
            self._session = session
            session.look_at_everything()

    async def change(self, *changes: Change, within_s: float = WITHIN_S) -> None:
        check_changes(changes)
        async with in_time(within_s):
            await self._standing().change(changes)

    async def get(self, path: str, *, within_s: float = WITHIN_S) -> Node | None:
        check_path(path)
        async with in_time(within_s):
            return await self._standing().get(path)

    async def children(self, folder: str, *, within_s: float = WITHIN_S) -> dict[str, Node]:
        check_folder(folder)
        async with in_time(within_s):
            session = self._standing()
            names = sorted(await session.names(folder))
            nodes = await asyncio.gather(*(session.get(f"{folder}/{name}") for name in names))
        return {name: node for name, node in zip(names, nodes, strict=True) if node is not None}

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.end()

    def _standing(self) -> "_Session":
        if self._session is None:
            raise Unsure(_NONE)
        return self._session

    # What its session says

    def tell(self, session: "_Session", path: str) -> None:
        if session is self._session:
            for told in self._watchers:
                asyncio.get_running_loop().call_soon(told, path)

    def lose(self, session: "_Session") -> None:
        if session is self._session:
            self._session = None
            for lost in self._losers:
                asyncio.get_running_loop().call_soon(lost)


class _Session:
    """One of ZooKeeper's, with a client of its own."""

    def __init__(self, tree: ZooKeeperTree, timeout_ms: int) -> None:
        self._tree = tree
        self._clock = tree.clock
        self._timeout_ms = timeout_ms
        self._loop = asyncio.get_running_loop()
        self._number: int | None = None
        self._was_connected = self._loop.create_future()
        self._ended = threading.Event()
        self._seen: set[str] = set()  # paths that have a watch, of nodes that are there or were
        self._heart: asyncio.Task[None] | None = None
        self._stopped: asyncio.Future[None] | None = None
        self._stopping = threading.Lock()
        self._sent_ms = self._clock.now().monotonic_ms
        self._is_lost = False
        self.is_connected = False
        self.sure_until_ms = 0
        self._client = KazooClient(
            hosts=tree.hosts,
            timeout=timeout_ms / 1000,
            connection_retry=RETRY | {"interrupt": self._ended.is_set},
            logger=kazoo_logger,
            **tree.security.options(),
        )
        self._client.add_listener(self._on_state)

    async def begin(self) -> None:
        self._client.start_async()
        async with in_time(BEGIN_S):
            await self._was_connected
            await self._beat_once(self._make_folders)
        if self._is_lost:  # in that very moment, of which nobody would be told
            raise Unsure(_LOST)
        self._heart = self._loop.create_task(self._beat())
        threading.Thread(target=self._watch_the_loop, name="oncelog-tree-watchdog", daemon=True).start()

    async def end(self) -> None:
        """End the session, also where it has not begun, or was lost. Its nodes are gone then, if the server could be
        asked."""
        self._is_lost = True
        self.is_connected, self.sure_until_ms = False, 0
        if self._heart is not None:
            self._heart.cancel()
        if self._stopped is None:  # kazoo cannot be stopped twice at a time
            self._stopped = self._loop.run_in_executor(None, self._stop)
        await asyncio.shield(self._stopped)

    def _stop(self) -> None:
        self._ended.set()
        with self._stopping:  # a second caller waits until it is over
            with suppress(KazooException, OSError, AttributeError):  # AttributeError: where it never had a connection
                self._client.stop()
            with suppress(Exception):  # kazoo raises one of no other kind where its thread still waits for a server
                self._client.close()

    # Its life

    def _on_state(self, state: str) -> None:
        """The connection's state has changed; called in a thread of kazoo's."""
        if not self._ended.is_set():
            self._loop.call_soon_threadsafe(self._is_now, state)

    def _is_now(self, state: str) -> None:
        number = self._current()
        if state == KazooState.LOST:
            self._lose()
        elif state == KazooState.SUSPENDED or number is None:
            self.is_connected = False
        elif self._number is None:
            self._number = number
            self.is_connected = True
            self._was_connected.set_result(None)
        elif number != self._number:
            self._lose()
        else:
            self.is_connected = True
            self.look_at_everything()

    def _current(self) -> int | None:
        """The session that a request made now goes out in."""
        known = self._client.client_id
        return None if known is None else known[0]

    def _lose(self) -> None:
        if not self._is_lost:
            self._is_lost = True
            self._ended.set()
            self._tree.lose(self)
            self._loop.create_task(self.end())

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._timeout_ms / 3000)
            with suppress(Unsure):
                async with in_time(self._timeout_ms / 1000):
                    await self._beat_once(partial(self._ask, self._client.exists_async, self._tree.folder))

    async def _beat_once(self, ask: Callable[[], Any]) -> None:
        sent_ms = self._sent_ms = self._clock.now().monotonic_ms
        await ask()
        self.sure_until_ms = max(self.sure_until_ms, sent_ms + self._timeout_ms)

    def _watch_the_loop(self) -> None:
        """Watch the loop, in a thread of its own. The broker is sure of nothing any more by the time that this acts."""
        while not self._ended.wait(self._timeout_ms / 3000):
            if self._clock.now().monotonic_ms > self._sent_ms + self._timeout_ms:
                self._loop.call_soon_threadsafe(self._lose)
                self._stop()

    # Asking

    async def _ask(self, ask: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        if not self.is_connected or self._current() != self._number:
            raise Unsure(_NONE)
        answer: asyncio.Future[Any] = self._loop.create_future()
        asked = ask(*arguments, **options)
        if self._current() != self._number:
            self._client._queue.clear()
            raise Unsure(_LOST)
        asked.rawlink(lambda result: self._loop.call_soon_threadsafe(_set, answer, result))
        try:
            return await answer
        except (NoNodeError, NodeExistsError, BadVersionError):
            raise
        except NoAuthError:
            raise Refused(f"ZooKeeper does not let this user do that at {arguments[0] if arguments else '?'}") from None
        except KazooException as failure:
            raise Unsure(f"{_LOST}: {failure!r}") from None

    async def _make_folders(self) -> None:
        parts = self._tree.folder.strip("/").split("/")
        paths = ["/" + "/".join(parts[: end + 1]) for end in range(len(parts))]
        paths += [f"{self._tree.folder}/{name}" for name in sorted(FOLDERS)]
        asked = (self._ask(self._client.create_async, path) for path in paths)
        made = zip(paths, await asyncio.gather(*asked, return_exceptions=True), strict=True)
        for path, failure in made:
            # Who may not make it is told so also where it is there already.
            is_there = isinstance(failure, Refused) and await self._ask(self._client.exists_async, path)
            if isinstance(failure, BaseException) and not isinstance(failure, NodeExistsError) and not is_there:
                raise failure

    async def get(self, path: str) -> Node | None:
        try:
            value, stat = await self._ask(self._client.get_async, self._tree.folder + path)
        except NoNodeError:
            return None
        return Node(value, stat.version)

    async def names(self, folder: str) -> list[str]:
        found: list[str] = await self._ask(self._client.get_children_async, self._tree.folder + folder)
        return found

    async def change(self, changes: Sequence[Change]) -> None:
        transaction = self._client.transaction()
        for change in changes:
            _add(transaction, self._tree.folder + change.path, change)
        for change, result in zip(changes, await self._ask(transaction.commit_async), strict=True):
            if isinstance(result, BadVersionError | NoNodeError | NodeExistsError):
                raise Outdated(change.path)
            if isinstance(result, Exception) and not isinstance(result, RolledBackError | RuntimeInconsistency):
                raise Refused(f"ZooKeeper refuses to change {change.path}: {result!r}")

    # Watches

    def look_at_everything(self) -> None:
        """Watches are asked for before anybody is told, so what is read behind that is as new as they are."""
        for path in self._seen:
            self._look_at(path, is_told=False)
        for folder in ("", *sorted(FOLDERS - NOT_WATCHED)):
            self._list(folder)
        self._tree.tell(self, "")

    def _on_event(self, event: WatchedEvent) -> None:
        """A watch has fired; called in a thread of kazoo's."""
        if event.type != EventType.NONE and not self._ended.is_set():
            self._loop.call_soon_threadsafe(self._has_fired, event.type, event.path.removeprefix(self._tree.folder))

    def _has_fired(self, kind: str, path: str) -> None:
        if kind == EventType.CHILD:
            self._list(path[1:])
        else:
            self._look_at(path)

    def _look_at(self, path: str, *, is_told: bool = True) -> None:
        """Look by `exists`: that leaves a watch also where nothing is, for when it is made again."""
        self._seen.add(path)
        self._begin(self._looking_at(path, is_told))

    async def _looking_at(self, path: str, is_told: bool) -> None:
        await self._ask(self._client.exists_async, self._tree.folder + path, watch=self._on_event)
        if is_told:
            self._tree.tell(self, path)

    def _list(self, folder: str) -> None:
        self._begin(self._listing(folder))

    async def _listing(self, folder: str) -> None:
        place = f"/{folder}" if folder else ""
        names = await self._ask(self._client.get_children_async, self._tree.folder + place, watch=self._on_event)
        for name in names:
            if f"{place}/{name}" not in self._seen and (folder or name not in FOLDERS):
                self._look_at(f"{place}/{name}")

    def _begin(self, work: Any) -> None:
        task = self._loop.create_task(work)
        task.add_done_callback(_without_answer)


def _set(answer: "asyncio.Future[Any]", result: Any) -> None:
    if answer.done():
        return
    if result.exception is None:
        answer.set_result(result.value)
    else:
        answer.set_exception(result.exception)


def _without_answer(task: "asyncio.Task[None]") -> None:
    """All is looked at again once there is a connection."""
    if not task.cancelled() and task.exception() is not None and not isinstance(task.exception(), Unsure):
        task.result()


def _add(transaction: TransactionRequest, path: str, change: Change) -> None:
    match change:
        case Check():
            transaction.check(path, change.version)
        case Put(version=version) if version == ABSENT:
            transaction.create(path, change.value)
        case Put():
            transaction.set_data(path, change.value, change.version)
        case PutEphemeral():
            transaction.create(path, change.value, ephemeral=True)
        case Remove():
            transaction.delete(path, change.version)


async def _granted_ms(hosts: str, asked_ms: int, security: ZooKeeperSecurity) -> int:
    """The timeout that was granted, at most what is asked for: servers have bounds of their own, and kazoo does not
    tell."""
    context, is_said = security.context(), False
    while True:
        for host in hosts.split(","):
            with suppress(OSError, asyncio.IncompleteReadError, TimeoutError, struct.error):
                async with asyncio.timeout(GREETING_S):
                    return min(asked_ms, await _granted_by(host.strip(), asked_ms, context))
        if not is_said:
            logger.warning("no ZooKeeper answers at %s; this goes on once one does", hosts)
            is_said = True
        await asyncio.sleep(AGAIN_S)


async def _granted_by(host: str, asked_ms: int, context: ssl.SSLContext | None) -> int:
    name, _, port = host.rpartition(":")
    reader, writer = await asyncio.open_connection(name.strip("[]"), int(port), ssl=context)
    try:
        greeting = CONNECT.pack(0, 0, asked_ms, 0, 16, bytes(16), False)
        writer.write(struct.pack(">i", len(greeting)) + greeting)
        (size_bytes,) = struct.unpack(">i", await reader.readexactly(4))
        _, granted_ms, _ = CONNECTED.unpack_from(await reader.readexactly(size_bytes))
        writer.write(CLOSE)
        await writer.drain()
        return int(granted_ms)
    finally:
        writer.close()
