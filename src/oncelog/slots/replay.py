"""The records that a replay must be equal to.

A resumed application produces again what it produced before, and the first n outputs of each partition stand in the log
already. They are dropped, not sent, but each is compared with what stands in its slot: only while a replay yields the
same records are slots safe. The first difference ends it; nothing more may be written.

Two streams meet here, outputs from the application and slots read back from the log, in whatever order they arrive.
"""

from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple

from oncelog.slots.comparing import Content, Headers, difference
from oncelog.slots.errors import CannotTell, Differs
from oncelog.slots.identity import Identity


class Output(NamedTuple):
    """A record as the application produces it."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int | None  # None: the user set none, so it is not compared
    payload: Any = None

    @property
    def content(self) -> Content:
        return Content(self.key, self.value, self.headers, self.timestamp_ms)


class Slot(NamedTuple):
    """A record as it stands in the log."""

    identity: Identity
    sequence: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int
    is_append_time: bool = False  # then its timestamp is the broker's, and is not compared

    @property
    def content(self) -> Content:
        return Content(self.key, self.value, self.headers, None if self.is_append_time else self.timestamp_ms)

    def place_in(self, topic: str, partition: int) -> str:
        pid, generation, _ = self.identity
        return (
            f"{topic}-{partition}, sequence {self.sequence} of producer {pid} (generation {generation}), "
            f"offset {self.offset}"
        )


class Dropped(NamedTuple):
    output: Output
    slot: Slot


class PartitionReplay:
    """The first `records` outputs of one partition."""

    def __init__(self, topic: str, partition: int, records: int) -> None:
        self.topic = topic
        self.partition = partition
        self.records = records
        self._untaken = records  # outputs that are still to come
        self._unread = records  # slots that are still to be read
        self._outputs: deque[Output] = deque()
        self._slots: deque[Slot] = deque()

    @property
    def takes(self) -> bool:
        """Whether the next output of this partition is one that stands in the log already."""
        return self._untaken > 0

    @property
    def is_over(self) -> bool:
        """All n outputs came and were equal."""
        return self._untaken == self._unread == 0 and not self._outputs and not self._slots

    @property
    def outputs_waiting(self) -> int:
        return len(self._outputs)

    @property
    def outputs_to_come(self) -> int:
        return self._untaken

    @property
    def slots_waiting(self) -> int:
        return len(self._slots)

    def offer(self, output: Output) -> None:
        """The application produced this; only while `takes`."""
        assert self._untaken, "the replay of this partition has all its outputs"
        self._untaken -= 1
        self._outputs.append(output)

    def stands(self, slots: Iterable[Slot]) -> None:
        """Take in slots that were read back, in the order of their sequences."""
        for slot in slots:
            if not self._unread:
                return
            self._unread -= 1
            self._slots.append(slot)

    def ended(self) -> None:
        """The log has no more slots of this producer."""
        if self._unread:
            raise CannotTell(
                f"{self.topic}-{self.partition}: {self._unread} of {self.records} records that are there by their "
                "numbers could not be read back (compacted, deleted, or beyond the high watermark): "
                "they cannot be compared with the replay",
                "Start from a position whose outputs are all there",
            )

    def dropped(self) -> list[Dropped]:
        """The outputs that stand in the log as they are, with their slots; raises at the first difference."""
        found = []
        while self._outputs and self._slots:
            output, slot = self._outputs[0], self._slots[0]
            check_equal(self.topic, self.partition, output, slot)
            self._outputs.popleft()
            self._slots.popleft()
            found.append(Dropped(output, slot))
        return found


def check_equal(topic: str, partition: int, output: Output, slot: Slot) -> None:
    """Raises Differs where the slot holds something else than the output."""
    found = difference(output.content, slot.content)
    if found is not None:
        raise Differs(
            f"{slot.place_in(topic, partition)}: {found}. The replay did not produce "
            "what the first run did, so it cannot be told which outputs are missing; nothing more is written. "
            "What feeds this producer must give the same records in the same order"
        )
