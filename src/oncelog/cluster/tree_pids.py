"""The sequences of pids where several brokers agree: a number for each kind, at /pids/KIND, changed by compare-and-set.

A block that was taken without its broker having learned of that is nobody's. How old other brokers' blocks are follows
from when they were read not to be there (`GrantHistory`). A read may lag behind the tree, so it tells what there is and
nothing of when; that it was so at this time is told by a change that names its version, if only to check it.
"""

import asyncio
from contextlib import suppress
from typing import Final, NoReturn

from oncelog.clock import Clock, Now
from oncelog.cluster.tree import ABSENT, Check, Outdated, Put, Tree, TreeError
from oncelog.producers.leases import FIRST_LEASED_PID, Block, GrantHistory, first_leased
from oncelog.producers.producer_map import FIRST_KAFKA_PID
from oncelog.server.ports import ClusterStorageError, PidKind

FIRST_PIDS: Final = {PidKind.LEASED: FIRST_LEASED_PID, PidKind.KAFKA: FIRST_KAFKA_PID}
TRIES = 20


class TreePids:
    def __init__(self, tree: Tree, clock: Clock, earlier: GrantHistory) -> None:
        """`earlier`: what this broker knew when it was last up, on today's monotonic clock; or nothing but how long
        a lease lasts."""
        self._tree = tree
        self._clock = clock
        self._told = asyncio.Event()
        self.history = earlier
        tree.watch(self._changed)

    def may_be_new(self, pid: int, now: Now) -> bool:
        return self.history.may_be_new(pid, now.monotonic_ms)

    async def reserve_pids(self, kind: PidKind, count: int) -> Block:
        try:
            for _ in range(TRIES):
                next_pid, version = await self._get(kind)
                first_pid = first_leased(next_pid, count) if kind is PidKind.LEASED else next_pid
                began_ms = self._clock.now().monotonic_ms
                with suppress(Outdated):
                    await self._tree.change(Put(_path_of(kind), b"%d" % (first_pid + count), version))
                    if kind is PidKind.LEASED:
                        self.history = self.history.read(next_pid, began_ms).read(first_pid + count, began_ms)
                    return Block(first_pid, first_pid + count)
        except TreeError as error:
            _refuse(str(error))
        _refuse("other brokers were faster each time")

    async def read(self) -> None:
        """Raises `TreeError`, and `ClusterStorageError` where what stands in the tree is no number."""
        next_pid, version = await self._get(PidKind.LEASED)
        self.history = self.history.read(next_pid, self.history.read_ms)
        began_ms = self._clock.now().monotonic_ms
        with suppress(Outdated):  # which is told, too
            await self._tree.change(Check(_path_of(PidKind.LEASED), version))
            self.history = self.history.read(next_pid, began_ms)

    async def _get(self, kind: PidKind) -> tuple[int, int]:
        """The next pid, and the version of that. Who looks first makes it, so that nobody's first pids are older than
        all that is known."""
        path = _path_of(kind)
        node = await self._tree.get(path)
        if node is None:
            with suppress(Outdated):
                await self._tree.change(Put(path, b"%d" % FIRST_PIDS[kind], ABSENT))
            return FIRST_PIDS[kind], 0
        if not node.value.isdigit():
            _refuse(f"{path} holds {node.value[:40]!r} and no number")
        return int(node.value), node.version

    async def keep_reading(self) -> NoReturn:
        """Read when somebody takes a block, and often enough that its age is about known."""
        while True:
            self._told.clear()
            with suppress(TreeError, ClusterStorageError):  # when the tree can be asked again, that is told
                await self.read()
            with suppress(TimeoutError):
                async with asyncio.timeout(self.history.period_ms / 1000):
                    await self._told.wait()

    def _changed(self, path: str) -> None:
        if path in ("", _path_of(PidKind.LEASED)):
            self._told.set()


def _path_of(kind: PidKind) -> str:
    return f"/pids/{kind}"


def _refuse(why: str) -> NoReturn:
    raise ClusterStorageError(f"no pids can be reserved: {why}")
