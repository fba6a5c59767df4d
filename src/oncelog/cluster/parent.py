"""A cluster on one machine: brokers, each a process, and the tree by which they agree, served by this one.

What a broker prints goes to `broker.log` in its folder. A broker ends when this process does, however that ends: its
standard input is a pipe from here. One that ends by itself is started again by `keep_up`.
"""

import asyncio
import contextlib
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from oncelog.clock import Clock, SystemClock
from oncelog.cluster.documents import CONFIG, LIVE, NODES, TOPICS, decode_node, decode_topic
from oncelog.cluster.file import META_FILE, TREE_FOLDER, UnfitFolder
from oncelog.cluster.folder_lock import FolderLock
from oncelog.cluster.links import Links
from oncelog.cluster.peer import Peer
from oncelog.cluster.tree import SESSION_TIMEOUT_MS, Tree, TreeError, Unsure, in_session
from oncelog.cluster.tree_server import TreeServer
from oncelog.cluster.tree_socket import SocketTree
from oncelog.cluster.tree_store import TreeStore
from oncelog.log.disk import RealDisk
from oncelog.replication.leadership import Leadership
from oncelog.server.listener import refuse_taken
from oncelog.server.settings_reading import read_settings
from oncelog.settings import SettingsError, parse_address
from oncelog.waiting import result_of, until_ended
from oncelog.wire.requests import request_schema

logger = logging.getLogger(__name__)

T = TypeVar("T")

READY_S: Final = 60.0
STOP_S: Final = 30.0
LOOK_S: Final = 0.02
ACQUAINTED_S: Final = 10.0
REACHED_S: Final = 15.0
MOST_SOCKET_BYTES: Final = 107  # a system's bound; data folders may lie deep
MOST_BROKERS: Final = 5
LOG_FILE: Final = "broker.log"
METADATA_VERSION: Final = 1  # the first that can ask about no topic
PLAINTEXT: Final = "PLAINTEXT"
SCHEME: Final = "unix:"


class BrokerEnded(Exception):
    """A broker ended before it was up; the message has what it said last."""


class TreeFailed(Exception):
    """Brokers go on with what they have agreed on, and nothing more."""


