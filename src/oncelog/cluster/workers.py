"""Workers of one server: processes that share its data folder, and their parent, which is this one.

Each partition is open in one process at a time, and that rests on two things alone. The parent frees what a worker had
only when it has reaped that worker: one that hangs is killed first, so nothing of it wakes up later. And each worker
holds the folder's lock, as its parent does, so no other server begins while any of them lives.

Everything is done on the loop of the tree, one thing after the other.
"""

import asyncio
import logging
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from oncelog.clock import Clock, SystemClock
from oncelog.cluster.documents import GONE, LIVE, TOPICS, decode_topic, encode_topic, forget_gone, remove_topic
from oncelog.cluster.parent import READY_S, STOP_S, Parent, close_input
from oncelog.cluster.shared_folder import SharedFolder
from oncelog.cluster.tree import SESSION_TIMEOUT_MS, Change, Node, Outdated, Put, check_folder
from oncelog.cluster.tree_nodes import NOBODY, Writes
from oncelog.cluster.tree_store import TreeStore
from oncelog.log.disk import RealDisk
from oncelog.replication.sharing import changed_by_parent, is_deleted, is_free, shared_out
from oncelog.server.settings import Settings
from oncelog.settings import SettingsError

logger = logging.getLogger(__name__)

LOOK_S: Final = 0.05
AGAIN_S: Final = 1.0  # between two starts of a worker that does not come up
MOST_WORKERS: Final = 16
SHARED: Final = "workers:"


