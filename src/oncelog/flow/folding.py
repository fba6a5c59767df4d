"""A cell's input through the user's functions once, without a stop: what its outputs and its state must come to."""

from collections.abc import Iterable, Sequence
from typing import Final

from oncelog.flow.journal import apply
from oncelog.flow.messages import EMPTY, HourRows, Outputs, Records
from oncelog.flow.part_running import PartWork
from oncelog.slots import Place
from oncelog.slots.replay import Output

MOST_TIMERS: Final = 1_000  # at a time

ByPlace = dict[Place, list[Output]]


class Fold:
    def __init__(self, work: PartWork, state: dict[bytes, bytes], marks: Sequence[int]) -> None:
        """Begin with this state, which is changed."""
        self.work, self.state = work, state
        self.outputs: ByPlace = {}
        self.held: ByPlace = {}
        self.changes: dict[bytes, bytes | None] = {}
        self.files: list[HourRows] = []
        work.begin(state, marks)

    def take(self, index: int, records: Records) -> None:
        while records.offsets:
            records = records.part(self._run(index, records))

    def mark(self, index: int, mark_ms: int) -> None:
        """Move the mark of an input, and fire what is due by it."""
        self.work.mark(index, mark_ms)
        while self.work.next_timer_ms is not None and self.work.next_timer_ms <= self.work.watermark_ms:
            self._run(0, EMPTY)

    def commit(self, number: int) -> ByPlace:
        """Outputs that are sent once a commit of everything so far stands in the journal. Later runs belong to the next
        commit."""
        sent, self.outputs, self.held = self.held, {}, {}
        self.work.committed()
        add(sent, self.work.told(number, self.changes).items())
        self.changes = {}
        return sent

    def _run(self, index: int, records: Records) -> int:
        changes, outputs, taken, held, files = self.work.run(index, records, MOST_TIMERS)
        self.files.extend(files)
        add(self.outputs, outputs.items())
        add(self.held, held)
        self.changes.update(changes)
        apply(changes, self.state)
        return taken


def add(found: ByPlace, more: Iterable[tuple[Place, Outputs]]) -> None:
    for place, outputs in more:
        found.setdefault(place, []).extend(outputs.each())
