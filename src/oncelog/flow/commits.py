"""The commits of a cell: what has changed for the next one, and the one that is under way."""

from collections.abc import Mapping, Sequence

from oncelog.flow.cell_context import CellContext
from oncelog.flow.description import COMMIT_OVERHEAD_BYTES
from oncelog.flow.entries import Entries
from oncelog.flow.formats import Commit, Held, PlannedRows
from oncelog.flow.held import held_of, held_size
from oncelog.flow.journal import Journal
from oncelog.flow.messages import Changes, ColumnChanges, Outputs, Records, size_of
from oncelog.slots import Place


class Commits:
    def __init__(self, context: CellContext) -> None:
        self._context = context
        self.number = 0
        self.made_ms = context.now.monotonic_ms  # when the last one was
        # For the next one.
        self.entries = Entries({})
        self.held: list[tuple[Place, Outputs]] = []
        self.changed_bytes = 0
        self.has_progress = False
        # In one that is not acknowledged yet.
        self.under_way: Commit | None = None
        self.held_under_way: list[Held] = []
        self.rows_under_way: list[PlannedRows] = []
        self.to_tell: Mapping[Place, Outputs] = {}  # what follows from that one

    def restore(self, journal: Journal) -> None:
        self.entries = Entries(journal.state)
        if journal.commit is not None:
            self.number = journal.commit.number
        self.made_ms = self._context.now.monotonic_ms

    # --- what has changed

    def progressed(self) -> None:
        """Note that there is something to commit."""
        self.has_progress = True

    def size_of(self, changes: Changes, held: Sequence[tuple[Place, Outputs]] = (), rows_bytes: int = 0) -> int | None:
        """The bytes that they add; None where that is too much, beside `rows_bytes` of the plan."""
        if isinstance(changes, ColumnChanges):
            cells = changes.size_bytes
        else:
            cells = sum(map(len, changes)) + size_of(changes.values())
        added = cells + len(changes) * COMMIT_OVERHEAD_BYTES + sum(held_size(outputs) for _, outputs in held)
        return added if self.has_room(added + rows_bytes) else None

    def has_room(self, more_bytes: int) -> bool:
        return self.changed_bytes + more_bytes <= self._context.limits.commit_bytes

    def add(self, changes: Changes, added_bytes: int, held: Sequence[tuple[Place, Outputs]]) -> None:
        """Take in the changes and outputs of a run."""
        self.entries.add(changes)
        self.changed_bytes += added_bytes
        self.held += held
        self.has_progress = True

    # --- the next one

    def begin(self) -> dict[bytes, bytes | None]:
        """Begin the next commit: the changes of state that stand in it."""
        self.number += 1
        return self.entries.leave()

    def leave(
        self, entry: Commit, rows: Sequence[tuple[int, Records]], told: Mapping[Place, Outputs]
    ) -> list[Held | PlannedRows]:
        """Send the commit on its way: its records beside its own entry and the state. `told` follows from it."""
        self.under_way, self.to_tell = entry, told
        self.changed_bytes, self.has_progress, self.made_ms = 0, False, self._context.now.monotonic_ms
        self.held_under_way = [held_of(self.number, index, *each) for index, each in enumerate(self.held)]
        self.held.clear()
        self.rows_under_way = [_planned(self.number, *each) for each in rows]
        return [*self.held_under_way, *self.rows_under_way]

    @property
    def records_under_way(self) -> int:
        return self.entries.count_under_way + len(self.held_under_way) + len(self.rows_under_way) + 1

    def stored(self, journal: Journal) -> Mapping[Place, Outputs]:
        """The commit is stored: take it into the journal. The outputs that follow from it."""
        assert self.under_way is not None
        told = self.to_tell
        journal.committed(self.under_way, self.entries.under_way, self.held_under_way, self.rows_under_way)
        self.entries.stored()
        self.under_way, self.held_under_way, self.rows_under_way, self.to_tell = None, [], [], {}
        return told


def _planned(number: int, input: int, records: Records) -> PlannedRows:
    return PlannedRows(
        number=number,
        input=input,
        offsets=list(records.offsets),
        keys=list(records.keys),
        values=list(records.values),
        times=list(records.times),
    )
