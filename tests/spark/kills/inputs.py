"""Topics full of integers, and what a pipeline must make of them."""

import time

import numpy as np
import pyarrow as pa

from oncelog.records.arrow import bytes_column
from oncelog.records.columns import encode
from tests.lives.stored import Numbers, numbers, partition_count
from tests.raw import RawConnection
from tests.spark.kills.audit import Expected, expected_of
from tests.spark.kills.queries import COPIES, MOST_COPIES

BATCH_BYTES = 200_000


def write_integers(address: str, topic: str, partitions: int, first: int, last: int) -> None:
    """The integers from `first` to before `last`, each in the partition that it leaves when divided by their number."""
    everything = np.arange(first, last, dtype=np.int64)
    for partition in range(partitions):
        write_values(address, topic, partition, everything[everything % partitions == partition])


def write_values(address: str, topic: str, partition: int, values: Numbers) -> None:
    if len(values) == 0:
        return
    now_ms = time.time_ns() // 1_000_000  # old ones would soon be gone by retention
    column = bytes_column(pa.array(values).cast(pa.string()).cast(pa.binary()))
    with RawConnection(address) as connection:
        for batch in encode(value=column, timestamp_ms=now_ms, target_bytes=BATCH_BYTES):
            answer = connection.produce(topic, partition, bytes(batch.data))
            assert answer.error_code.value == 0, answer.error_code


def make_topics(address: str, partitions: dict[str, int]) -> None:
    with RawConnection(address) as connection:
        for name, count in partitions.items():
            assert connection.create_topic(name, count).value == 0, name


def expected_from(address: str, topic: str, middle: str = "same") -> Expected:
    """What the output must hold when all of this topic went through the middle."""
    columns = [numbers(address, topic, partition) for partition in range(partition_count(address, topic))]
    return expected_of(columns, expand_many if middle == "many" else None)


def expand_many(x: Numbers) -> tuple[Numbers, Numbers]:
    copies = np.array(COPIES)[x % len(COPIES)]
    sources = np.repeat(np.arange(len(x)), copies)
    starts = np.repeat(np.cumsum(copies) - copies, copies)
    return x[sources] * MOST_COPIES + (np.arange(len(sources)) - starts), sources
