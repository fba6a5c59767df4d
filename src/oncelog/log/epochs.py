"""Which leader epoch began at which offset. Kept as text in `leader-epochs`, in the format of Kafka's own checkpoint.

Followers and clients ask where an epoch ended, to find out from where on their copy differs (KIP-101, KIP-320).
"""

from bisect import bisect_right
from itertools import pairwise

UNKNOWN_EPOCH = (-1, -1)


class LeaderEpochs:
    def __init__(self, entries: list[tuple[int, int]] | None = None) -> None:
        self._entries = entries or []  # (epoch, start offset), both growing
        self.changed = False

    @property
    def latest(self) -> int:
        return self._entries[-1][0] if self._entries else -1

    @property
    def entries(self) -> tuple[tuple[int, int], ...]:
        return tuple(self._entries)

    def assign(self, epoch: int, start_offset: int) -> None:
        """An epoch that turns out to hold nothing, or that another leader overruled, gives way."""
        if epoch == self.latest and self._entries[-1][1] <= start_offset:
            return
        while self._entries and (self._entries[-1][0] >= epoch or self._entries[-1][1] >= start_offset):
            self._entries.pop()
        self._entries.append((epoch, start_offset))
        self.changed = True

    def end_of(self, epoch: int, next_offset: int) -> tuple[int, int]:
        """The greatest epoch up to the one asked for, and the offset where it ended; (-1, -1) for one yet to come."""
        if epoch < 0 or epoch > self.latest:
            return UNKNOWN_EPOCH
        if epoch == self.latest:
            return epoch, next_offset
        after = bisect_right(self._entries, epoch, key=lambda entry: entry[0])
        end_offset = self._entries[after][1]
        return (epoch if after == 0 else self._entries[after - 1][0]), end_offset

    def cut_end(self, next_offset: int) -> None:
        while self._entries and self._entries[-1][1] >= next_offset:
            self._entries.pop()
            self.changed = True

    def cut_start(self, log_start_offset: int) -> None:
        """Epochs that ended before the log's start are of no use; the one that holds the start now begins there."""
        after = bisect_right(self._entries, log_start_offset, key=lambda entry: entry[1])
        if after >= 1 and self._entries[after - 1][1] < log_start_offset:
            self._entries[:after] = [(self._entries[after - 1][0], log_start_offset)]
            self.changed = True

    def encode(self) -> bytes:
        lines = ["0", str(len(self._entries)), *(f"{epoch} {offset}" for epoch, offset in self._entries)]
        return ("\n".join(lines) + "\n").encode()

    @classmethod
    def decode(cls, data: bytes) -> "LeaderEpochs":
        """ValueError when it is not whole: then the epochs are read from the batches."""
        version, count, *lines = data.decode("ascii").splitlines()
        if version != "0" or int(count) != len(lines):
            raise ValueError(f"{len(lines)} leader epochs where {count} are announced, version {version}")
        entries = [(int(epoch), int(offset)) for epoch, offset in (line.split(" ") for line in lines)]
        if any(one[0] >= other[0] or one[1] > other[1] for one, other in pairwise(entries)):
            raise ValueError("leader epochs out of order")
        return cls(entries)
