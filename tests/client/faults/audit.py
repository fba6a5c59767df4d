"""Every record read back and looked at, one by one: what is there twice, what is missing, what stands out of order.

The log is read by raw Fetch requests, past the proxy and past our consumer, so that only the producer is on trial.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from oncelog.client.types import OFFSET_INVALID
from tests.client.faults.case import PRODUCE, VALUE_BYTES, Case
from tests.client.faults.sending import NUMBER_BYTES, Int64s, Told
from tests.lives.count import counted
from tests.lives.stored import Stored, columns
from tests.raw import RawConnection


class Audit(NamedTuple):
    stored: int
    duplicates: int
    lost: int
    reordered: int  # a number that stands behind a larger one
    misplaced: int  # in another partition than it was produced to
    wrong_reports: int  # not exactly one for each record, or the log has something else where it says
    unknown_offsets: int  # reported as stored, it is not known where

    @property
    def is_exact(self) -> bool:
        return not (self.duplicates or self.lost or self.reordered or self.misplaced or self.wrong_reports)


def read_log(servers: str, topic: str, partitions: int) -> list[Stored]:
    with RawConnection(servers, timeout_s=60) as raw:
        return [read_partition(raw, topic, partition) for partition in range(partitions)]


def read_partition(raw: RawConnection, topic: str, partition: int) -> Stored:
    offsets: list[Int64s] = [np.empty(0, np.int64)]
    numbers: list[Int64s] = [np.empty(0, np.int64)]
    for found in columns(raw, topic, partition):
        assert found.offset is not None and found.value is not None
        offsets.append(found.offset)
        numbers.append(_numbers(found.value.ends, found.value.data))
    return Stored(np.concatenate(offsets), np.concatenate(numbers))


def _numbers(ends: NDArray[np.int32] | Int64s, data: NDArray[np.uint8]) -> Int64s:
    assert (np.diff(ends) == VALUE_BYTES).all(), "a value that nobody produced"
    values = data[int(ends[0]) : int(ends[-1])].reshape(-1, VALUE_BYTES)
    return np.ascontiguousarray(values[:, :NUMBER_BYTES]).view(">i8").reshape(-1).astype(np.int64)


def audit(case: Case, logs: list[Stored], told: Told) -> Audit:
    found = counted(case.records, {index: log.numbers for index, log in enumerate(logs)})
    assert not found.all.foreign, "a strange number"
    misplaced = 0
    if case.way != PRODUCE:
        misplaced = sum(int((log.numbers % case.partitions != index).sum()) for index, log in enumerate(logs))
    return Audit(
        stored=found.all.received,
        duplicates=found.all.duplicates,
        lost=found.missing,
        reordered=found.all.out_of_order,
        misplaced=misplaced,
        wrong_reports=_wrong_ranges(logs, told) if told.ranges else _wrong_reports(logs, told),
        unknown_offsets=_unknown_offsets(told),
    )


def _wrong_reports(logs: list[Stored], told: Told) -> int:
    wrong = int((told.reports != 1).sum())
    for index, log in enumerate(logs):
        mine = np.flatnonzero((told.partition == index) & (told.offset >= 0))
        wrong += int((_standing_at(log, told.offset[mine]) != mine).sum())
    return wrong


def _standing_at(log: Stored, offsets: Int64s) -> Int64s:
    """The number at each of these offsets, -1 where there is none."""
    if not len(log.offsets):
        return np.full(len(offsets), -1, np.int64)
    at = np.searchsorted(log.offsets, offsets).clip(0, len(log.offsets) - 1)
    return np.where(log.offsets[at] == offsets, log.numbers[at], -1)


def _wrong_ranges(logs: list[Stored], told: Told) -> int:
    """Records that ranges name though they do not stand there, or name twice."""
    wrong = 0
    for index, log in enumerate(logs):
        named = [
            np.arange(each.first_offset, each.first_offset + each.record_count)
            for each in told.ranges
            if each.partition == index and each.first_offset >= 0
        ]
        offsets = np.concatenate([np.empty(0, np.int64), *named])
        wrong += len(offsets) - len(np.unique(offsets))
        wrong += int((_standing_at(log, offsets) < 0).sum())
    return wrong + abs(told.bulk_rows - sum(each.record_count for each in told.ranges))


def _unknown_offsets(told: Told) -> int:
    if told.ranges:
        return sum(each.record_count for each in told.ranges if each.first_offset < 0)
    return int((told.offset == OFFSET_INVALID).sum())
