"""The content of a journal: read in its order, by rules that are the same for every reader.

- The first claim counts. It names the first journal pid, J.
- A batch counts if its pid is in the chain of J's and no batch seen before it is newer, by (place in the chain, epoch):
  a broker that forgot who fenced whom may have let an older holder's batch in.
- Who the writers are is read before what they wrote: compaction leaves the newest take-over, with the whole chain.

The same is applied to what was read before, a copy: then its last batch must still stand there, since a log may lose
what it had acknowledged, and what follows must join without a gap, and no batch may lack a record, since a tombstone
that compaction took would not be missed.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from oncelog.flow.formats import STATE, Claim, Commit, Entry, Goodbye, Held, PlannedRows, TakeOver, decoded
from oncelog.flow.messages import JournalBatch
from oncelog.slots import Identity

Fence = tuple[int, int]  # place in the chain, epoch
NO_FENCE: Fence = (-1, -1)


class LastBatch(NamedTuple):
    """The batch, known by its entry: no two holders, and no two commits of one, write the same entry."""

    base_offset: int
    identity: Identity
    entry: Entry | None  # its last one; None where compaction left none


def apply(changes: Mapping[bytes, bytes | None], state: dict[bytes, bytes]) -> None:
    """None: the entry is removed."""
    state.update(changes)  # type: ignore[arg-type]
    if None in changes.values():
        for key, value in changes.items():
            if value is None:
                del state[key]


class Journal:
    def __init__(self) -> None:
        self.next_offset = 0
        self.last: LastBatch | None = None
        self.claim: Claim | None = None
        self.chain: list[int] = []
        self.fence = NO_FENCE
        self.take_over: TakeOver | None = None  # the newest one that counts
        self.is_left = False  # goodbye was said behind it
        self.why_left = ""  # where the cell could not go on
        self.commit: Commit | None = None
        self.held: list[Held] = []  # what that commit holds
        self.rows: list[PlannedRows] = []  # what its plan takes of tables
        self.changes: dict[bytes, bytes | None] = {}  # and what it changed of the state
        self.state: dict[bytes, bytes] = {}

    def copy(self) -> "Journal":
        other = Journal()
        vars(other).update(vars(self) | {"chain": list(self.chain), "state": dict(self.state)})
        return other

    @property
    def due_epoch(self) -> int:
        """The epoch that the newest journal pid is due to have."""
        place, epoch = self.fence
        return epoch + 1 if place == len(self.chain) - 1 else 0

    def read(self, batches: Sequence[JournalBatch], up_to: int | None = None) -> bool:
        """Take in what stands from `next_offset` on, and before `up_to`; whether it joined without a gap."""
        due = [
            batch
            for batch in batches
            if batch.base_offset >= self.next_offset and (up_to is None or batch.base_offset < up_to)
        ]
        entries = [self._entries(batch) for batch in due]
        self.learn_the_writers(entries)
        has_joined = True
        for batch, found in zip(due, entries, strict=True):
            is_whole = len(batch.keys) == batch.last_offset - batch.base_offset + 1
            has_joined = has_joined and is_whole and batch.base_offset == self.next_offset
            self._take(batch, found)
            self.next_offset = batch.last_offset + 1
            self.last = self._last_of(batch, found)
        return has_joined

    def begins_with_the_last(self, batches: Sequence[JournalBatch]) -> bool:
        """Whether what was read last still stands where it stood."""
        return bool(batches) and self._last_of(batches[0], self._entries(batches[0])) == self.last

    def _last_of(self, batch: JournalBatch, entries: list[Entry]) -> LastBatch:
        return LastBatch(batch.base_offset, batch.identity, entries[-1] if entries else None)

    def _entries(self, batch: JournalBatch) -> list[Entry]:
        where = f" at offset {batch.base_offset}"
        if batch.last_offset > batch.base_offset:  # which of these, compaction does not let us say
            where += f" to {batch.last_offset}"
        return [
            decoded(key, value, where)
            for key, value in batch.rows
            if key is not None and value is not None and key[:1] != STATE
        ]

    def learn_the_writers(self, entries: list[list[Entry]]) -> None:
        every = [each for found in entries for each in found]
        for entry in every:
            if isinstance(entry, Claim) and self.claim is None:
                self.claim, self.chain = entry, self.chain or [entry.journal_pid]
        for entry in every:
            if isinstance(entry, TakeOver):
                chain = entry.chain if entry.successor is None else [*entry.chain, entry.successor]
                if len(chain) > len(self.chain) and chain[: len(self.chain)] == self.chain:
                    self.chain = chain

    def fence_of(self, batch: JournalBatch) -> Fence | None:
        """None where no holder wrote it."""
        pid, epoch, _ = batch.identity
        return (self.chain.index(pid), epoch) if pid in self.chain else None

    def _take(self, batch: JournalBatch, entries: list[Entry]) -> None:
        fence = self.fence_of(batch)
        if fence is None or not self.admits(fence):
            return
        self.fence = fence
        changes = {key[1:]: value for key, value in batch.rows if key is not None and key[:1] == STATE}
        for entry in entries:
            if isinstance(entry, TakeOver):
                self.take_over, self.is_left, self.why_left = entry, False, ""
            elif isinstance(entry, Commit):
                held = [each for each in entries if isinstance(each, Held) and each.number == entry.number]
                rows = [each for each in entries if isinstance(each, PlannedRows) and each.number == entry.number]
                self.committed(entry, changes, held, rows)
            elif isinstance(entry, Goodbye):
                self.is_left, self.why_left = True, entry.why
        apply(changes, self.state)

    def committed(
        self, commit: Commit, changes: dict[bytes, bytes | None], held: list[Held], rows: list[PlannedRows]
    ) -> None:
        self.commit, self.changes, self.held, self.rows = commit, changes, held, rows

    def admits(self, fence: Fence) -> bool:
        return fence >= self.fence
