"""The journal as its holder reads and writes it: what was read of it, and which batches there are its own."""

from collections.abc import Mapping, Sequence
from typing import Final

from oncelog.flow.cell_context import CellContext
from oncelog.flow.deadlines import Deadlines
from oncelog.flow.formats import STATE, TAKE_OVER, Entry, TakeOver, decoded, encoded
from oncelog.flow.journal import NO_FENCE, Journal, LastBatch
from oncelog.flow.messages import ColumnChanges, JournalBatch, Outputs, ReadJournal
from oncelog.slots import Identity
from oncelog.slots.batch import Batch

NOTHING: Final[Mapping[bytes, bytes | None]] = {}


class OwnJournal:
    def __init__(self, context: CellContext, copy: Journal | None) -> None:
        """`copy`: what another life of a holder knew at its end."""
        self._context = context
        self.content = Journal() if copy is None else copy.copy()
        self._is_proven = self.content.last is None  # its last batch is still there
        self.fence = NO_FENCE
        self.read_at = context.now
        self.read_from = 0
        self.reads_ahead = False  # what is read back was asked for before the take-over was acknowledged
        self.read_ahead: Sequence[JournalBatch] | None = None  # and was there before that
        self.is_sound = True  # its content is that of the last commit

    def read(self, waits_ms: int = 0) -> None:
        """Read the new batches; for a copy, its last batch, too."""
        last = None if self._is_proven else self.content.last
        self.read_from = self.content.next_offset if last is None else last.base_offset
        self.read_at = self._context.now
        self._context.ask(ReadJournal(self.read_from, waits_ms))

    def read_anew(self) -> None:
        """All but who the writers are: that only grows."""
        known, self.content = self.content, Journal()
        self.content.claim, self.content.chain = known.claim, list(known.chain)
        self._is_proven = True
        self.read()

    def joins(self, batches: Sequence[JournalBatch], up_to: int | None = None) -> bool:
        if not self._is_proven:
            self._is_proven = self.content.begins_with_the_last(batches)
            return self._is_proven and self.content.read(batches, up_to)
        return self.content.read(batches, up_to) or self.read_from == 0

    def append(
        self,
        entries: Sequence[Entry],
        timestamp_ms: int,
        changes: Mapping[bytes, bytes | None] = NOTHING,
        columns: ColumnChanges | None = None,
    ) -> None:
        """Append one batch, the changes of state first. It carries the time of the look that it relies upon, so that a
        broker refuses it where its sender slept since then."""
        others = [encoded(each) for each in entries]
        keys, values = [STATE + key for key in changes], [*changes.values()]
        other_keys, other_values = [key for key, _ in others], [value for _, value in others]
        if columns is None:
            records = Outputs([*keys, *other_keys], [*values, *other_values])
        else:
            records = columns.records(Outputs(keys, values), Outputs(other_keys, other_values))
        context = self._context
        data, now_ms = context.encode(records, timestamp_ms), context.now.monotonic_ms
        context.sender.add(Batch(*context.stage.journal, data, len(records.keys), now_ms, records), now_ms)

    def take_over(self, deadlines: Deadlines, pids: Sequence[int]) -> None:
        """The epoch one higher than all that was seen, and sequence 0: from then on the others are fenced."""
        context, content, holder = self._context, self.content, self._context.holder
        self.fence = len(content.chain) - 1, content.due_epoch
        entry = TakeOver(
            nonce=holder.nonce,
            tenancy=holder.tenancy,
            code=holder.code,
            until_ms=deadlines.until_ms,
            others_until_ms=deadlines.others_until_ms,
            chain=content.chain,
            successor=pids[0] if pids else None,
        )
        context.sender.resume(
            context.stage.journal,
            Identity(content.chain[-1], content.due_epoch),
            0,
            context.now.monotonic_ms,
            next_offset=content.next_offset,
            is_shared=True,
            cuts=False,
            known_at_ms=self.read_at.monotonic_ms,
        )
        self.append([entry], self.read_at.wall_ms)
        self.reads_ahead = True
        self.read()  # behind it, and without waiting for its acknowledgement

    def keep(self, batches: Sequence[JournalBatch]) -> None:
        self.read_ahead = batches

    def read_again(self) -> None:
        """Read anew: batches that were read ahead of the take-over may be older than it."""
        self.reads_ahead = False
        self.read()

    def own_of(self, batches: Sequence[JournalBatch]) -> JournalBatch | None:
        """This holder's take-over."""
        return next((batch for batch in batches if self.is_own(batch)), None)

    def is_own(self, batch: JournalBatch) -> bool:
        if self.content.fence_of(batch) != self.fence:
            return False
        entries = [decoded(key, value) for key, value in batch.rows if key == TAKE_OVER and value]
        return any(isinstance(entry, TakeOver) and entry.nonce == self._context.holder.nonce for entry in entries)

    def is_passed(self, batches: Sequence[JournalBatch]) -> bool:
        """Whether somebody has taken over behind this one."""
        return any((self.content.fence_of(batch) or self.fence) > self.fence for batch in batches)

    def stored(self, base_offset: int, records: int, entry: Entry) -> None:
        """Take in that an own batch of this many records stands there, with this entry as its last."""
        content, (place, epoch) = self.content, self.fence
        self.is_sound = self.is_sound and base_offset == content.next_offset
        content.next_offset = base_offset + records
        content.last = LastBatch(base_offset, Identity(content.chain[place], epoch), entry)

    def end(self) -> None:
        """Goodbye stands behind the content."""
        self.is_sound = False
