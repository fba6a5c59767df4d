"""The cluster of one server: a small file in its data folder.

`server.meta` is JSON that a person can read. It is replaced as a whole: written aside, synced, renamed, the folder
synced; a crash leaves the old contents or the new, and nothing is handed out before that is done. It ends with a CRC
of everything before, because one wrong digit could grant a pid twice; who changes the file by hand takes that out.

Its version is that of the whole folder. A newer one is refused, an older one is brought up to date by a start:
1 had no boot id, snapshots without sections and indexes without a first entry that says what they are.
"""

import asyncio
import json
import logging
import re
import secrets
import sys
import threading
from base64 import urlsafe_b64encode
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

from crc32c import crc32c

from oncelog.clock import Clock, Now
from oncelog.cluster.folder_lock import FolderLock
from oncelog.log.disk import Disk, read_whole, replace_file
from oncelog.producers.leases import (
    END_OF_LEASED_PIDS,
    FIRST_LEASED_PID,
    Block,
    GrantHistory,
    Period,
    first_leased,
)
from oncelog.producers.producer_map import FIRST_KAFKA_PID
from oncelog.server.ports import ClusterStorageError, Member, PidKind

META_FILE = "server.meta"
TREE_FOLDER = "tree"  # in the folder of a whole cluster: what its brokers agree on
VERSION = 2
CHECK = "crc32c"
_PARTITION_FOLDER = re.compile(r".+-\d+$")

logger = logging.getLogger(__name__)

PID_SECRET_BYTES = 32


class DamagedFolder(Exception):
    """The data folder contradicts itself. To go on could grant a pid twice, so a person must look."""


class UnfitFolder(Exception):
    """The data folder is whole, but not for this server: another node's, or of a newer oncelog."""


