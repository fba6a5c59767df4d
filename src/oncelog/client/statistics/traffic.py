"""Counters of what went to each broker and came back. Nothing is counted where statistics are off."""

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from struct import Struct
from typing import Any, Final

from oncelog.wire.requests import api_name

MOST_SAMPLES: Final = 4_096  # of one window; percentiles are those of the newest
SIZE_BYTES: Final = 4  # before each frame
PERCENTILES: Final = {"p50": 0.5, "p75": 0.75, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p99_99": 0.9999}

_api_key = Struct(">4xh")

Buffer = bytes | bytearray | memoryview


@dataclass(slots=True)
class Carried:
    """Records of one partition that went out or came in; one that was sent twice counts twice, as in librdkafka."""

    records: int = 0
    size_bytes: int = 0

    def add(self, records: int, size_bytes: int) -> None:
        self.records += records
        self.size_bytes += size_bytes


class Window:
    """Values since they were last told."""

    __slots__ = ("_count", "_largest", "_samples", "_smallest", "_sum", "_sum_of_squares")

    def __init__(self) -> None:
        self._samples: deque[int] = deque(maxlen=MOST_SAMPLES)
        self._begin()

    def _begin(self) -> None:
        self._samples.clear()
        self._count = self._sum = self._sum_of_squares = self._smallest = self._largest = 0

    def add(self, value: int) -> None:
        self._smallest = min(self._smallest, value) if self._count else value
        self._largest = max(self._largest, value)
        self._count += 1
        self._sum += value
        self._sum_of_squares += value * value
        self._samples.append(value)

    def take(self) -> dict[str, int]:
        """The counts under librdkafka's names; the next window begins."""
        count, ordered = self._count, sorted(self._samples)
        average = self._sum / count if count else 0.0
        variance = max(0.0, self._sum_of_squares / count - average * average) if count else 0.0
        told = {
            "min": self._smallest,
            "max": self._largest,
            "avg": round(average),
            "sum": self._sum,
            "cnt": count,
            "stddev": round(sqrt(variance)),
            "outofrange": count - len(ordered),
        }
        for name, share in PERCENTILES.items():
            told[name] = ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else 0
        self._begin()
        return told


class Traffic:
    """The traffic of one address, over all connections that ever led there."""

    def __init__(self, now_s: float) -> None:
        self.requests: Counter[int] = Counter()  # by API key
        self.sent_bytes = 0
        self.answers = 0
        self.received_bytes = 0
        self.timeouts = 0
        self.rubbish = 0  # answers that cannot be
        self.attempts = 0
        self.failures = 0  # of these
        self.losses = 0
        self.retries = 0  # Produce requests that carried a batch again
        self.opened = 0  # connections
        self.changed_s = now_s  # when the first was opened or the last was lost
        self.sent_s = self.received_s = now_s
        self.round_trip_us = Window()
        self.throttle_ms = Window()
        self.queued_us = Window()  # from the first record of a batch to its request

    def connected(self, now_s: float) -> None:
        if self.opened == 0:
            self.changed_s = now_s
        self.opened += 1

    def lost(self, now_s: float) -> None:
        self.losses += 1
        self.opened -= 1
        if self.opened == 0:
            self.changed_s = now_s

    def sent(self, buffers: Sequence[Buffer], now_s: float) -> None:
        (key,) = _api_key.unpack_from(buffers[0])
        self.requests[key] += 1
        self.sent_bytes += sum(map(len, buffers))
        self.sent_s = now_s

    def received(self, frame_bytes: int, now_s: float, sent_s: float) -> None:
        self.answers += 1
        self.received_bytes += frame_bytes + SIZE_BYTES
        self.received_s = now_s
        self.round_trip_us.add(int((now_s - sent_s) * 1_000_000))

    def fields(self, now_s: float) -> dict[str, Any]:
        return {
            "state": "UP" if self.opened > 0 else "DOWN" if self.failures or self.losses else "INIT",
            "stateage": _us(now_s - self.changed_s),
            "tx": self.requests.total(),
            "txbytes": self.sent_bytes,
            "txerrs": self.failures,
            "txretries": self.retries,
            "txidle": _us(now_s - self.sent_s),
            "req_timeouts": self.timeouts,
            "rx": self.answers,
            "rxbytes": self.received_bytes,
            "rxerrs": self.rubbish,
            "rxidle": _us(now_s - self.received_s),
            "connects": self.attempts,
            "disconnects": self.losses,
            "int_latency": self.queued_us.take(),
            "rtt": self.round_trip_us.take(),
            "throttle": self.throttle_ms.take(),
            "req": {api_name(key): count for key, count in sorted(self.requests.items())},
        }


def _us(seconds: float) -> int:
    return max(0, int(seconds * 1_000_000))
