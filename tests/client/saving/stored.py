"""What a topic holds in the end, read by hand: nothing of the client is used to judge the client."""

from collections import defaultdict
from typing import NamedTuple

from oncelog.records.read import Record
from tests.lives.stored import records
from tests.raw import RawConnection


class Stored(NamedTuple):
    records: list[tuple[int, Record]]

    @property
    def total(self) -> int:
        return len(self.records)

    def numbers(self) -> list[int]:
        """The number at the end of each value."""
        return [number for numbers in self.by_partition().values() for number in numbers]

    def by_partition(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = defaultdict(list)
        for partition, record in self.records:
            found[partition].append(int((record.value or b"").split()[-1]))
        return found


def stored(raw: RawConnection, topic: str, partitions: int = 3) -> Stored:
    return Stored([(index, record) for index in range(partitions) for record in records(raw, topic, index)])