class FileCluster:
    def __init__(
        self,
        disk: Disk,
        folder: str,
        clock: Clock,
        *,
        node_id: int,
        lease_lifetime_ms: int,
        is_member: bool = False,
        lock: FolderLock | None = None,
        boot_id: str = "",
    ) -> None:
        """Open the folder's cluster, or make one, and count this start. `boot_id` is empty where it is not known.

        `is_member`: of brokers that agree on topics and pids elsewhere. A folder is one's or the other's for good.
        """
        self._disk = disk
        self._folder = folder
        self._path = f"{folder}/{META_FILE}"
        self._clock = clock
        self._lock = lock
        self.node_id = node_id
        self.members = {node_id: Member({})}
        self.away: dict[int, Member] = {}
        self.lost: dict[int, Member] = {}
        self.secret = ""
        disk.mkdir(folder)
        if disk.exists(f"{folder}/{TREE_FOLDER}"):
            raise UnfitFolder(
                f"{folder} belongs to a cluster: its brokers have folders in it. Start it with oncelog cluster start "
                f"--data {folder}, or use another folder"
            )
        state = read_state(disk, folder)
        if state["node_id"] not in (None, node_id):
            theirs = state["node_id"]
            raise UnfitFolder(
                f"{folder} belongs to node {theirs}, and node.id is {node_id}. Set node.id={theirs}, or use another "
                f"folder. To give the folder another number, change node_id in {self._path} and take "
                f"the {CHECK} out of it"
            )
        if state["start_epoch"] > 0 and state["is_member"] != is_member:
            raise UnfitFolder(
                f"{folder} belongs to a broker of a cluster, and a server that stands alone would take its records for "
                "nobody's. Start the cluster, or use another folder"
                if state["is_member"]
                else f"{folder} belongs to a server that stands alone, and a broker of a cluster would not know its "
                "topics. Use another folder, and copy the topics with: oncelog copy"
            )
        self._is_member = is_member
        # Those of a cluster have theirs where they agree.
        self.pid_secret: str = "" if is_member else state["pid_secret"] or secrets.token_urlsafe(PID_SECRET_BYTES)
        self._boot_id = boot_id
        self._noted_boot_id: str = boot_id if state["start_epoch"] == 0 else state["boot_id"]
        self.stayed_up = bool(boot_id) and self._noted_boot_id == boot_id
        self.lacks_records = not self._noted_boot_id  # see `note_lack`
        self.cluster_id: str = state["cluster_id"]
        self.start_epoch: int = state["start_epoch"] + 1
        self.folder_id: str = state["folder_id"] or str(uuid4())
        self._next_pids = {kind: int(state["next_pids"][kind]) for kind in PidKind}
        read_ms = clock.now().monotonic_ms  # nobody else takes any
        self._history = GrantHistory(
            lease_lifetime_ms, periods_of(state, clock.now()), self._next_pids[PidKind.LEASED], read_ms
        )
        self._writing = threading.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="oncelog-pids")
        self._is_closed = False
        self._write()

    @classmethod
    def open(
        cls,
        disk: Disk,
        folder: str,
        clock: Clock,
        *,
        node_id: int,
        lease_lifetime_ms: int,
        is_member: bool = False,
    ) -> "FileCluster":
        """Open it with the folder's lock, which `close` gives back. Raises `FolderInUse`."""
        lock = FolderLock(folder)
        try:
            return cls(
                disk,
                folder,
                clock,
                node_id=node_id,
                lease_lifetime_ms=lease_lifetime_ms,
                is_member=is_member,
                lock=lock,
                boot_id=disk.boot_id(),
            )
        except BaseException:
            lock.release()
            raise

    async def until_nobody_is_missed(self) -> None:
        """There are no others."""

    async def forget(self, node_id: int) -> None:
        """Nobody else is known."""

    def sure_until_ms(self) -> int:
        return sys.maxsize

    async def reserve_pids(self, kind: PidKind, count: int) -> Block:
        if self._is_closed:
            raise ClusterStorageError(f"{self._path} is closed")
        return await asyncio.get_running_loop().run_in_executor(self._thread, self.take_pids, kind, count)

    def take_pids(self, kind: PidKind, count: int) -> Block:
        """`reserve_pids`, which waits for the disk. From any thread."""
        with self._writing:
            if self._is_closed:
                raise ClusterStorageError(f"{self._path} is closed")
            next_pid = self._next_pids[kind]
            first_pid = first_leased(next_pid, count) if kind is PidKind.LEASED else next_pid
            block = Block(first_pid, first_pid + count)
            self._note_pids(kind, block.end_pid)
        return block

    def note_pids(self, kind: PidKind, end_pid: int) -> None:
        """Note that somebody took the pids up to there. From any thread; on the disk when it returns."""
        with self._writing:
            if self._is_closed:
                raise ClusterStorageError(f"{self._path} is closed")
            self._note_pids(kind, end_pid)

    def _note_pids(self, kind: PidKind, end_pid: int) -> None:
        next_pid, history, began_ms = self._next_pids[kind], self._history, self._clock.now().monotonic_ms
        next_pids = self._next_pids | {kind: end_pid}
        if kind is PidKind.LEASED:
            history = history.read(next_pid, began_ms).read(end_pid, began_ms)
        self._write(next_pids, history)
        self._next_pids, self._history = next_pids, history

    def next_pid(self, kind: PidKind) -> int:
        return self._next_pids[kind]

    @property
    def holds_partitions(self) -> bool:
        return bool(_partitions(self._disk, self._folder))

    @property
    def earlier_pids(self) -> GrantHistory:
        """Nothing: others took pids since, of which this folder does not tell."""
        return GrantHistory(self._history.lifetime_ms)

    def join(self, cluster_id: str) -> None:
        """Other brokers' cluster. Raises UnfitFolder where this folder has records of another one."""
        if self.holds_partitions:
            raise UnfitFolder(
                f"{self._folder} belongs to the cluster {self.cluster_id}, and the brokers here are {cluster_id}. Use "
                "another folder"
            )
        self.cluster_id = cluster_id
        self._write()

    def may_be_new(self, pid: int, now: Now) -> bool:
        return self._history.may_be_new(pid, now.monotonic_ms)

    def note_lack(self) -> None:
        """Records that this broker acknowledged are not here: true for later starts too, until `recovered`."""
        self._noted_boot_id, self.lacks_records = "", True
        self._write()

    def recovered(self) -> None:
        self.lacks_records = False
        if self._noted_boot_id != self._boot_id:
            self._noted_boot_id = self._boot_id
            try:
                self._write()
            except ClusterStorageError as error:  # the next start takes the machine for stopped
                logger.warning("could not note which start of the machine this is: %s", error)

    def close(self) -> None:
        """Writes once more, so that the leases' ages are right up to here; the lock is given back in any case."""
        self._thread.shutdown(wait=False)
        with self._writing:  # what a thread reserves at this moment is done first
            self._is_closed = True
            try:
                self._write()
            except ClusterStorageError as error:
                logger.warning("could not write %s at the end: %s", self._path, error)
            finally:
                if self._lock is not None:
                    self._lock.release()

    def _write(self, next_pids: dict[PidKind, int] | None = None, history: GrantHistory | None = None) -> None:
        """Write it as it is, but for what is given: that becomes true once it is on the disk."""
        now = self._clock.now()
        state: dict[str, Any] = {
            "version": VERSION,
            "cluster_id": self.cluster_id,
            "node_id": self.node_id,
            "folder_id": self.folder_id,
            "is_member": self._is_member,
            "boot_id": self._noted_boot_id,
            "pid_secret": self.pid_secret,
            "start_epoch": self.start_epoch,
            "next_pids": {kind.value: pid for kind, pid in (next_pids or self._next_pids).items()},
            "lease_periods": [
                {"first_pid": one.first_pid, "end_pid": one.end_pid, "age_ms": now.monotonic_ms - one.opened_ms}
                for one in (history or self._history).periods
            ],
            "written_wall_ms": now.wall_ms,
        }
        try:
            write_state(self._disk, self._folder, state)
        except OSError as error:
            raise ClusterStorageError(f"cannot write {self._path}: {error.strerror or error}") from error


