"""A tree in one process: several sessions on one store, and what can go wrong with them, at a test's word.

Deterministic: it knows no chance, and its only clock is the session's. The faults:

- `expire`: the session is over for all others. It learns of that at once; if it is suspended, by `resume`.
- `suspend`, `resume`: what is asked meanwhile is `Unsure` at once, and nobody is told of changes.
- `doubt_next`: the answer to the next change is lost, and it was done, is not, or will be only when `do_late` says so.
- `hold_watches`, `release_watches`: others' changes are seen before they are told.
- `freeze_reads`, `thaw_reads`: what is read is as old as the freeze. Own changes are seen all the same, as in any tree.
- `MemoryTree.pause` is awaited before a call is carried out and again before it is answered: others come in between.
"""

import asyncio
from collections.abc import Awaitable, Callable
from enum import Enum
from itertools import count

from oncelog.clock import Clock
from oncelog.cluster.tree import (
    MOST_SESSIONS,
    SESSION_TIMEOUT_MS,
    WITHIN_S,
    Change,
    Node,
    Refused,
    TreeError,
    Unsure,
    check_changes,
    check_folder,
    check_path,
    in_time,
)
from oncelog.cluster.tree_nodes import NOBODY, Nodes, Stored, Writes


class Doubt(Enum):
    DONE = "done"
    NEVER = "never"
    LATE = "late"


async def one_turn() -> None:
    await asyncio.sleep(0)


class MemoryTree:
    """The store. Its `nodes` may be read at any time."""

    def __init__(self, *, session_timeout_ms: int = SESSION_TIMEOUT_MS) -> None:
        self.nodes = Nodes()
        self.session_timeout_ms = session_timeout_ms
        self.pause: Callable[[], Awaitable[None]] = one_turn
        self._ids = count(NOBODY + 1)
        self._live: dict[int, MemorySession] = {}

    def session(self, clock: Clock) -> "MemorySession":
        """For one broker, which begins with `begin_session`."""
        return MemorySession(self, clock)

    # What sessions ask

    def begin(self, session: "MemorySession") -> int:
        if len(self._live) >= MOST_SESSIONS:
            raise Refused(f"more than {MOST_SESSIONS} sessions")
        number = next(self._ids)
        self._live[number] = session
        return number

    def end(self, number: int) -> None:
        if self._live.pop(number, None) is not None:
            self._write(self.nodes.without(number))

    def is_live(self, number: int) -> bool:
        return number in self._live

    def carry_out(self, number: int, changes: tuple[Change, ...]) -> Writes:
        """Raises as `Tree.change`."""
        if not self.is_live(number):
            raise Unsure("the session is over")
        writes = self.nodes.judge(changes, number)
        self._write(writes)
        return writes

    def _write(self, writes: Writes) -> None:
        self.nodes.write(writes)
        for session in self._live.values():
            for path in writes:
                session.tell(path)


