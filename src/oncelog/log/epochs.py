"""The offset at which each leader epoch began. Kept in the snapshots: count u32, then each as epoch i32, start offset
i64.

What began behind the recovery point is read from the batches, which all carry their epoch.
Followers and clients ask where an epoch ended, to find out from where on their copy differs (KIP-101, KIP-320).
"""

import struct
from bisect import bisect_left, bisect_right

UNKNOWN_EPOCH = (-1, -1)
_COUNT = struct.Struct(">I")
_ENTRY = struct.Struct(">iq")


class LeaderEpochs:
    def __init__(self, entries: list[tuple[int, int]] | None = None) -> None:
        self._entries = entries or []  # (epoch, start offset), both growing
        self.current = 0  # in which this log is appended to; it may hold nothing yet

    @property
    def latest(self) -> int:
        return self._entries[-1][0] if self._entries else -1

    @property
    def entries(self) -> tuple[tuple[int, int], ...]:
        return tuple(self._entries)

    def copy(self) -> "LeaderEpochs":
        return LeaderEpochs(list(self._entries))

    def begin(self, epoch: int, next_offset: int) -> None:
        self.current = epoch
        self.assign(epoch, next_offset)

    def follow_from(self, epoch: int, next_offset: int) -> None:
        """Another broker leads in it; it holds something once a batch of it is here. One that this log began itself
        and that holds nothing is known to nobody else."""
        self.cut_end(next_offset)
        self.current = max(self.current, epoch)

    def follow(self, epoch: int, start_offset: int) -> None:
        """A batch of another leader."""
        self.assign(epoch, start_offset)
        self.current = max(self.current, self.latest)

    def assign(self, epoch: int, start_offset: int) -> None:
        """An epoch that turns out to hold nothing, or that another leader overruled, gives way."""
        if epoch == self.latest and self._entries[-1][1] <= start_offset:
            return
        while self._entries and (self._entries[-1][0] >= epoch or self._entries[-1][1] >= start_offset):
            self._entries.pop()
        self._entries.append((epoch, start_offset))

    def last_before(self, offset: int) -> int:
        """The epoch in which what ends there was appended; -1 where nothing is known of it."""
        at = bisect_left(self._entries, offset, key=lambda entry: entry[1])
        return self._entries[at - 1][0] if at else -1

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

    def cut_start(self, log_start_offset: int) -> None:
        """Epochs that ended before the log's start are of no use; the one that holds the start now begins there."""
        after = bisect_right(self._entries, log_start_offset, key=lambda entry: entry[1])
        if after >= 1 and self._entries[after - 1][1] < log_start_offset:
            self._entries[:after] = [(self._entries[after - 1][0], log_start_offset)]

    def forget_below(self, first_offset: int) -> None:
        """Forget the epochs below an offset. Where brokers follow one another, the epoch of what ended there stays, for
        others that end there, too."""
        del self._entries[: max(0, bisect_left(self._entries, first_offset, key=lambda entry: entry[1]) - 1)]

    def replace(self, by: "LeaderEpochs") -> None:
        """All but the one that others lead in by now."""
        self._entries = list(by.entries)

    def encode(self) -> bytes:
        return _COUNT.pack(len(self._entries)) + b"".join(_ENTRY.pack(*entry) for entry in self._entries)

    @classmethod
    def decode(cls, data: bytes) -> "LeaderEpochs":
        (count,) = _COUNT.unpack_from(data)
        return cls([_ENTRY.unpack_from(data, _COUNT.size + number * _ENTRY.size) for number in range(count)])

    @property
    def encoded_bytes(self) -> int:
        return _COUNT.size + len(self._entries) * _ENTRY.size