def periods_of(state: dict[str, Any], now: Now) -> tuple[Period, ...]:
    """The periods on today's monotonic clock. Between two runs only the wall clock can tell how long it was."""
    away_ms = now.wall_ms - state["written_wall_ms"]
    if away_ms < 0 and state["lease_periods"]:
        logger.warning(
            "the clock is %d ms behind the last start: leases granted before are taken for too old to be new",
            -away_ms,
        )
        return ()
    return tuple(
        Period(one["first_pid"], one["end_pid"], now.monotonic_ms - one["age_ms"] - away_ms)
        for one in state["lease_periods"]
    )


def write_state(disk: Disk, folder: str, state: dict[str, Any]) -> None:
    """Write the state as a whole; it is on the disk when this returns."""
    state = {name: value for name, value in state.items() if name != CHECK}
    state[CHECK] = _check_sum(state)
    data = json.dumps(state, indent=2).encode() + b"\n"
    replace_file(disk, f"{folder}/{META_FILE}", data, is_private=True)  # there is a secret in it


def prepare_folder(disk: Disk, folder: str) -> None:
    """Prepare a folder for what is stored there before the first start; with the folder's lock held. It is of no node
    yet, nor alone or among others. Raises DamagedFolder and UnfitFolder."""
    state = read_state(disk, folder)
    if state["is_member"]:
        raise UnfitFolder(f"{folder} belongs to a broker of a cluster, which keeps this where its brokers agree")
    if not disk.exists(f"{folder}/{META_FILE}"):
        write_state(disk, folder, state)


def refuse_unused(disk: Disk, folder: str) -> None:
    """Refuse a folder that no server was ever in. Where partitions are without the file, `read_state` tells."""
    if not disk.exists(f"{folder}/{META_FILE}") and not _partitions(disk, folder):
        raise UnfitFolder(f"{folder} is no data folder: it has no {META_FILE}")


