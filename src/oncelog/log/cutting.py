"""Cutting a damaged log back, because a person has decided to go on without what follows. No server runs."""

from oncelog.log import snapshots
from oncelog.log.cleaner_state import cut_state
from oncelog.log.compaction_swap import finish_swaps
from oncelog.log.disk import Disk
from oncelog.log.errors import LogStorageError
from oncelog.log.knowledge import noted_beginning
from oncelog.log.names import FLUSHED_FILE, INDEX, LOG, START_FILE, WRITTEN_FILE, index_path, log_path, offsets_of
from oncelog.log.notes import read_start, write_start
from oncelog.log.partition_checking import Unreadable, batches


def cut_back(disk: Disk, folder: str, offset: int) -> int:
    """Remove every batch from `offset` on, damaged or not, and answer how many bytes that were.

    What says that there was more goes first: killed in between, the log is as damaged as before.
    """
    finish_swaps(disk, folder, disk.listdir(folder))
    names = disk.listdir(folder)
    bases = offsets_of(names, LOG)
    start = read_start(disk, folder) if START_FILE in names else 0
    if not bases or offset < max(start, bases[0]):
        raise LogStorageError(f"{folder} has no record before offset {offset}")
    kept = [base for base in bases if base < offset] or bases[:1]
    path = log_path(folder, kept[-1])
    position = _position_of(disk, path, kept[-1], offset)
    if bases[0] > start and noted_beginning(disk, folder, names, bases[0], start) >= 0:
        write_start(disk, folder, bases[0])  # what says so otherwise is a snapshot, which may go now
    snapshots.drop_beyond(disk, folder, offset)
    for name in (FLUSHED_FILE, WRITTEN_FILE):
        if name in names:
            disk.unlink(f"{folder}/{name}")
    cut_state(disk, folder, offset)
    disk.sync_folder(folder)
    for base in [base for base in offsets_of(names, INDEX) if base >= kept[-1]]:  # the one that stays is made anew
        disk.unlink(index_path(folder, base))
    cut_bytes = disk.size(path) - position
    for base in reversed(bases[len(kept) :]):
        cut_bytes += disk.size(log_path(folder, base))
        disk.unlink(log_path(folder, base))
    file = disk.open(path, write=True)
    try:
        file.truncate(position)
        file.fdatasync()
    finally:
        file.close()
    disk.sync_folder(folder)
    return cut_bytes


def _position_of(disk: Disk, path: str, expected: int, offset: int) -> int:
    """The position at which the batch of the offset begins, or should begin."""
    file = disk.open(path)
    try:
        size_bytes = file.size()
        for found in batches(file, 0, size_bytes):
            if isinstance(found, Unreadable):
                size_bytes = found.position
                break
            position, header, _ = found
            if header.base_offset >= offset:
                return position
            if expected > header.base_offset:
                size_bytes = position
                break
            expected = header.last_offset + 1
            if expected > offset:
                raise LogStorageError(f"{path}: a batch goes from {header.base_offset} to {header.last_offset}")
    finally:
        file.close()
    if expected != offset:
        raise LogStorageError(f"{path} can be read up to offset {expected}, so it cannot be cut back to {offset}")
    return size_bytes
