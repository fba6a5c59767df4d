"""The progress of compaction, in the file `cleaner` of a partition's folder. Its loss costs only time.

A wrong one would cost more: what it says was looked at is not looked at again, and transactions that were aborted
before are forgotten. So it ends with a check sum, but in folders of earlier versions.
"""

import logging
from bisect import bisect_right
from dataclasses import dataclass, field

from crc32c import crc32c

from oncelog.log.disk import Disk, read_whole, replace_file
from oncelog.log.names import CLEANER_FILE

logger = logging.getLogger(__name__)

MAX_PASSES = 32  # remembered, for the age of tombstones


@dataclass(slots=True)
class CleanerState:
    """The beginning of the next pass, and when which pass ended where."""

    dirty_offset: int = 0
    passes: list[tuple[int, int]] = field(default_factory=list)  # (end offset, wall clock ms)

    def first_pass_ms(self, offset: int) -> int | None:
        at = bisect_right(self.passes, offset, key=lambda one: one[0])
        return self.passes[at][1] if at < len(self.passes) else None

    @property
    def gaps_below(self) -> int:
        """The offset below which records may have been taken out, by a pass that was not finished, too."""
        return max((self.dirty_offset, *(end_offset for end_offset, _ in self.passes)))

    def passes_over(self, end_offset: int, wall_ms: int) -> None:
        """Said before the first segment changes. `dirty_offset` moves when the last one has."""
        self.passes.append((end_offset, wall_ms))
        # Forgetting the oldest makes its tombstones look younger: they stay a little longer.
        del self.passes[:-MAX_PASSES]

    def encode(self) -> bytes:
        lines = "".join(f"{a} {b}\n" for a, b in [(self.dirty_offset, len(self.passes)), *self.passes])
        return f"{lines}{_sum_of(lines)}\n".encode()

    @classmethod
    def decode(cls, data: bytes) -> "CleanerState":
        if not data.endswith(b"\n"):
            raise ValueError("it is cut off")
        lines = data.decode().splitlines(keepends=True)
        if lines and " " not in lines[-1]:
            told = lines.pop()
            if told != f"{_sum_of(''.join(lines))}\n":
                raise ValueError("its check sum does not fit its content")
        (offset, count), *passes = [tuple(map(int, line.split(" "))) for line in lines]
        if count != len(passes):
            raise ValueError(f"{len(passes)} passes where {count} are announced")
        return cls(offset, [(end, wall_ms) for end, wall_ms in passes])


def _sum_of(lines: str) -> str:
    return f"{crc32c(lines.encode()):08x}"


def save_state(disk: Disk, folder: str, state: CleanerState) -> None:
    replace_file(disk, f"{folder}/{CLEANER_FILE}", state.encode())


def load_state(disk: Disk, folder: str) -> CleanerState:
    path = f"{folder}/{CLEANER_FILE}"
    if disk.exists(path):
        try:
            return CleanerState.decode(read_whole(disk, path))
        except ValueError as error:
            logger.warning("%s is not usable (%s): compaction begins anew", path, error)
    return CleanerState()


def cut_state(disk: Disk, folder: str, end_offset: int) -> None:
    """The log ends there from now on: what comes next was not looked at, and has no gaps yet."""
    state = load_state(disk, folder)
    if state.gaps_below > end_offset:
        state.dirty_offset = min(state.dirty_offset, end_offset)
        state.passes = [(min(end, end_offset), wall_ms) for end, wall_ms in state.passes]
        save_state(disk, folder, state)