class Parent:
    """Everything here may be called from any thread, one call at a time."""

    def __init__(
        self,
        folder: str,
        count: int,
        settings: Mapping[str, str],
        *,
        addresses: Sequence[str] = (),
        first: int = 1,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        variables: Mapping[str, str] | None = None,
        tree: Tree | None = None,
    ) -> None:
        """`addresses`: where each broker listens; any port of the loopback without them. Of `listeners` in the settings
        only the name of the first counts, such as SASL_SSL. `first`: its number.
        `variables` are added to the environment of brokers. `tree` is the one by which they agree, where that is none
        of this process: what `oncelog.cluster` in the settings names."""
        self._folder = Path(folder)
        self._settings = settings
        self._listener = settings.get("listeners", PLAINTEXT).partition("://")[0]
        self._listen = dict(zip(range(first, first + count), addresses or ["127.0.0.1:0"] * count, strict=True))
        if not self._folder.exists():
            refuse_taken(parse_address("listeners", each) for each in self._addresses())
        self._folder.mkdir(0o700, parents=True, exist_ok=True)
        self._session_timeout_ms = session_timeout_ms
        self._variables = variables or {}
        self.own_settings: dict[int, Mapping[str, str]] = {}  # of one broker, which go before all others
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._check_folder()
        self._lock = FolderLock(folder)
        self._socket, self._temporary = _socket_below(self._folder)
        self._agreed = tree or SocketTree(self._socket, SystemClock())
        self._where = settings["oncelog.cluster"] if tree else f"{SCHEME}{self._socket}"
        self._has_tree = tree is None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="oncelog-tree", daemon=True)
        self._thread.start()
        self._tree: TreeServer | None = None

    def __enter__(self) -> Self:
        self.start_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    # The cluster as a whole

    def start_all(self) -> None:
        """Returns when every broker is up. Raises `BrokerEnded` and `DamagedTree`, and then none of it is left."""
        try:
            self.start_tree()
            for node_id in self._listen:
                self._spawn(node_id)
            for node_id in self._listen:
                self._wait_until_up(node_id)
            self._run(self._until_acquainted(*self._listen))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        try:
            self._stop_all()
        finally:
            self.stop_tree()
            self._loop.call_soon_threadsafe(self._loop.stop)
            until_ended(self._thread)
            if self._temporary is not None:
                shutil.rmtree(self._temporary, ignore_errors=True)
            self._lock.release()

    def start_tree(self) -> None:
        """Or see that the one is there that others serve. Raises `TreeFailed` if not."""
        self._run(self._start_tree() if self._has_tree else self._reach_tree())

    def stop_tree(self) -> None:
        """Brokers go on with what they have agreed on, until it is started again."""
        if self._tree is not None:
            self._run(self._stop_tree())

    @property
    def tree_path(self) -> str:
        """The socket at which the tree is."""
        return self._socket

    @property
    def nodes(self) -> list[int]:
        return sorted(self._listen)

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(self._listen[node_id] for node_id in sorted(self._listen))

    def address(self, node_id: int) -> str:
        return self._listen[node_id]

    def pid(self, node_id: int) -> int:
        return self._processes[node_id].pid

    def _stop_all(self) -> None:
        """Stop them one after the other, so that each hands over what it leads."""
        for node_id in sorted(self._processes):
            self.stop(node_id)

    # One broker

    def start(self, node_id: int) -> None:
        """Start a broker again, on its folder and its port. Returns when it is up."""
        self._check_known(node_id)
        if node_id in self._processes and self._processes[node_id].poll() is None:
            raise ValueError(f"broker {node_id} runs already; a paused one goes on with resume({node_id})")
        self._spawn(node_id)
        self._wait_until_up(node_id)
        self._run(self._until_acquainted(node_id))

    def stop(self, node_id: int) -> None:
        """Stop a broker in an orderly way."""
        self._check_known(node_id)
        process = self._processes.pop(node_id, None)
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            logger.error("broker %d did not end within %g s, and is killed", node_id, STOP_S)
            process.kill()
            process.wait()
        close_input(process)

    def kill(self, node_id: int) -> None:
        """End a broker as `kill -9` does."""
        process = self._running(node_id)
        del self._processes[node_id]
        process.kill()
        process.wait()
        close_input(process)

    def pause(self, node_id: int) -> None:
        """Silent, as a machine that hangs."""
        self._running(node_id).send_signal(signal.SIGSTOP)

    def resume(self, node_id: int) -> None:
        self._running(node_id).send_signal(signal.SIGCONT)

    def _check_known(self, node_id: int) -> None:
        if node_id not in self._listen:
            raise ValueError(f"there is no broker {node_id!r}: the brokers are {self.nodes}")

    def _running(self, node_id: int) -> "subprocess.Popen[bytes]":
        process = self._processes.get(node_id)
        if process is None:
            raise ValueError(f"broker {node_id!r} does not run; those that do are {sorted(self._processes)}")
        return process

    def keep_up(self) -> None:
        """Start again what has ended by itself. To be called every now and then. Raises `TreeFailed`."""
        self._check_tree()
        for node_id in self.ended():
            process = self._processes[node_id]
            logger.warning("broker %d ended with %d and is started again", node_id, process.returncode)
            close_input(process)
            try:
                self.start(node_id)
            except (BrokerEnded, TimeoutError, TreeError) as ended:
                logger.error("%s", ended)

    def ended(self) -> list[int]:
        """The brokers that ended on their own."""
        return [node_id for node_id, process in list(self._processes.items()) if process.poll() is not None]

    def topics(self) -> dict[str, tuple[Leadership, ...]]:
        """The leader of each partition, and the brokers in sync, as the brokers have agreed by now."""

        async def read() -> dict[str, tuple[Leadership, ...]]:
            async with in_session(self._agreed, REACHED_S) as tree:
                topics = await tree.children(TOPICS)
            return {name: decode_topic(each.value).partitions for name, each in topics.items()}

        return self._run(read())

    def output(self, node_id: int) -> str:
        return self._output_file(node_id).read_text(errors="replace")

    # Below

    def _check_tree(self) -> None:
        if self._tree is not None and self._tree.store.failure:
            raise TreeFailed(
                f"nothing can be agreed on any more: {self._tree.store.failure}. What is on the disk is whole: start "
                "the cluster again once the disk can be written to"
            )

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return result_of(asyncio.run_coroutine_threadsafe(work, self._loop))

    async def _start_tree(self) -> None:
        clock = SystemClock()
        store = self._open_store(clock)
        self._tree = TreeServer(self._socket, store, clock, session_timeout_ms=self._session_timeout_ms)
        await self._tree.start()

    async def _reach_tree(self) -> None:
        try:
            async with in_session(self._agreed, REACHED_S):
                pass
        except Unsure as failure:
            raise TreeFailed(f"{self._where} cannot be reached: {failure}") from None

    async def _stop_tree(self) -> None:
        assert self._tree is not None
        tree, self._tree = self._tree, None
        await tree.stop()
        await tree.store.close()

    # What kind of brokers they are

    def _addresses(self) -> list[str]:
        """The addresses that they are to listen on."""
        return list(self._listen.values())

    def _check_folder(self) -> None:
        if (self._folder / META_FILE).exists():
            raise UnfitFolder(
                f"{self._folder} belongs to a server that stands alone, or to one broker. Give a cluster a folder of "
                "its own"
            )

    def _open_store(self, clock: Clock) -> TreeStore:
        return TreeStore.open(RealDisk(), str(self._folder / TREE_FOLDER), clock)

    def _given(self, node_id: int) -> Mapping[str, str]:
        """The settings of one."""
        return dict(self._settings) | {
            "node.id": str(node_id),
            "log.dir": str(self._folder / str(node_id)),
            "listeners": f"{self._listener}://{self._listen[node_id]}",
            "oncelog.cluster": self._where,
            **self.own_settings.get(node_id, {}),
        }

    def _output_file(self, node_id: int) -> Path:
        return self._folder / str(node_id) / LOG_FILE

    def _descriptors(self) -> tuple[int, ...]:
        """The descriptors that it is given."""
        return ()

    # One of them

    def _spawn(self, node_id: int) -> None:
        file = self._output_file(node_id)
        file.parent.mkdir(0o700, exist_ok=True)
        command = [sys.executable, "-m", "oncelog", "serve", "--settings-from-input", "--until-input-ends"]
        with open(file, "ab") as log:
            process = self._processes[node_id] = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=os.environ | self._variables,
                pass_fds=self._descriptors(),
            )
        _tell(process, self._given(node_id))

    def _wait_until_up(self, node_id: int) -> None:
        """Raises `BrokerEnded`, and TimeoutError."""
        try:
            self._run(self._until_up(node_id, self._processes[node_id]))
        except (TimeoutError, Unsure):
            raise TimeoutError(f"broker {node_id} is not up after {READY_S:g} s") from None

    async def _until_up(self, node_id: int, process: "subprocess.Popen[bytes]") -> None:
        """Announced by this process, not by the one before."""
        async with asyncio.timeout(READY_S), in_session(self._agreed, READY_S) as tree:
            while True:
                if process.poll() is not None:
                    raise BrokerEnded(f"broker {node_id} ended with {process.returncode}: {self._last_words(node_id)}")
                with contextlib.suppress(Unsure):
                    await tree.begin_session()  # another, where this one was lost
                    node, live = await tree.get(f"{NODES}/{node_id}"), await tree.get(f"{LIVE}/{node_id}")
                    if node is not None and live is not None and live.value == str(process.pid).encode():
                        host, port = next(iter(decode_node(node.value).member.endpoints.values()))
                        self._listen[node_id] = f"{host}:{port}"
                        return
                await asyncio.sleep(LOOK_S)

    async def _until_acquainted(self, *nodes: int) -> None:
        """Each of them has seen all that are up: a broker that has not seen the third one refuses a topic of three
        copies. Who cannot be asked is passed over: it may be reached from elsewhere alone."""
        with contextlib.suppress(Unsure):
            async with in_session(self._agreed, ACQUAINTED_S) as tree:
                config = await tree.get(CONFIG)
                secret = "" if config is None else json.loads(config.value).get("secret", "")
                for node_id in nodes:
                    links = Links(read_settings(self._given(node_id)), lambda: secret)
                    with contextlib.suppress(OSError):
                        async with asyncio.timeout(ACQUAINTED_S):
                            await _until_it_sees_all(links, self._listen[node_id], tree)

    def _last_words(self, node_id: int) -> str:
        return "\n".join(self.output(node_id).splitlines()[-12:])


