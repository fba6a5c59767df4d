"""A limit on hearing the same thing again: an outage tries a hundred times and loses a thousand records."""

import logging
import threading
from collections.abc import Callable
from typing import Final

from oncelog.client.errors import KafkaError, error_of
from oncelog.client.producer.delivery import Report

_log: Final = logging.getLogger("oncelog.client")

AGAIN_S: Final = 5.0
AGAIN_WHEN_BACK_S: Final = 1.0  # after something was answered, which is another outage then
MOST_KNOWN: Final = 64
LINE_EVERY_S: Final = 1.0
PURGED: Final = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})


class Repeats:
    """Passes errors on, but the same one only now and then; and knows the last one while nothing is answered."""

    def __init__(self, tell: Callable[[KafkaError], None], now_s: Callable[[], float]) -> None:
        self._tell = tell
        self._now_s = now_s
        self.told_s: dict[tuple[int, str], float] = {}  # in the order in which they were told
        self._answered_s = 0.0
        self._trouble: KafkaError | None = None

    def answered(self) -> None:
        """A broker is there, as far as we can see."""
        self._answered_s = self._now_s()
        self._trouble = None

    def late(self) -> KafkaError:
        """The error of a record whose time is over: what was in the way."""
        return error_of(KafkaError._MSG_TIMED_OUT, None if self._trouble is None else self._trouble.str())

    def tell(self, error: KafkaError) -> None:
        self._trouble = error
        now_s = self._now_s()
        line = (error.code(), error.str())
        told_s = self.told_s.get(line)
        if told_s is not None:
            is_back = self._answered_s > told_s
            if now_s - told_s < (AGAIN_WHEN_BACK_S if is_back else AGAIN_S):
                return
            del self.told_s[line]
        elif len(self.told_s) >= MOST_KNOWN:
            del self.told_s[next(iter(self.told_s))]
        self.told_s[line] = now_s
        self._tell(error)


class Unheard:
    """Records that failed and have no callback to say so: a line in the log, at most one a second."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._lock = threading.Lock()
        self._count = 0
        self._first = ""
        self._next_line_s = 0.0
        self.is_closing = False

    def failed(self, report: Report) -> None:
        """A report of failure. Who purges knows what he does, unless it is the end that does it. For any thread."""
        records, error = report.records, report.error
        assert error is not None
        if error.code() in PURGED and not self.is_closing:
            return
        if records.handle is not None:
            count = 0 if records.handle.is_watched else records.count
        else:
            count = records.count if records.callbacks is None else records.callbacks.count(None)
        if not count:
            return
        with self._lock:
            self._count += count
            self._first = self._first or f"{records.topic} [{records.partition}]: {error.str()}"
        self.say_due()

    def due_s(self) -> float | None:
        return self._next_line_s if self._count else None

    def say_due(self) -> None:
        if self._count and self._now_s() >= self._next_line_s:
            self.say()

    def say(self) -> None:
        with self._lock:
            count, first = self._count, self._first
            self._count, self._first = 0, ""
            self._next_line_s = self._now_s() + LINE_EVERY_S
        if count:
            who = "1 record was" if count == 1 else f"{count} records were"
            _log.warning("%s not delivered and had no on_delivery to hear of it; the first, of %s", who, first)
