"""Reading the folders of a whole cluster, and comparing what its brokers have: `oncelog check` on that folder.

Records that brokers know to be safe must be the same at each of them, byte for byte. What lies above that may differ
after a kill, and is mended when they meet. Compacted partitions are not compared: each broker compacts by itself.
"""

from collections.abc import Callable, Iterator

from crc32c import crc32c

from oncelog.cluster.file import META_FILE, TREE_FOLDER, DamagedFolder, UnfitFolder, read_state
from oncelog.cluster.folder_checking import check_folder
from oncelog.log.disk import Disk
from oncelog.log.names import CLEANER_FILE, SNAPSHOT, offsets_of
from oncelog.log.partition_checking import Checked, OnBatch
from oncelog.log.snapshots import read_snapshot
from oncelog.records.header import BatchHeader

Batches = dict[int, tuple[int, int, int]]  # by base offset: the offset behind, how many records, a sum over all bytes


class _Copy:
    """A partition at one broker."""

    def __init__(self, broker: str) -> None:
        self.broker = broker
        self.batches: Batches = {}
        self.start_offset = 0
        self.safe_offset = 0  # the high watermark as it was last noted
        self.is_compacted = False

    def take(self, header: BatchHeader, batch: bytes) -> None:
        self.batches[header.base_offset] = header.last_offset + 1, header.record_count, crc32c(batch)


def holds_brokers(disk: Disk, folder: str) -> bool:
    """Whether it is what `oncelog cluster start` was given. With ZooKeeper the tree is not in it: then all are of one
    cluster, and not servers that have nothing to do with each other."""
    names = disk.listdir(folder)
    if TREE_FOLDER in names:
        return True
    brokers = [broker for broker in brokers_in(disk, folder) if disk.exists(f"{folder}/{broker}/{META_FILE}")]
    clusters = {_cluster_of(disk, f"{folder}/{broker}") for broker in brokers} - {None}  # a damaged one is told later
    return META_FILE not in names and bool(brokers) and len(clusters) <= 1


def brokers_in(disk: Disk, folder: str) -> list[str]:
    return sorted(name for name in disk.listdir(folder) if name.isdigit())


def _cluster_of(disk: Disk, folder: str) -> str | None:
    try:
        return str(read_state(disk, folder)["cluster_id"])
    except (DamagedFolder, UnfitFolder):
        return None


def check_cluster(disk: Disk, folder: str) -> Iterator[Checked]:
    """Each broker's folder, and then each partition that several have."""
    copies: dict[str, list[_Copy]] = {}
    for broker in brokers_in(disk, folder):
        own: dict[str, _Copy] = {}
        for checked in check_folder(disk, f"{folder}/{broker}", _copying(own, broker)):
            copy = own.get(checked.name)
            if copy is not None:
                copy.start_offset = checked.start_offset
                _look(disk, f"{folder}/{broker}/{checked.name}", copy)
                copies.setdefault(checked.name, []).append(copy)
            if checked.name == META_FILE or checked.name in own:
                checked.name = f"{broker}/{checked.name}"
            yield checked
    for name, found in sorted(copies.items()):
        if len(found) > 1:
            yield _compared(name, found)


def _copying(own: dict[str, _Copy], broker: str) -> Callable[[str], OnBatch]:
    def take(name: str) -> OnBatch:
        own[name] = _Copy(broker)
        return own[name].take

    return take


def _look(disk: Disk, folder: str, copy: _Copy) -> None:
    names = disk.listdir(folder)
    copy.is_compacted = CLEANER_FILE in names
    for offset in reversed(offsets_of(names, SNAPSHOT)):
        snapshot = read_snapshot(disk, folder, offset)
        if snapshot is not None:
            copy.safe_offset = snapshot.high_watermark
            return


def _compared(name: str, copies: list[_Copy]) -> Checked:
    brokers = ", ".join(copy.broker for copy in copies)
    checked = Checked(f"{name} of brokers {brokers}")
    if any(copy.is_compacted for copy in copies):
        checked.note("it is compacted, and not compared")
        return checked
    checked.start_offset = max(copy.start_offset for copy in copies)
    checked.end_offset = max(min(copy.safe_offset for copy in copies), checked.start_offset)
    first, *others = copies
    for other in others:
        at = _difference(first.batches, other.batches, checked.start_offset, checked.end_offset)
        if at >= 0:
            checked.damaged(f"brokers {first.broker} and {other.broker} have other records from offset {at} on")
    checked.records = sum(
        count for base, (_, count, _) in first.batches.items() if checked.start_offset <= base < checked.end_offset
    )
    return checked


def _difference(one: Batches, other: Batches, start: int, end: int) -> int:
    """-1 where there is none. What begins before the start is there at one broker, and may be gone at another."""
    for base in sorted(one.keys() | other.keys()):
        if start <= base < end and one.get(base) != other.get(base):
            return base
    return -1