class MemorySession:
    """A `Tree`."""

    def __init__(self, store: MemoryTree, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._number = NOBODY
        self._suspended_ms: int | None = None
        self._watchers: list[Callable[[str], None]] = []
        self._losers: list[Callable[[], None]] = []
        self._doubt: Doubt | None = None
        self._late: list[tuple[int, tuple[Change, ...]]] = []
        self._held: dict[str, None] | None = None
        self._frozen: dict[str, Stored | None] | None = None

    # As every tree

    @property
    def is_connected(self) -> bool:
        return self._number != NOBODY and self._suspended_ms is None

    def sure_until_ms(self) -> int:
        if self._number == NOBODY:
            return 0
        heard_ms = self._clock.now().monotonic_ms if self._suspended_ms is None else self._suspended_ms
        return heard_ms + self._store.session_timeout_ms

    def watch(self, told: Callable[[str], None]) -> None:
        self._watchers.append(told)

    def on_lost(self, lost: Callable[[], None]) -> None:
        self._losers.append(lost)

    async def begin_session(self) -> None:
        while self._suspended_ms is not None:
            await self._store.pause()
        if self._number == NOBODY:
            self._number = self._store.begin(self)
            self.tell("")

    async def change(self, *changes: Change, within_s: float = WITHIN_S) -> None:
        check_changes(changes)
        async with in_time(within_s):
            await self._reach()
            doubt, self._doubt = self._doubt, None
            if doubt is Doubt.LATE:
                self._late.append((self._number, changes))
            elif doubt is not Doubt.NEVER:
                self._own(self._carry_out(changes, is_answered=doubt is None))
            if doubt is not None:
                raise Unsure("the connection was lost before the answer came")
            await self._store.pause()
            if not self.is_connected:
                raise Unsure("the connection was lost before the answer came")

    async def get(self, path: str, *, within_s: float = WITHIN_S) -> Node | None:
        check_path(path)
        async with in_time(within_s):
            await self._reach()
            stored = self._store.nodes.get(path) if self._frozen is None else self._frozen.get(path)
            return None if stored is None else stored.node

    async def children(self, folder: str, *, within_s: float = WITHIN_S) -> dict[str, Node]:
        name = check_folder(folder)
        async with in_time(within_s):
            await self._reach()
            if self._frozen is None:
                return self._store.nodes.children(name)
            start = folder + "/"
            there = {path: stored for path, stored in sorted(self._frozen.items()) if path.startswith(start)}
            return {path.removeprefix(start): stored.node for path, stored in there.items() if stored is not None}

    async def close(self) -> None:
        number, self._number = self._number, NOBODY
        if self._suspended_ms is None:
            self._store.end(number)
        await self._store.pause()

    async def _reach(self) -> None:
        self._check_connected()
        await self._store.pause()
        self._check_connected()

    def _check_connected(self) -> None:
        if not self.is_connected:
            raise Unsure("there is no connection to the tree; nothing was sent")

    def _carry_out(self, changes: tuple[Change, ...], *, is_answered: bool) -> Writes:
        try:
            return self._store.carry_out(self._number, changes)
        except TreeError:
            if is_answered:
                raise
            return {}

    def _own(self, writes: Writes) -> None:
        if self._frozen is not None:
            self._frozen.update(writes)

    def tell(self, path: str) -> None:
        """What the store says."""
        if self._held is not None:
            self._held[path] = None
        elif self.is_connected:
            for told in self._watchers:
                asyncio.get_running_loop().call_soon(told, path)

    # Faults

    def expire(self) -> None:
        self._store.end(self._number)
        if self._suspended_ms is None:
            self._lose()

    def _lose(self) -> None:
        if self._number == NOBODY:
            return
        self._number = NOBODY
        for lost in self._losers:
            asyncio.get_running_loop().call_soon(lost)

    def suspend(self) -> None:
        if self._suspended_ms is None:
            self._suspended_ms = self._clock.now().monotonic_ms

    def resume(self) -> None:
        self._suspended_ms = None
        if self._number != NOBODY and not self._store.is_live(self._number):
            self._lose()
        else:
            self.tell("")

    def doubt_next(self, doubt: Doubt) -> None:
        self._doubt = doubt

    def do_late(self) -> None:
        """What was left behind by `Doubt.LATE` counts now, if it still can."""
        late, self._late = self._late, []
        for number, changes in late:
            if self._store.is_live(number):
                try:
                    self._store.carry_out(number, changes)
                except TreeError:
                    continue  # as a server that nobody listens to

    def hold_watches(self) -> None:
        self._held = {} if self._held is None else self._held

    def release_watches(self) -> None:
        held, self._held = self._held or {}, None
        for path in held:
            self.tell(path)

    def freeze_reads(self) -> None:
        self._frozen = dict(self._store.nodes.items())

    def thaw_reads(self) -> None:
        self._frozen = None
