"""What stands in a log in the end, read by raw Fetch requests: nothing of the client is used to judge the client."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from oncelog.records.arrow import to_arrow
from oncelog.records.columns import Columns, decode
from oncelog.records.header import headers
from oncelog.records.read import Record, records_of
from tests.raw import RawConnection

Numbers = NDArray[np.int64]
FETCH_BYTES = 16 << 20


class Stored(NamedTuple):
    """Of one partition: what is a number, and where it stands."""

    offsets: Numbers
    numbers: Numbers


def portions(raw: RawConnection, topic: str, partition: int) -> Iterator[tuple[int, bytes]]:
    """(first offset that is wanted, batches) from the start of the log to its end as it is now."""
    offset, end = (raw.offset_at(topic, partition, which).offset for which in (-2, -1))
    while offset < end:
        answer = raw.fetch(topic, partition, offset, partition_max_bytes=FETCH_BYTES, max_wait_ms=1000)
        assert answer.error_code.value == 0, answer.error_code
        data = bytes(answer.records or b"")
        found = [header.last_offset for _, header in headers(data)]
        assert found, f"nothing can be read at {offset} of {end} in {topic}/{partition}"
        yield offset, data
        offset = found[-1] + 1


def columns(raw: RawConnection, topic: str, partition: int) -> Iterator[Columns]:
    for offset, data in portions(raw, topic, partition):
        yield decode(data, start_offset=offset, columns={"offset", "value"})


def records(raw: RawConnection, topic: str, partition: int = 0) -> list[Record]:
    return [
        record
        for offset, data in portions(raw, topic, partition)
        for at, header in headers(data)
        if not header.is_control
        for record in records_of(data, at)
        if record.offset >= offset
    ]


def numbers(address: str | int, topic: str, partition: int) -> Numbers:
    """The values of a partition as they stand there, as integers that somebody wrote as text."""
    with RawConnection(address, timeout_s=60) as raw:
        found = [_integers(to_arrow(each).column("value")) for each in columns(raw, topic, partition)]
    return np.concatenate([np.empty(0, np.int64), *found])


def _integers(values: pa.Array) -> Numbers:
    result: Numbers = pc.cast(values.cast(pa.string()), pa.int64()).to_numpy(zero_copy_only=False)
    return result


def partition_count(address: str | int, topic: str) -> int:
    with RawConnection(address) as raw:
        (found,) = raw.call("metadata", 9, topics=[{"name": topic}], allow_auto_topic_creation=False).topics
        return len(found.partitions)


def end_offsets(address: str | int, topic: str) -> list[int]:
    count = partition_count(address, topic)
    with RawConnection(address) as raw:
        return [raw.offset_at(topic, partition, -1).offset for partition in range(count)]
