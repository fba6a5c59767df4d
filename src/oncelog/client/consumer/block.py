"""Records that are decoded and not handed out yet: as an iterator of Messages that knows how far it has come."""

from collections.abc import Iterable, Iterator
from itertools import chain, repeat
from operator import length_hint

from oncelog.client.consumer.message import Message, RawHeaders, Source

Runs = list[tuple[Source, int]]


class Block:
    """Rows of one partition.

    Messages come into being one by one as they are taken (`rows`), in C: many objects at once would set Python's
    collector to work. How many were taken is seen from what is left of the list of offsets; nothing is counted.
    """

    __slots__ = ("_left", "_offsets", "_runs", "rows")

    def __init__(
        self,
        offsets: list[int],
        timestamps_ms: Iterable[int],
        keys: Iterable[bytes | None],
        values: Iterable[bytes | None],
        headers: Iterable[RawHeaders | None],
        runs: Runs,
    ) -> None:
        self._offsets = offsets
        self._left = iter(offsets)
        self._runs = runs
        sources = repeat(runs[0][0]) if len(runs) == 1 else chain.from_iterable(repeat(*run) for run in runs)
        self.rows: Iterator[Message] = map(Message, values, keys, self._left, timestamps_ms, headers, sources)

    @property
    def taken(self) -> int:
        return len(self._offsets) - length_hint(self._left)

    def position(self, taken: int) -> tuple[int, int] | None:
        """The offset behind the first `taken` records and the epoch of the last of them; None for none."""
        if taken <= 0:
            return None
        try:
            return self._offsets[taken - 1] + 1, self._epoch_of(taken - 1)
        except IndexError:  # dropped, perhaps by another thread just now
            return None

    def _epoch_of(self, row: int) -> int:
        for source, count in self._runs:
            if row < count:
                return source.leader_epoch
            row -= count
        return -1

    def drop(self) -> None:
        """Nothing more comes out of `rows`, also for an iteration that has begun."""
        self._offsets.clear()
