"""A compacted topic of one partition as those see it who fetch from it: what counts, a portion at a time."""

from collections.abc import Iterable
from random import Random

from oncelog.slots.register import Record


class CompactedTopic:
    def __init__(self, random: Random) -> None:
        self.random = random
        self.records: list[Record] = []
        self.end = 0
        self.shown = 0  # to those who fetch: the high watermark that the leader knows

    def store(self, pairs: Iterable[tuple[bytes | None, bytes | None]]) -> int:
        """The first offset."""
        first = self.end
        for key, value in pairs:
            self.records.append(Record(self.end, key, value))
            self.end += 1
        return first

    def elect(self) -> None:
        """The new leader has every record, and does not know of the last ones that all have them."""
        self.shown = self.random.randint(max(0, self.end - 6), self.end)

    def compact(self) -> None:
        """What has a younger record of its key goes, and tombstones, of those that nobody could lose any more."""
        newest = {each.key: each.offset for each in self.records if each.offset < self.shown}
        self.records = [
            each
            for each in self.records
            if each.offset >= self.shown
            or (newest[each.key] == each.offset and (each.value is not None or self.random.random() < 0.3))
        ]

    def fetch(self, offset: int) -> tuple[list[Record], int]:
        """(records, where to go on)"""
        there = [each for each in self.records if offset <= each.offset < self.shown]
        some = there[: self.random.randint(1, 4)]
        return some, some[-1].offset + 1 if len(some) < len(there) else max(offset, self.shown)
