"""Facts about a log that its folder has before it is read: names and small files. A start and a check both ask."""

from collections.abc import Sequence

from oncelog.log import snapshots
from oncelog.log.cleaner_state import CleanerState
from oncelog.log.disk import Disk, read_whole
from oncelog.log.names import CLEANER_FILE, EPOCH_FILE, FLUSHED_FILE, INDEX, LOG, SNAPSHOT, WRITTEN_FILE, offsets_of
from oncelog.log.notes import Opened, read_flushed, read_opened, read_written
from oncelog.log.snapshots import Snapshot
from oncelog.log.verdict import Known, Written

NO_LIMIT = 2**63  # of offsets below which there may be gaps: a follower's leader may have compacted all it sends


def opened_of(disk: Disk, folder: str, names: Sequence[str]) -> Opened:
    return read_opened(disk, folder) if EPOCH_FILE in names else Opened()


def known_of(disk: Disk, folder: str, names: Sequence[str], opened: Opened, stayed_up: bool) -> Known:
    """`stayed_up`: as far as the data folder says. A log that was refused since is still as a power failure left it.

    Even the name of a damaged snapshot says that the log was on the disk up to there."""
    stayed_up = stayed_up and opened.has_run_on(disk)
    flushed = read_flushed(disk, folder) if FLUSHED_FILE in names else Written()
    begun_offset = max(offsets_of(names, LOG), default=0)
    written = read_written(disk, folder) if stayed_up and WRITTEN_FILE in names else Written()
    return Known(max(offsets_of(names, SNAPSHOT), default=0), flushed, stayed_up, begun_offset, written)


def gaps_below(disk: Disk, folder: str, names: Sequence[str], known: Known) -> int:
    """Offsets have gaps only where compaction took records out: below the newest recovery point.

    Should that be lost, compaction's own notes name earlier passes.
    """
    if CLEANER_FILE not in names:
        return 0
    try:
        noted = CleanerState.decode(read_whole(disk, f"{folder}/{CLEANER_FILE}")).gaps_below
    except (OSError, ValueError):
        noted = 0
    return max(known.point_offset, noted)


def noted_beginning(disk: Disk, folder: str, names: Sequence[str], first_base: int, stored_start: int) -> int:
    """The offset below which something says that segments were removed or about to be; -1 where that is below the first
    one.

    Before retention removes segments, one by one, it leaves a snapshot that says where the log may begin from then on,
    and every other one says where it began. Those of earlier versions do not say it. As long as the newest is one of
    them, each that stands at the beginning of its segment counts as left by retention, though a flush may have left it.
    """
    if first_base <= stored_start:
        return first_base
    newest: Snapshot | None = None
    for offset in reversed(offsets_of(names, SNAPSHOT)):
        if offset < first_base:
            break
        snapshot = snapshots.read_snapshot(disk, folder, offset)
        newest = newest or snapshot
        if snapshot is None or newest is None:
            beginning = offset if offset == first_base else -1
        elif newest.beginning < 0 and snapshot.point.base_offset == offset:
            beginning = offset
        else:
            beginning = snapshot.beginning
        if beginning >= first_base:
            return beginning
    return -1


def lost_log(names: Sequence[str], stayed_up: bool) -> int:
    """The base of a segment that was the last and of which the index alone is there; -1 for none. Who removes a segment
    begins with its index, so on a machine that has run on nothing else leaves that."""
    last = max(offsets_of(names, LOG), default=-1)
    indexed = max(offsets_of(names, INDEX), default=-1)
    return indexed if stayed_up and indexed > last else -1
