"""A copy of a data folder that a server may be using: `oncelog backup`.

What is copied first knows less than what is copied later, so the order is what makes the copy true:

1. the log of topics: a topic's folders are made before the record that speaks of it
2. internal and compacted topics, which hold what is known about other records: committed offsets, states of sinks
3. all other partitions. In each, the small files and snapshots come before the segments: what says up to where the log
   was on the disk is older than what is copied of the log, and that is a beginning of it
4. the server's own file. The server goes on granting pids, so the copy leaves out a good many of them

So a start of the copy finds every record that was acknowledged before it began, and a beginning of those that came
while it was made. Files that compaction or retention change meanwhile make a partition be copied anew. All of the copy
is on the disk, which each partition's note `flushed` says: what is not whole in it later is damage.
"""

from collections.abc import Iterator
from threading import Event
from typing import NamedTuple

from oncelog.cluster.file import META_FILE, TREE_FOLDER, UnfitFolder, read_state, refuse_unused, write_state
from oncelog.cluster.folder_checking import check_metadata
from oncelog.log.copied import note_copied
from oncelog.log.disk import Disk, read_whole, write_all
from oncelog.log.names import CLEANED, CLEANER_FILE, INDEX, LOG, SWAP, TEMPORARY, log_path, offsets_of
from oncelog.producers.leases import END_OF_LEASED_PIDS, FIRST_LEASED_PID
from oncelog.server.folders import Folders
from oncelog.server.metadata_log import Definition
from oncelog.server.names import METADATA_TOPIC
from oncelog.server.ports import PidKind

CHUNK_BYTES = 4 * 2**20
TRIES = 20
PAUSE_S = 0.1  # until a compaction has put its files in place
PIDS_LEFT_OUT = 2**20
WHY_NOT_OF_A_CLUSTER = (
    "its topics, users and rights stand where the brokers agree, so a copy of a broker's files says too little. The "
    "other brokers have copies of its records. To keep one elsewhere, carry the topics to another server by `oncelog "
    "copy`; or stop `oncelog cluster start`, and copy its whole folder"
)


class Unfinished(Exception):
    """The folder changes faster than it can be copied, or something is in the way."""


class Changed(Exception):
    """A partition changed while it was copied."""


class Copied(NamedTuple):
    name: str
    size_bytes: int


def back_up(disk: Disk, folder: str, to: str) -> Iterator[Copied]:
    """Each place as it is done; the copy can be served once all of them are."""
    if disk.exists(to) and disk.listdir(to):
        raise Unfinished(f"{to} is not empty: name a folder that is not there yet")
    if disk.exists(f"{folder}/{TREE_FOLDER}"):
        raise UnfitFolder(f"{folder} is the folder of a whole cluster: {WHY_NOT_OF_A_CLUSTER}")
    state = read_state(disk, folder)  # refuses what is no data folder of this version
    refuse_unused(disk, folder)
    if state["is_member"]:
        raise UnfitFolder(f"{folder} belongs to a broker of a cluster: {WHY_NOT_OF_A_CLUSTER}")
    stayed_up = bool(state["boot_id"]) and state["boot_id"] == disk.boot_id()
    disk.mkdir(to)
    source, target = Folders(disk, folder), Folders(disk, to)
    copied: dict[tuple[str, int], Definition] = {}
    for _ in range(TRIES):
        yield _copy_partition(disk, source, target, METADATA_TOPIC, 0, stayed_up)
        definitions = check_metadata(disk, target, stayed_up=False)[1]
        wanted = [
            (definition, index)
            for definition in sorted(definitions.values(), key=_what_knows_first)
            if not definition.is_deleting
            for index in range(definition.partitions)
        ]
        for name, index in [place for place in copied if definitions.get(place[0]) != copied[place]]:
            target.remove(name, index)  # deleted since, and perhaps made again
            del copied[name, index]
        try:
            for definition, index in wanted:
                if (definition.name, index) not in copied:
                    yield _copy_partition(disk, source, target, definition.name, index, stayed_up)
                    copied[definition.name, index] = definition
        except FileNotFoundError:
            continue  # its topic was deleted, which the log of topics says by now
        state = read_state(disk, folder)
        leave_out_pids(state["next_pids"])
        write_state(disk, to, state | {"boot_id": ""})
        disk.sync_folder(to)
        disk.sync_folder(f"{to}/..")
        yield Copied(META_FILE, disk.size(f"{to}/{META_FILE}"))
        return
    raise Unfinished(f"topics of {folder} are deleted faster than they can be copied")


