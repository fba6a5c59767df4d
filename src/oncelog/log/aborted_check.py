"""Whether the file `aborted` says what follows from the log, as far as a start would believe it."""

from oncelog.log.aborted import Aborted, entries_in
from oncelog.log.batch_replay import aborted_of
from oncelog.log.disk import Disk, read_whole
from oncelog.log.names import ABORTED_FILE
from oncelog.log.snapshots import Snapshot
from oncelog.records.header import BatchHeader

MEND = "Remove it while the server is stopped; a start makes it anew"


class AbortedCheck:
    def __init__(self, disk: Disk, folder: str) -> None:
        path = f"{folder}/{ABORTED_FILE}"
        try:
            data = read_whole(disk, path) if disk.exists(path) else b""
        except OSError:
            data = b""  # as good as none
        self._dropped, entries = entries_in(data)
        self._stored = list(entries)
        self._seen: set[Aborted] = set()

    def saw(self, header: BatchHeader, batch: bytes) -> None:
        found = aborted_of(header, batch)
        if found is not None:
            self._seen.add(found)

    def note(self, point: Snapshot | None) -> str:
        """A note that a start will make the file anew; empty where it takes the file as it is: the file has as many
        as its recovery point says."""
        known = 0 if point is None else point.aborted
        is_taken = self._dropped + len(self._below(point)) == known
        return "" if is_taken else f"{ABORTED_FILE} is missing or wrong; a start makes it anew"

    def damage(self, point: Snapshot | None, start_offset: int, compacted_to: int) -> str:
        """Transactions that readers of committed records would miss, or take for committed. Those that ended before
        `start_offset` are of no use, and before `compacted_to` they may be dropped."""
        stored = set(self._below(point))
        wrong = {each for each in stored - self._seen if each.marker_offset >= start_offset}
        since = max(start_offset, compacted_to)
        lacking = {each for each in self._seen - stored if since <= each.marker_offset < _end(point)}
        for found, what in ((wrong, "has"), (lacking, "lacks")):
            if found:
                first = min(found, key=lambda each: each.marker_offset)
                return (
                    f"{ABORTED_FILE} {what} a transaction of the producer {first.pid} from offset {first.first_offset} "
                    f"to its end at {first.marker_offset}, and the log does{'' if what == 'lacks' else ' not'}; "
                    f"so with {len(found)} in all. {MEND}"
                )
        return ""

    def _below(self, point: Snapshot | None) -> list[Aborted]:
        return [each for each in self._stored if each.marker_offset < _end(point)]


def _end(point: Snapshot | None) -> int:
    """The recovery point: behind it a start goes by the log."""
    return 0 if point is None else point.point.offset
