"""The tree that the brokers of a cluster agree by: small, and changed by compare-and-set alone.

    /nodes/N  /topics/T  /pids/{leased,kafka}  /gone/ID  /config
    /live/N                                                        of a session, and gone with it

A path is `/NAME` or `/FOLDER/NAME`; the folders are there from the beginning, and are no nodes. `tree_socket.py`
asks the process that serves a tree to its machine, and `tree_zookeeper.py` ZooKeeper; tests have one in memory.

A session is what says that a broker lives: it is over when the tree has not heard of it for its timeout. The broker may
learn of that late, and must never rest its safety on it: `sure_until_ms` is what it can know by itself.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple, Protocol

FOLDERS = frozenset({"nodes", "live", "topics", "pids", "gone"})
ABSENT = -1  # the version of a node that is not there
WITHIN_S = 5.0
SESSION_TIMEOUT_MS = 6_000

MOST_VALUE_BYTES = 1_000_000  # a request to ZooKeeper is at most 1 MiB, with all that is around it
MOST_CHANGE_BYTES = MOST_VALUE_BYTES + 20_000
AROUND_BYTES = 100  # a change, beside its path and value
MOST_NODES = 10_000
MOST_TREE_BYTES = 64 * 2**20  # of all values
MOST_SESSIONS = 64

_NAME = r"[^/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]{1,255}"
_PATH = re.compile(f"/({_NAME})(?:/({_NAME}))?")


class Node(NamedTuple):
    value: bytes
    version: int  # 0 when it is made, and 1 more with each `Put`


class Check(NamedTuple):
    """The node is there, in this version."""

    path: str
    version: int


class Put(NamedTuple):
    """Another value in the place of this version; ABSENT makes the node."""

    path: str
    value: bytes
    version: int


class PutEphemeral(NamedTuple):
    """Makes a node of this session. In the place of another session's: behind a `Remove` in the same change."""

    path: str
    value: bytes


class Remove(NamedTuple):
    path: str
    version: int


Change = Check | Put | PutEphemeral | Remove


class TreeError(Exception):
    """A request to the tree was not answered with success."""


class Outdated(TreeError):
    """Nothing was done: the node at `path` has another version, is there, or is not there."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} has changed meanwhile")
        self.path = path


class Unsure(TreeError):
    """Nobody answered in time. A change may have been done, and what has left already may yet be. What is read from now
    on tells whether it was; a later version of one of its nodes, that it cannot be any more."""


class Refused(TreeError):
    """Nothing was done: a bound of the tree."""


class Tree(Protocol):
    """One broker's side of the tree. Everything is called, and calls back, on the event loop."""

    @property
    def is_connected(self) -> bool: ...

    def sure_until_ms(self) -> int:
        """Until then, on the monotonic clock of the tree's `Clock`, nobody can have found this session to be over.

        The timeout, counted from when a heartbeat that was answered left here; 0 without a session.
        """
        ...

    def watch(self, told: Callable[[str], None]) -> None:
        """`told` is called with the path of each node that was made, changed or removed, by whomever.

        At least once after the last change of a node; changes shortly behind each other may be told once. With "",
        anything may have changed: after each beginning of a session, and after a connection that was lost.
        """
        ...

    def on_lost(self, lost: Callable[[], None]) -> None:
        """`lost` is called when this session is known to be over; its nodes are gone. Not for `close`."""
        ...

    async def begin_session(self) -> None:
        """To be awaited before anything else is asked, and again once a session was lost.

        Tries until it stands, for as long as that takes. Raises `Refused` where there are too many.
        """
        ...

    async def change(self, *changes: Change, within_s: float = WITHIN_S) -> None:
        """All of it or nothing, in order, each seeing those before it.

        Raises `Outdated`, `Refused` or `Unsure`. After `within_s` it is not sent any more, nor is it kept while there
        is no connection.
        """
        ...

    async def get(self, path: str, *, within_s: float = WITHIN_S) -> Node | None:
        """May lag behind the tree, but never behind what this session has seen. Raises `Unsure`."""
        ...

    async def children(self, folder: str, *, within_s: float = WITHIN_S) -> dict[str, Node]:
        """The nodes in a folder, such as "/topics", by name. Each node as by `get`, not all of one moment."""
        ...

    async def close(self) -> None:
        """Ends the session: its nodes are gone when this returns, where the tree can be asked."""
        ...


def check_path(path: str) -> tuple[str, str]:
    """Folder (or "") and name. ValueError for what is no path."""
    match = _PATH.fullmatch(path)
    if match is None or {match[1], match[2]} & {".", ".."}:
        raise ValueError(f"{path!r} is no path of the tree: /NAME or /FOLDER/NAME, with names of 1 to 255 characters")
    folder, name = ("", match[1]) if match[2] is None else (match[1], match[2])
    if folder not in FOLDERS and (folder or name in FOLDERS):
        raise ValueError(f"{path!r} is no path of the tree: its folders are {', '.join(sorted(FOLDERS))}")
    return folder, name


def check_folder(folder: str) -> str:
    """Its name. ValueError for what is no folder."""
    if not folder.startswith("/") or folder[1:] not in FOLDERS:
        raise ValueError(f"{folder!r} is no folder of the tree: it has {', '.join(sorted(FOLDERS))}")
    return folder[1:]


def check_changes(changes: Sequence[Change]) -> None:
    """ValueError for what no tree would take."""
    size_bytes = 0
    for change in changes:
        check_path(change.path)
        if isinstance(change, Check | Remove) and change.version < 0:
            raise ValueError(f"{change} names no version")
        if isinstance(change, Put) and change.version < ABSENT:
            raise ValueError(f"{change.path} cannot have the version {change.version}")
        value_bytes = len(change.value) if isinstance(change, Put | PutEphemeral) else 0
        if value_bytes > MOST_VALUE_BYTES:
            raise ValueError(f"a value of {value_bytes:,} bytes for {change.path}: {MOST_VALUE_BYTES:,} are allowed")
        size_bytes += value_bytes + len(change.path.encode()) + AROUND_BYTES
    if size_bytes > MOST_CHANGE_BYTES:
        raise ValueError(f"changes of {size_bytes:,} bytes together: {MOST_CHANGE_BYTES:,} are allowed")


@asynccontextmanager
async def in_time(within_s: float) -> AsyncIterator[None]:
    if within_s <= 0:
        raise Unsure("no time was left; nothing was sent")
    try:
        async with asyncio.timeout(within_s):
            yield
    except TimeoutError:
        raise Unsure("nobody answered in time") from None


@asynccontextmanager
async def in_session(tree: Tree, within_s: float) -> AsyncIterator[Tree]:
    """A session for a few questions, of which no broker's life depends. Raises `Unsure` where nobody answers."""
    try:
        async with in_time(within_s):
            await tree.begin_session()
        yield tree
    finally:
        await tree.close()
