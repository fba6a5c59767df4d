"""Old segments replaced by cleaned ones, so that a crash at any step leaves the one or the other.

1. The cleaned log and index are written beside the old ones as `<base>.log.<end>.cleaned` and brought to the disk.
2. The index, then the log are renamed to `.swap`. From the moment that the log's swap is there, it counts.
3. The old segments that it covers, from its base to before `<end>`, are removed; the index, then the log take their
   final names.

A start that finds the log's swap goes on from step 3, if it ends as its index says: what it replaces is removed for it.
An index's swap without a log's is a remainder of step 2.
"""

from oncelog.log.disk import Disk, read_whole
from oncelog.log.errors import LogStorageError
from oncelog.log.index import ENTRY, ENTRY_BYTES
from oncelog.log.names import CLEANED, INDEX, LOG, SWAP, Swap, cleaned_path, index_path, log_path, offsets_of, swap_of


def decide_swap(disk: Disk, folder: str, base_offset: int, end_offset: int) -> None:
    """Step 2."""
    for path in (index_path(folder, base_offset), log_path(folder, base_offset)):
        disk.rename(cleaned_path(path, end_offset, CLEANED), cleaned_path(path, end_offset, SWAP))
    disk.sync_folder(folder)


def finish_swap(disk: Disk, folder: str, base_offset: int, end_offset: int) -> None:
    """Step 3. Nothing waits for these names to be on the disk: until they are, a start does the same again."""
    names = disk.listdir(folder)
    for ending in (INDEX, LOG):
        for offset in offsets_of(names, ending):
            if base_offset < offset < end_offset:
                disk.unlink(f"{folder}/{offset:020d}{ending}")
    for path in (index_path(folder, base_offset), log_path(folder, base_offset)):
        swap = cleaned_path(path, end_offset, SWAP)
        if disk.exists(swap):
            disk.rename(swap, path)


def finish_swaps(disk: Disk, folder: str, names: list[str]) -> bool:
    """Whether a start had anything to finish. Raises LogStorageError before it removes what would be lost."""
    swaps: list[Swap] = [swap for swap in map(swap_of, names) if swap is not None]
    for damage in filter(None, (damage_of_swap(disk, folder, swap) for swap in swaps if swap.is_log)):
        raise LogStorageError(damage)
    decided = {(swap.base_offset, swap.end_offset) for swap in swaps if swap.is_log}
    for base_offset, end_offset in sorted(decided):
        finish_swap(disk, folder, base_offset, end_offset)
    for swap in swaps:
        if (swap.base_offset, swap.end_offset) not in decided:
            disk.unlink(f"{folder}/{swap.name}")
    if swaps:
        disk.sync_folder(folder)
    return bool(swaps)


def damage_of_swap(disk: Disk, folder: str, swap: Swap) -> str:
    """The reason why it is not what compaction wrote, and what to do; empty where it ends as its index says."""
    path = f"{folder}/{swap.name}"
    index = cleaned_path(index_path(folder, swap.base_offset), swap.end_offset, SWAP)
    if not disk.exists(index):
        index = index_path(folder, swap.base_offset)
    end = read_whole(disk, index)[-ENTRY_BYTES:] if disk.exists(index) else b""
    size_bytes = disk.size(path)
    if len(end) == ENTRY_BYTES and ENTRY.unpack(end)[:2] == (swap.end_offset, size_bytes):
        return ""
    return (
        f"{path} is to replace the segments from {swap.base_offset} to {swap.end_offset}, but its {size_bytes} bytes "
        f"are not what {index} says. Nothing is removed for it. Restore both files from a backup, or move them away to "
        "go on with the segments as they are"
    )