def read_state(disk: Disk, folder: str) -> dict[str, Any]:
    """The state in the file, checked and brought up to date. Raises DamagedFolder and UnfitFolder."""
    path = f"{folder}/{META_FILE}"
    if not disk.exists(path):
        partitions = _partitions(disk, folder)
        if partitions:
            raise DamagedFolder(
                f"{folder} holds partitions ({partitions[0]}, ...) but no {META_FILE}, which says what pids were "
                "granted. Restore that file, or use an empty folder."
            )
        return _first_state()
    try:
        state: dict[str, Any] = json.loads(read_whole(disk, path))
        if not isinstance(state, dict):
            raise ValueError("no JSON object")
        stored = state.pop(CHECK, None)
        if stored not in (None, _check_sum(state)):
            raise ValueError("its check sum does not fit its content")
        if isinstance(state["version"], int) and state["version"] > VERSION:
            raise UnfitFolder(
                f"{folder} was written by a newer oncelog: its format is {state['version']}, and this one knows none "
                f"above {VERSION}. Start that version or a later one"
            )
        state = {"node_id": None, "boot_id": "", "folder_id": "", "is_member": False, "pid_secret": "", **state}
        _check(state)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DamagedFolder(f"{path} cannot be read: {error}. Restore it from a copy.") from error
    return state


def _partitions(disk: Disk, folder: str) -> list[str]:
    return [name for name in disk.listdir(folder) if _PARTITION_FOLDER.match(name)]


def _check_sum(state: dict[str, Any]) -> str:
    return f"{crc32c(json.dumps(state, sort_keys=True).encode()):08x}"


def _first_state() -> dict[str, Any]:
    return {
        "version": VERSION,
        "cluster_id": _new_cluster_id(),
        "node_id": None,
        "folder_id": "",
        "is_member": False,
        "boot_id": "",
        "pid_secret": "",
        "start_epoch": 0,
        "next_pids": {PidKind.LEASED: FIRST_LEASED_PID, PidKind.KAFKA: FIRST_KAFKA_PID},
        "lease_periods": [],
        "written_wall_ms": 0,
    }


def _new_cluster_id() -> str:
    """A random uuid as Kafka writes it. One that starts with a dash would be taken for an option on a command line."""
    while True:
        cluster_id = urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")
        if not cluster_id.startswith("-"):
            return cluster_id


def _check(state: dict[str, Any]) -> None:
    if state["version"] not in range(1, VERSION + 1):
        raise ValueError(f"version {state['version']}, only 1 to {VERSION} are known")
    leased, kafka = (state["next_pids"][kind] for kind in (PidKind.LEASED, PidKind.KAFKA))
    if not FIRST_LEASED_PID <= leased <= END_OF_LEASED_PIDS or kafka < FIRST_KAFKA_PID:
        raise ValueError(f"next pids {leased} and {kafka} are out of range")
    if state["start_epoch"] < 0 or not isinstance(state["cluster_id"], str) or not state["cluster_id"]:
        raise ValueError("no start epoch or no cluster id")
    for period in state["lease_periods"]:
        if period["first_pid"] >= period["end_pid"] or period["age_ms"] < 0:
            raise ValueError(f"lease period {period}")
    if not isinstance(state["written_wall_ms"], int):
        raise ValueError("no time of writing")
    if not isinstance(state["folder_id"], str):
        raise ValueError(f"folder id {state['folder_id']!r}")
    if not isinstance(state["is_member"], bool):
        raise ValueError(f"is_member {state['is_member']!r}")
    if not isinstance(state["pid_secret"], str):
        raise ValueError("no secret of pids")
    if not isinstance(state["boot_id"], str) or not isinstance(state["node_id"], int | None):
        raise ValueError(f"boot id {state['boot_id']!r} and node id {state['node_id']!r}")