async def _until_it_sees_all(links: Links, address: str, tree: Tree) -> None:
    peer = await links.connect(parse_address("listeners", address), ACQUAINTED_S)
    try:
        while await _brokers_seen(peer) < len(await tree.children(LIVE)):
            await asyncio.sleep(LOOK_S)
    finally:
        peer.close()


async def _brokers_seen(peer: Peer) -> int:
    schema = request_schema("metadata", METADATA_VERSION)
    frame = schema.encode(schema.new("MetadataRequest", topics=()), correlation_id=0, client_id=None)
    return len(schema.read(await peer.ask(frame, ACQUAINTED_S)).brokers)


def _socket_below(folder: Path) -> tuple[str, str | None]:
    """The socket's path, in a folder that only this user may enter; and that folder, if it has to be removed later."""
    path = folder / "run" / "tree"
    if len(os.fsencode(path)) <= MOST_SOCKET_BYTES:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        return str(path), None
    temporary = tempfile.mkdtemp(prefix="oncelog-tree-")
    return f"{temporary}/tree", temporary


def copies(brokers: int) -> dict[str, str]:
    """The default settings of topics: one broker may be lost."""
    if not 1 <= brokers <= MOST_BROKERS:
        raise SettingsError(f"{brokers} brokers: expected 1 to {MOST_BROKERS}")
    factor = min(brokers, 3)
    return {
        "default.replication.factor": str(factor),
        "offsets.topic.replication.factor": str(factor),
        "min.insync.replicas": str(max(1, factor - 1)),
    }


def _tell(process: "subprocess.Popen[bytes]", settings: Mapping[str, str]) -> None:
    """Tell a process its settings by its input: command lines can be read by everybody on the machine."""
    assert process.stdin is not None
    with contextlib.suppress(OSError):  # it has ended already, and is asked why
        process.stdin.write(json.dumps(dict(settings)).encode() + b"\n")
        process.stdin.flush()


def close_input(process: "subprocess.Popen[bytes]") -> None:
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()
