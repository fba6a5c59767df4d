"""Numbers on their way: record n holds the number n. What the producer says of each is kept for the audit.

One by one by `produce` the producer chooses the partitions itself, as most applications let it; the other two ways
spread the numbers over the partitions in turn.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from oncelog.client.producer.asynchronous import AsyncProducer
from oncelog.client.producer.bulk import Range
from oncelog.client.producer.producer import Producer
from tests.client.faults.case import ASYNC, BULK, PATIENCE_S, PRODUCE, VALUE_BYTES, Case

Int64s = NDArray[np.int64]

NUMBER_BYTES: Final = 8
FILLER: Final = b" records that compress"[: VALUE_BYTES - NUMBER_BYTES].ljust(VALUE_BYTES - NUMBER_BYTES, b".")
NEVER: Final = -2  # no report came
TABLE_ROWS: Final = 20_000
TABLES_AT_ONCE: Final = 4


def value_of(number: int) -> bytes:
    return number.to_bytes(NUMBER_BYTES, "big") + FILLER


def number_in(value: bytes) -> int:
    return int.from_bytes(value[:NUMBER_BYTES], "big")


@dataclass(slots=True)
class Told:
    """What the producer told of the records."""

    partition: Int64s  # by number
    offset: Int64s  # by number; OFFSET_INVALID where it is stored and the producer does not know where
    reports: NDArray[np.int32]  # by number
    ranges: list[Range] = field(default_factory=list)  # of tables, which have no report for a record
    bulk_rows: int = 0  # delivered ones
    errors: list[str] = field(default_factory=list)
    left: int = 0  # that no report came of in time

    @classmethod
    def about(cls, records: int) -> "Told":
        return cls(np.full(records, -1, np.int64), np.full(records, NEVER, np.int64), np.zeros(records, np.int32))

    def note(self, error: Any, message: Any) -> None:
        number = number_in(message.value())
        self.reports[number] += 1
        if error is not None:
            self.errors.append(f"{number}: {error}")
            return
        self.partition[number] = message.partition()
        self.offset[number] = message.offset()


def send(case: Case, servers: str, topic: str) -> Told:
    told = Told.about(case.records)
    ways = {PRODUCE: _one_by_one, BULK: _in_tables, ASYNC: _asynchronously}
    ways[case.way](case, servers, topic, told)
    return told


def _one_by_one(case: Case, servers: str, topic: str, told: Told) -> None:
    producer = Producer(case.properties(servers))
    note = told.note
    try:
        for number in range(case.records):
            producer.produce(topic, value_of(number), on_delivery=note)
            if not number & 0xFF:
                producer.poll(0)
        told.left = producer.flush(PATIENCE_S)
    finally:
        producer.close(0)


def _in_tables(case: Case, servers: str, topic: str, told: Told) -> None:
    producer = Producer(case.properties(servers))
    under_way = []
    try:
        for first in range(0, case.records, TABLE_ROWS):
            rows = np.arange(first, min(first + TABLE_ROWS, case.records), dtype=np.int64)
            under_way.append(producer.send(topic, table(rows, case.partitions)))
            if len(under_way) >= TABLES_AT_ONCE:
                _settle(under_way.pop(0), told)
        for each in under_way:
            _settle(each, told)
    finally:
        producer.close(0)


def _settle(handle: Any, told: Told) -> None:
    if not handle.wait(PATIENCE_S):
        told.left += handle.record_count - handle.delivered_count - handle.failed_count
    if handle.error is not None:
        told.errors.append(str(handle.error))
    told.bulk_rows += handle.delivered_count
    told.ranges += handle.ranges


def table(numbers: Int64s, partitions: int) -> pa.Table:
    """Built without an object for a row, as such tables are."""
    values = np.empty((len(numbers), VALUE_BYTES), np.uint8)
    values[:, :NUMBER_BYTES] = numbers.astype(">i8").view(np.uint8).reshape(-1, NUMBER_BYTES)
    values[:, NUMBER_BYTES:] = np.frombuffer(FILLER, np.uint8)
    ends = np.arange(len(numbers) + 1, dtype=np.int32) * VALUE_BYTES
    column = pa.Array.from_buffers(
        pa.binary(), len(numbers), [None, pa.py_buffer(ends.tobytes()), pa.py_buffer(values.tobytes())]
    )
    return pa.table({"value": column, "partition": pa.array((numbers % partitions).astype(np.int32))})


def _asynchronously(case: Case, servers: str, topic: str, told: Told) -> None:
    def note(future: "asyncio.Future[Any]") -> None:
        failure = future.exception()
        if failure is None:
            told.note(None, future.result())
        else:
            told.errors.append(str(failure))

    async def run() -> None:
        producer = AsyncProducer(case.properties(servers))
        await producer.start()
        for number in range(case.records):
            future = await producer.produce(topic, value_of(number), partition=number % case.partitions)
            future.add_done_callback(note)
            if not number & 0xFF:
                await asyncio.sleep(0)
        try:
            await asyncio.wait_for(producer.flush(), PATIENCE_S)
        except TimeoutError:
            told.left = len(producer)
            await producer.purge()
        await producer.close()

    asyncio.run(run())
