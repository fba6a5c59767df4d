"""A whole log replaced by another beginning, so that a crash at any step leaves the old log or the new one.

1. What it begins with, a snapshot, is brought to the disk as `<offset>.begin`. From the moment that it is there, it
   counts.
2. All that belongs to the old log is removed; `log-start` says where the new one begins.
3. The file takes the name of a snapshot.

A start that finds it goes on from step 2.
"""

from oncelog.log import snapshots
from oncelog.log.disk import Disk, read_whole, replace_file
from oncelog.log.errors import LogStorageError
from oncelog.log.names import (
    ABORTED_FILE,
    BEGINNING,
    CLEANED,
    CLEANER_FILE,
    FLUSHED_FILE,
    INDEX,
    LOG,
    SNAPSHOT,
    SWAP,
    WRITTEN_FILE,
    beginning_path,
    offsets_of,
    snapshot_path,
)
from oncelog.log.notes import write_start


def swap_beginning(disk: Disk, folder: str, offset: int, snapshot: bytes) -> None:
    replace_file(disk, beginning_path(folder, offset), snapshot)
    finish_beginning(disk, folder, disk.listdir(folder))


def finish_beginning(disk: Disk, folder: str, names: list[str]) -> bool:
    """Steps 2 and 3. Whether there was anything to do."""
    offsets = offsets_of(names, BEGINNING)
    if not offsets:
        return False
    offset = offsets[-1]
    path = beginning_path(folder, offset)
    snapshot = snapshots.decode(read_whole(disk, path))
    if snapshot is None or snapshot.point.offset != offset:
        raise LogStorageError(f"{path} is damaged, and this log was to begin anew with it. Empty the folder")
    old = [f"{base:020d}{ending}" for ending in (INDEX, LOG, SNAPSHOT) for base in offsets_of(names, ending)]
    notes = (CLEANER_FILE, FLUSHED_FILE, WRITTEN_FILE, ABORTED_FILE)
    old += [name for name in names if name.endswith((CLEANED, SWAP)) or name in notes]
    for name in old:
        disk.unlink(f"{folder}/{name}")
    write_start(disk, folder, offset)
    disk.rename(path, snapshot_path(folder, offset))
    disk.sync_folder(folder)
    return True