class Workers(Parent):
    def __init__(self, settings: Settings, count: int, *, session_timeout_ms: int = SESSION_TIMEOUT_MS) -> None:
        """Numbered from `node.id`, each at the ports behind those of the one before; port 0 stays 0."""
        if not 1 <= count <= MOST_WORKERS:
            raise SettingsError(f"{count} workers: expected 1 to {MOST_WORKERS}")
        if settings.default_replication_factor > 1:
            raise SettingsError(
                f"default.replication.factor={settings.default_replication_factor}: workers of one server share one "
                "copy. For several: oncelog cluster start"
            )
        self._of_all = settings
        self._numbers = [settings.node_id + each for each in range(count)]
        super().__init__(
            settings.log_dir,
            count,
            settings.given,
            first=settings.node_id,
            session_timeout_ms=session_timeout_ms,
        )
        self._clock = SystemClock()
        self._shared: SharedFolder | None = None
        self._wanted = set(self._numbers)
        self._working = set(self._numbers)  # who gets partitions: all at first, and not before they are up later on
        self._since_ms: dict[int, int] = {}  # when it was started, or last seen to be up
        self._not_before_ms: dict[int, int] = {}
        self._is_up: set[int] = set()
        self._is_told = True
        self._is_recovered = False
        self._shared_out: dict[str, tuple[int, frozenset[int], frozenset[int]]] = {}  # topics that were looked at
        self._led: set[str] = set()  # those of which all was led when they were
        self._wake = asyncio.Event()
        self._turn = asyncio.Lock()
        self._keeper: asyncio.Task[None] | None = None

    # All of them

    def start_all(self) -> None:
        super().start_all()
        self._run(self._begin_keeping())

    def keep_up(self) -> None:
        """Keep up the workers all the time. Raises `TreeFailed`."""
        self._check_tree()

    def _stop_all(self) -> None:
        if self._tree is not None:
            self._run(self._end_all())

    # One of them

    def start(self, node_id: int) -> None:
        self._check_known(node_id)
        self._run(self._begin(node_id))
        self._wait_until_up(node_id)

    def stop(self, node_id: int) -> None:
        self._check_known(node_id)
        self._run(self._end(node_id, signal.SIGTERM))

    def kill(self, node_id: int) -> None:
        self._check_known(node_id)
        self._run(self._end(node_id, signal.SIGKILL))

    # What kind of brokers they are

    def _addresses(self) -> list[str]:
        each_of_first = [each.partition("://")[2] for each in self._of_all.listeners]
        return [_moved(each, place) for place in range(len(self._numbers)) for each in each_of_first]

    def _check_folder(self) -> None:
        """Looked at when it is opened."""

    def _open_store(self, clock: Clock) -> TreeStore:
        self._shared = SharedFolder(self._of_all, RealDisk(), clock, self._numbers)
        try:
            return TreeStore(self._shared)
        except BaseException:
            self._shared.own.close()
            raise

    def _given(self, node_id: int) -> Mapping[str, str]:
        assert self._shared is not None
        settings, place = self._of_all, node_id - self._numbers[0]
        given = (
            dict(self._settings)
            | self._shared.changed_settings
            | {
                "node.id": str(node_id),
                "log.dir": settings.log_dir,
                "listeners": ",".join(self._behind(each, place, node_id) for each in settings.listeners),
                "oncelog.cluster": f"{SHARED}{self._socket}",
            }
        )
        for name in ("broker.id", "log.dirs"):
            given.pop(name, None)
        if settings.advertised_listeners is not None:
            given["advertised.listeners"] = ",".join(_moved(each, place) for each in settings.advertised_listeners)
        if settings.oncelog_metrics_listener is not None:
            given["oncelog.metrics.listener"] = _moved(settings.oncelog_metrics_listener, place)
        return given

    def _behind(self, listener: str, place: int, node_id: int) -> str:
        """One that was given any port has it again."""
        address, _, port = listener.rpartition(":")
        known = self._listen[node_id].rpartition(":")[2]
        return f"{address}:{known}" if port == "0" else _moved(listener, place)

    def _output_file(self, node_id: int) -> Path:
        return self._folder / "run" / f"worker-{node_id}.log"

    def _descriptors(self) -> tuple[int, ...]:
        return self._lock.descriptors

    # On the loop

    async def _start_tree(self) -> None:
        await super()._start_tree()
        assert self._tree is not None
        store = self._tree.store
        tell = store.on_written

        def told(writes: Writes) -> None:
            self._is_told = True
            self._wake.set()
            tell(writes)

        store.on_written = told

    async def _begin_keeping(self) -> None:
        self._keeper = asyncio.get_running_loop().create_task(self._keep())

    async def _keep(self) -> None:
        assert self._shared is not None
        await asyncio.to_thread(self._shared.remove_deleted)
        while True:
            soon = asyncio.get_running_loop().call_later(LOOK_S, self._wake.set)
            await self._wake.wait()
            soon.cancel()
            self._wake.clear()
            try:
                async with self._turn:
                    await self._look()
            except Exception:
                logger.exception("the parent of the workers failed; it goes on")
                self._is_told = True
                await asyncio.sleep(AGAIN_S)

    async def _look(self) -> None:
        now_ms = self._clock.now().monotonic_ms
        for node_id, process in list(self._processes.items()):
            if process.poll() is None and self._is_hung(node_id, process, now_ms):
                logger.error("worker %d does not answer: it is killed, and another one has its partitions", node_id)
                process.kill()
                await _ended(process)
            if process.poll() is not None:
                logger.warning("worker %d ended with %d and is started again", node_id, process.returncode)
                if node_id not in self._is_up:
                    self._not_before_ms[node_id] = now_ms + int(AGAIN_S * 1000)
                self._reaped(node_id)
        if self._is_told:
            self._is_told = False
            await self._share_out()
        for node_id in sorted(self._wanted - self._processes.keys()):
            if now_ms >= self._not_before_ms.get(node_id, 0):
                await self._share_out()  # what it had is free before there is another one of its number
                self._spawn(node_id)

    def _is_hung(self, node_id: int, process: "subprocess.Popen[bytes]", now_ms: int) -> bool:
        """Whether its session is over, and it has not begun another one."""
        assert self._tree is not None
        live = self._tree.store.nodes.get(f"{LIVE}/{node_id}")
        if live is not None and live.node.value == str(process.pid).encode():
            self._since_ms[node_id] = now_ms
            if node_id not in self._is_up:
                self._is_up.add(node_id)
                self._working.add(node_id)
                self._is_told = True
            return False
        allowed_ms = self._session_timeout_ms / 3 if node_id in self._is_up else 1000 * READY_S
        return now_ms - self._since_ms.get(node_id, now_ms) > allowed_ms

    def _reaped(self, node_id: int) -> None:
        close_input(self._processes.pop(node_id))
        self._is_up.discard(node_id)
        self._working.discard(node_id)
        self._is_told = True

    def _spawn(self, node_id: int) -> None:
        super()._spawn(node_id)
        self._since_ms[node_id] = self._clock.now().monotonic_ms

    # Who has what

    async def _share_out(self) -> None:
        """Frees what those had that have ended, and says who is to have it."""
        assert self._tree is not None
        assert self._shared is not None
        topics = self._tree.store.nodes.children(check_folder(TOPICS))
        there = frozenset(self._processes), frozenset(self._working)
        self._shared_out = {name: seen for name, seen in self._shared_out.items() if name in topics}
        for name, node in topics.items():
            if self._shared_out.get(name) != (node.version, *there):
                await self._share_out_topic(name, node)
                self._shared_out[name] = node.version, *there
        self._led &= topics.keys()
        if not self._is_recovered and len(self._led) == len(topics):
            self._is_recovered = True
            await asyncio.to_thread(self._shared.own.recovered)

    async def _share_out_topic(self, name: str, node: Node) -> None:
        assert self._shared is not None and self._tree is not None
        document = decode_topic(node.value)
        if is_deleted(document.partitions) and is_free(document.partitions):
            await self._change(*remove_topic(name, node.version, document.id, self._clock.now().wall_ms))
            removals = forget_gone(self._tree.store.nodes.children(check_folder(GONE)))
            if removals:
                await self._change(*removals)
            await asyncio.to_thread(self._shared.remove_deleted)
            return
        if all(state.leader in self._processes for state in document.partitions):
            self._led.add(name)
        ended = {each for state in document.partitions for each in state.in_sync} - self._processes.keys()
        states = [
            changed_by_parent(state, shared_out(name, index, self._numbers, self._working), ended) or state
            for index, state in enumerate(document.partitions)
        ]
        if tuple(states) != document.partitions:
            value = encode_topic(document._replace(partitions=tuple(states)))
            await self._change(Put(f"{TOPICS}/{name}", value, node.version))

    async def _change(self, *changes: Change) -> None:
        assert self._tree is not None
        try:
            await self._tree.store.change(changes, NOBODY, lambda: True)
        except Outdated:
            self._is_told = True  # again

    # At somebody's word

    async def _begin(self, node_id: int) -> None:
        async with self._turn:
            self._wanted.add(node_id)
            if node_id not in self._processes:
                await self._share_out()
                self._spawn(node_id)

    async def _end(self, node_id: int, number: int) -> None:
        async with self._turn:
            self._wanted.discard(node_id)
            process = self._processes.get(node_id)
            if process is not None:
                await _end(process, number)
                self._reaped(node_id)
        self._wake.set()

    async def _end_all(self) -> None:
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        processes = list(self._processes.values())
        await asyncio.gather(*(_end(process, signal.SIGTERM) for process in processes))
        for node_id in list(self._processes):
            self._reaped(node_id)


async def _end(process: "subprocess.Popen[bytes]", number: int) -> None:
    """Returns when it is reaped."""
    process.send_signal(signal.SIGCONT)
    process.send_signal(number)
    try:
        async with asyncio.timeout(STOP_S):
            await _ended(process)
    except TimeoutError:
        logger.error("a worker did not end within %g s, and is killed", STOP_S)
        process.kill()
        await _ended(process)


async def _ended(process: "subprocess.Popen[bytes]") -> None:
    while process.poll() is None:
        await asyncio.sleep(LOOK_S / 5)


def _moved(address: str, place: int) -> str:
    """The address with the port that is `place` behind; any port stays any."""
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) + place if int(port) else 0}"
