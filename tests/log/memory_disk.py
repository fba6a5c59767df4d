"""The twin of the disk that lives in memory and fails on a seed.

What it does to a log that trusts it too far, all of it drawn from one seed:

- **Power failure.** `crash()` answers the disk as it is found afterwards. Of what was written to a file since its last
  `fdatasync`, each sector of 512 bytes is there or not, by itself; so a write may be there torn, or later bytes without
  earlier ones. The file's size is the old one, the new one, or between; sectors that never came read as zeros.
- **Names.** Creations, renames and removals since the folder's last `sync_folder` survive up to some point, in their
  order, as with a journal. Data that was synced under a name that did not survive is gone with it. The boot is another.
- **Kill.** `crash(keep_all=True)` is a process that dies while the machine lives on: everything written is there.
- **Death at a chosen step.** `die_at(n)` raises `Died` in the n-th operation that changes something. A write that dies
  has put a part of its bytes down, any other operation was done or not; and no operation works afterwards.
- **Full.** With `capacity_bytes` a write takes what fits, then raises ENOSPC; room given back can be used again.
- **Refusals.** `fail(operations, error_number, times)`: EIO, EROFS or whatever else, before anything is done.
- **Short writes.** With `short_writes` any write may take fewer bytes than it was given.
- **Rot.** `flip(path, position)` turns one bit of what is stored, synced or not.

- **Bad sectors.** `fail_reads(path)`: whatever is asked of the file's contents is EIO until the disk is healed.

It does not lose what was synced, nor bring back the name of a file removed long ago.
"""

import errno
import os
import random
import threading
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from oncelog.records.header import Buffer

SECTOR_BYTES = 512
ENOUGH_BYTES = 1 << 40


P = ParamSpec("P")
T = TypeVar("T")
Self = TypeVar("Self")
_one = threading.RLock()  # for all disks, so that any of them can be copied