def leave_out_pids(next_pids: dict[str, int]) -> None:
    """Leave out the pids that may be granted after the copy was made: a server of the copy would grant them a second
    time."""
    leased = next_pids[PidKind.LEASED] + PIDS_LEFT_OUT
    next_pids[PidKind.LEASED] = leased if leased <= END_OF_LEASED_PIDS else FIRST_LEASED_PID
    next_pids[PidKind.KAFKA] += PIDS_LEFT_OUT


def _what_knows_first(definition: Definition) -> tuple[bool, str]:
    is_about_others = definition.is_internal or "compact" in definition.configs.get("cleanup.policy", "")
    return not is_about_others, definition.name


def _copy_partition(disk: Disk, source: Folders, target: Folders, topic: str, index: int, stayed_up: bool) -> Copied:
    old, new = source.path(topic, index), target.path(topic, index)
    for _ in range(TRIES):
        names = disk.listdir(old)  # FileNotFoundError where the whole folder is gone
        if target.exists(topic, index):
            target.remove(topic, index)
        disk.mkdir(new)
        try:
            size_bytes = _copy_files(disk, old, new, names)
        except (FileNotFoundError, Changed):
            Event().wait(PAUSE_S)
            continue
        disk.sync_folder(new)
        note_copied(disk, new, stayed_up=stayed_up)
        return Copied(f"{topic}-{index}", size_bytes)
    raise Unfinished(f"{old} changes faster than it can be copied")


def _copy_files(disk: Disk, old: str, new: str, names: list[str]) -> int:
    before = _facts(disk, old, names)
    bases = offsets_of(names, LOG)
    for name in names:
        if not name.endswith((LOG, INDEX, TEMPORARY, CLEANED)):
            _copy_file(disk, f"{old}/{name}", f"{new}/{name}")
    size_bytes = 0
    for base in bases:
        name = log_path("", base).lstrip("/")
        size_bytes += _copy_file(disk, f"{old}/{name}", f"{new}/{name}")
        name = name.removesuffix(LOG) + INDEX
        if name in names:  # one that is missing, or ahead of the log, is made anew
            _copy_file(disk, f"{old}/{name}", f"{new}/{name}")
    names = disk.listdir(old)
    after = _facts(disk, old, [name for name in names if name.endswith(SWAP) or name in before])
    if after != {name: before.get(name) for name in after}:
        raise Changed
    return size_bytes


def _facts(disk: Disk, folder: str, names: list[str]) -> dict[str, object]:
    """The facts about files that compaction changes: the sizes of closed segments, and its own notes. These may come
    to be meanwhile: the first compaction makes them, and may take up a segment that was not closed before."""
    if any(name.endswith(SWAP) for name in names):
        raise Changed
    closed = offsets_of(names, LOG)[:-1]
    facts: dict[str, object] = {CLEANER_FILE: None}
    for base in closed:
        path = log_path(folder, base)
        facts[path.rpartition("/")[2]] = disk.size(path)
    if CLEANER_FILE in names:
        facts[CLEANER_FILE] = read_whole(disk, f"{folder}/{CLEANER_FILE}")
    return facts


def _copy_file(disk: Disk, old: str, new: str) -> int:
    """Copy a file up to its end as it is when that is reached."""
    source = disk.open(old)
    try:
        target = disk.open(new, create=True)
        try:
            position = 0
            while chunk := source.pread(CHUNK_BYTES, position):
                position += write_all(target, [chunk], position)
            target.fdatasync()
        finally:
            target.close()
    finally:
        source.close()
    return position
