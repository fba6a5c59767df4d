"""Reports of a producer in a process of its own to the experiment, over a pipe: how many messages it has sent, how many
failed for good, which were confirmed since it last said so, and how long that took. Pure."""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

_HEAD: Final = struct.Struct("<QQdI")
MOST_NUMBERS: Final = 1_000_000  # in one report


class BadReport(ValueError):
    """The bytes from the pipe are no report."""


class Report(NamedTuple):
    sent: int
    failed: int
    slowest_ms: float  # from sending to confirmation, of those that were looked at since the last report
    confirmed: NDArray[np.int64]


def pack(report: Report) -> bytes:
    numbers = np.ascontiguousarray(report.confirmed, np.dtype("<i8"))
    return _HEAD.pack(report.sent, report.failed, report.slowest_ms, len(numbers)) + numbers.tobytes()


class Reports:
    """Out of bytes as they arrive; what a killed process left half-written never becomes one."""

    def __init__(self) -> None:
        self._pending = bytearray()

    def take(self, data: bytes) -> Iterator[Report]:
        self._pending += data
        while len(self._pending) >= _HEAD.size:
            sent, failed, slowest_ms, count = _HEAD.unpack_from(self._pending)
            if count > MOST_NUMBERS:
                raise BadReport(f"a report of {count:,} messages, where {MOST_NUMBERS:,} are the most")
            end = _HEAD.size + 8 * count
            if len(self._pending) < end:
                return
            numbers = np.frombuffer(bytes(self._pending[_HEAD.size : end]), np.dtype("<i8")).astype(np.int64)
            del self._pending[:end]
            yield Report(sent, failed, slowest_ms, numbers)