def one_at_a_time(method: Callable[Concatenate[Self, P], T]) -> Callable[Concatenate[Self, P], T]:
    """Logs are closed by several threads."""

    @wraps(method)
    def locked(self: Self, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with _one:
            return method(self, *args, **kwargs)

    return locked


class Died(BaseException):
    """The process ends here. No handler of errors may catch it."""


class Inode:
    """A file without its name: as programs see it, and as the disk has it."""

    __slots__ = ("content", "dirty_sectors", "synced")

    def __init__(self, content: bytes = b"") -> None:
        self.content = bytearray(content)
        self.synced = bytes(content)
        self.dirty_sectors: set[int] = set()

    def write(self, data: Buffer, position: int) -> None:
        end = position + len(data)
        if len(self.content) < end:
            self._touch(len(self.content), end)
            self.content.extend(bytes(end - len(self.content)))
        self.content[position:end] = data
        self._touch(position, end)

    def truncate(self, size_bytes: int) -> None:
        self._touch(min(size_bytes, len(self.content)), max(size_bytes, len(self.content)))
        if size_bytes < len(self.content):
            del self.content[size_bytes:]
        else:
            self.content.extend(bytes(size_bytes - len(self.content)))

    def sync(self) -> None:
        self.synced = bytes(self.content)
        self.dirty_sectors.clear()

    def _touch(self, start: int, end: int) -> None:
        self.dirty_sectors.update(range(start // SECTOR_BYTES, (end + SECTOR_BYTES - 1) // SECTOR_BYTES))

    def after_power_failure(self, chance: random.Random) -> "Inode":
        sizes = sorted((len(self.synced), len(self.content)))
        size_bytes = chance.choice((len(self.synced), len(self.content), chance.randint(*sizes)))
        found = bytearray(self.synced[:size_bytes].ljust(size_bytes, b"\0"))
        survival = chance.choice((0.0, 0.1, 0.5, 0.9, 1.0))
        for sector in sorted(self.dirty_sectors):
            if chance.random() < survival:
                start = sector * SECTOR_BYTES
                end = min(start + SECTOR_BYTES, size_bytes, len(self.content))
                if start < end:
                    found[start:end] = self.content[start:end]
        return Inode(bytes(found))


class MemoryFile:
    def __init__(self, disk: "MemoryDisk", path: str, inode: Inode, writable: bool) -> None:
        self._disk = disk
        self._path = path
        self._inode = inode
        self._writable = writable
        self._closed = False

    def pread(self, size_bytes: int, position: int) -> bytes:
        self._disk.alive()
        self._check_open()
        self._disk.check_readable(self._path)
        return bytes(self._inode.content[position : position + size_bytes])

    def send_to(self, socket_fd: int, size_bytes: int, position: int) -> int:
        try:
            return os.write(socket_fd, self.pread(size_bytes, position))
        except BlockingIOError:
            return 0

    @one_at_a_time
    def pwritev(self, buffers: Sequence[Buffer], position: int) -> int:
        self._check_open()
        if not self._writable:
            raise OSError(errno.EBADF, "opened for reading", self._path)
        data = b"".join(bytes(buffer) for buffer in buffers)
        taken = self._disk.room_for(self._inode, position, data)
        if self._disk.step("pwritev", self._path):
            self._inode.write(data[: self._disk.chance.randint(0, taken)], position)
            raise Died
        if taken == 0 and data:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._path)
        self._inode.write(data[:taken], position)
        return taken

    @one_at_a_time
    def fdatasync(self) -> None:
        self._check_open()
        if self._disk.step("fdatasync", self._path):
            if self._disk.chance.random() < 0.5:
                self._inode.sync()
            raise Died
        self._inode.sync()

    @one_at_a_time
    def truncate(self, size_bytes: int) -> None:
        self._check_open()
        if not self._writable:
            raise OSError(errno.EBADF, "opened for reading", self._path)
        self._disk.change("truncate", self._path, lambda: self._inode.truncate(size_bytes))

    def size(self) -> int:
        self._disk.alive()
        self._check_open()
        return len(self._inode.content)

    def close(self) -> None:
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise OSError(errno.EBADF, "the file is closed", self._path)


class MemoryDisk:
    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self.chance = random.Random(seed)
        self.capacity_bytes = ENOUGH_BYTES
        self.short_writes = False
        self.boots = 1
        self.operations = 0  # how many that change something there were
        self.trace: list[tuple[str, str]] = []  # the last of them, to tell what a failing step was
        self._dies_at = -1
        self._dead = False
        self._unreadable: set[str] = set()
        self._refusals: list[tuple[frozenset[str], int, int]] = []  # operations, error number, how often
        self._folders: set[str] = {"", "/"}
        self._files: dict[str, Inode] = {}
        self._synced_files: dict[str, Inode] = {}
        self._journal: list[tuple[str, str, Inode | None]] = []  # folder, path, what it names from then on

    # Faults

    def die_at(self, operation: int) -> None:
        """In the n-th operation from the beginning, counted from 0."""
        self._dies_at = operation

    def fail(self, operations: str, error_number: int, times: int = 1 << 30) -> None:
        """`operations` is a list with blanks: pwritev fdatasync truncate open rename unlink mkdir rmdir sync_folder."""
        self._refusals.append((frozenset(operations.split()), error_number, times))

    def fail_reads(self, path: str) -> None:
        self._unreadable.add(path)

    def heal(self) -> None:
        self._refusals.clear()
        self._unreadable.clear()
        self.capacity_bytes = ENOUGH_BYTES
        self.short_writes = False

    def flip(self, path: str, position: int, bit: int = 0) -> None:
        inode = self._files[path]
        inode.content[position] ^= 1 << bit
        synced = bytearray(inode.synced)
        if position < len(synced):
            synced[position] ^= 1 << bit
        inode.synced = bytes(synced)

    @one_at_a_time
    def crash(self, *, keep_all: bool = False) -> "MemoryDisk":
        """The disk as the next start finds it. This one is dead."""
        self._dead = True
        found = MemoryDisk(self.chance.getrandbits(32))
        found.boots = self.boots if keep_all else self.boots + 1
        found._folders = set(self._folders)
        if keep_all:
            found._files = {path: Inode(bytes(inode.content)) for path, inode in self._files.items()}
        else:
            names = dict(self._synced_files)
            for _, path, inode in self._journal[: self.chance.randint(0, len(self._journal))]:
                _name(names, path, inode)
            found._files = {path: inode.after_power_failure(self.chance) for path, inode in sorted(names.items())}
        found._synced_files = dict(found._files)
        return found

    # What files ask

    def alive(self) -> None:
        if self._dead:
            raise Died

    def check_readable(self, path: str) -> None:
        if path in self._unreadable:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    def step(self, operation: str, path: str) -> bool:
        """Count an operation, refuse it if asked to; True when the process dies in it."""
        self.alive()
        number, self.operations = self.operations, self.operations + 1
        self.trace = [*self.trace[-20:], (operation, path)]
        if number == self._dies_at:
            self._dead = True
            return True
        for at, (operations, error_number, times) in enumerate(self._refusals):
            if operation in operations and times > 0:
                self._refusals[at] = (operations, error_number, times - 1)
                raise OSError(error_number, os.strerror(error_number), path)
        return False

    def change(self, operation: str, path: str, work: Callable[[], None]) -> None:
        """Done, or not done when the process dies in it."""
        if self.step(operation, path):
            if self.chance.random() < 0.5:
                work()
            raise Died
        work()

    def room_for(self, inode: Inode, position: int, data: bytes) -> int:
        used_bytes = sum(len(each.content) for each in {id(each): each for each in self._files.values()}.values())
        room = self.capacity_bytes - used_bytes + max(0, len(inode.content) - position)
        taken = max(0, min(len(data), room))
        if self.short_writes and taken > 1 and self.chance.random() < 0.5:
            taken = self.chance.randint(1, taken)
        return taken

    # The seam

    @one_at_a_time
    def open(self, path: str, *, write: bool = False, create: bool = False) -> MemoryFile:
        self.alive()
        if path not in self._files:
            if not create:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            if _folder_of(path) not in self._folders:
                raise FileNotFoundError(errno.ENOENT, "there is no such folder", path)
            self.change("open", path, lambda: self._log_name(path, Inode()))
        elif write or create:
            self._refuse_writing(path)
        return MemoryFile(self, path, self._files[path], write or create)

    @one_at_a_time
    def listdir(self, folder: str) -> list[str]:
        self.alive()
        if folder not in self._folders:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), folder)
        prefix = folder + "/"
        found = [path for path in (*self._files, *self._folders) if path.startswith(prefix)]
        return sorted({path.removeprefix(prefix).split("/")[0] for path in found} - {""})

    @one_at_a_time
    def mkdir(self, folder: str) -> None:
        self.change("mkdir", folder, lambda: self._add_folders(folder))

    @one_at_a_time
    def rename(self, old: str, new: str) -> None:
        self.alive()
        inode = self._files.get(old)
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), old)
        self.change("rename", new, lambda: self._log_rename(old, new, inode))

    @one_at_a_time
    def unlink(self, path: str) -> None:
        self.alive()
        if path not in self._files:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        self.change("unlink", path, lambda: self._log_name(path, None))

    @one_at_a_time
    def rmdir(self, folder: str) -> None:
        self.change("rmdir", folder, lambda: self._folders.discard(folder))

    def exists(self, path: str) -> bool:
        self.alive()
        return path in self._files or path in self._folders

    def size(self, path: str) -> int:
        self.alive()
        if path not in self._files:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return len(self._files[path].content)

    @one_at_a_time
    def sync_folder(self, folder: str) -> None:
        self.change("sync_folder", folder, lambda: self._sync_names(folder))

    def make_private(self, path: str) -> None:
        """Nobody else is here."""

    @one_at_a_time
    def free_bytes(self, folder: str) -> int:
        return max(0, self.capacity_bytes - sum(len(inode.content) for inode in self._files.values()))

    def boot_id(self) -> str:
        return f"boot-{self.boots}"

    # Names

    def _refuse_writing(self, path: str) -> None:
        """A disk that has become read-only refuses to open for writing, too."""
        if any(number == errno.EROFS and times > 0 for _, number, times in self._refusals):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)

    def _add_folders(self, folder: str) -> None:
        """Folders survive everything: nothing of value is lost with an empty one."""
        while folder and folder not in self._folders:
            self._folders.add(folder)
            folder = _folder_of(folder)

    def _log_name(self, path: str, inode: Inode | None) -> None:
        _name(self._files, path, inode)
        self._journal.append((_folder_of(path), path, inode))

    def _log_rename(self, old: str, new: str, inode: Inode) -> None:
        # One entry in a journal: never both names, never neither.
        _name(self._files, old, None)
        _name(self._files, new, inode)
        self._journal.append((_folder_of(new), f"{old}\0{new}", inode))

    def _sync_names(self, folder: str) -> None:
        for entry_folder, path, inode in self._journal:
            if entry_folder == folder:
                _name(self._synced_files, path, inode)
        self._journal = [entry for entry in self._journal if entry[0] != folder]


def _folder_of(path: str) -> str:
    return path.rpartition("/")[0]


def _name(files: dict[str, Inode], path: str, inode: Inode | None) -> None:
    old, _, new = path.rpartition("\0")
    if old:
        files.pop(old, None)
    if inode is None:
        files.pop(new, None)
    else:
        files[new] = inode
