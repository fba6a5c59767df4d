"""After a failed append: the log and the producers as they were before it."""

from typing import TYPE_CHECKING

from oncelog.log import snapshots
from oncelog.log.errors import NO_DESCRIPTORS
from oncelog.log.replay import replay_segments
from oncelog.producers import CorruptSnapshot

if TYPE_CHECKING:
    from oncelog.log.appending import AppendingLog


def cut_tail(log: "AppendingLog", path: str, size_bytes: int) -> None:
    """What a failed write left behind the end. Where it cannot be cut off, nothing may be appended behind it."""
    try:
        cut_remains(log, path, size_bytes)
    except OSError as error:
        if error.errno in NO_DESCRIPTORS:
            return  # the next append looks again before it writes
        log.go_offline(f"{path} ends in a failed write that cannot be cut off: {error}")
    # It may be open for reading only, from a time when the disk allowed no more.
    log.handles.forget(path)


def cut_remains(log: "AppendingLog", path: str, size_bytes: int) -> None:
    file = log.handles.get(path)
    if file.size() > size_bytes:
        file.truncate(size_bytes)


def rebuild_producers(log: "AppendingLog", next_offset: int) -> None:
    """The map from the newest good snapshot and the headers behind it."""
    log.producers.clear()
    start = log.segments[0].base_offset
    for snapshot in snapshots.newest_first(log.disk, log.folder, next_offset):
        try:
            log.producers.decode(snapshot.producers, log.now)
        except CorruptSnapshot:
            continue
        start = snapshot.point.offset
        break
    replay_segments(log.producers, log.segments, start, next_offset, log.now)
