"""The row of a task that failed: a producer reports failures later, and under row numbers of its own."""

import re
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from oncelog.client import KafkaError
from oncelog.spark.sink.rows import Portion

if TYPE_CHECKING:
    from oncelog.client.door import BulkSend

_ROW: Final = re.compile(r"row (\d+): (.*)", re.DOTALL)


def in_lane(words: str, numbers: Any) -> str | None:
    """The words about a row of a portion, with the row's number in the lane; None where they name no row."""
    named = _ROW.match(words)
    return None if named is None else f"row {int(numbers[int(named[1])])}: {named[2]}"


class UnderWay:
    """Portions in the order in which they were handed over, until they are in the log."""

    def __init__(self) -> None:
        self._sent: deque[tuple[BulkSend, Any]] = deque()

    def add(self, handle: "BulkSend", portion: Portion) -> None:
        while self._sent and self._sent[0][0].done() and self._sent[0][0].error is None:
            self._sent.popleft()
        self._sent.append((handle, portion.numbers))

    def refused(self) -> KafkaError | None:
        """The first failure that names a row."""
        for handle, numbers in self._sent:
            error = handle.error
            words = None if error is None else in_lane(error.str(), numbers)
            if error is not None and words is not None:
                return KafkaError(error.code(), words)
        return None
