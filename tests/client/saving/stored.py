"""What a topic holds in the end, read by hand: nothing of the client is used to judge the client."""

from collections import defaultdict
from typing import NamedTuple

from oncelog.records.header import headers
from oncelog.records.read import Record, records_of
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
    found: list[tuple[int, Record]] = []
    for partition in range(partitions):
        offset, end = (raw.offset_at(topic, partition, which).offset for which in (-2, -1))
        while offset < end:
            data = raw.fetch(topic, partition, offset, max_wait_ms=500).records or b""
            for at, header in headers(data):
                if not header.is_control:
                    found += [(partition, record) for record in records_of(data, at) if record.offset >= offset]
                offset = header.last_offset + 1
    return Stored(found)
