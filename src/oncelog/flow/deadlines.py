"""Until when this holder may send, and others with other code; and when the journal was last heard to be its own."""

from oncelog.flow.cell_context import CellContext
from oncelog.flow.journal import Journal
from oncelog.slots.messages import Produce


class Deadlines:
    """All by the wall clock, which holders share."""

    def __init__(self, context: CellContext) -> None:
        self._context = context
        self.awaits_until_ms: int | None = None  # a goodbye
        self.others_until_ms = 0  # holders with other code may send
        self.until_ms = 0  # this one does
        self.proven_ms = 0  # nobody had taken over then

    def learn(self, journal: Journal) -> None:
        """Learn how long holders with other code may still send. Their records would fill slots, and ours be told
        success."""
        before, context = journal.take_over, self._context
        if before is None:
            self.others_until_ms = 0
        elif before.code == context.holder.code or journal.is_left:
            self.others_until_ms = before.others_until_ms
        else:
            self.others_until_ms = max(before.others_until_ms, before.until_ms + context.limits.settle_ms)
        if self.awaits_until_ms is None:
            self.awaits_until_ms = self.others_until_ms

    def begin(self) -> None:
        """A take-over."""
        self.until_ms = self._context.now.wall_ms + self._context.limits.tenure_ms

    def prove(self, timestamp_ms: int) -> None:
        """A journal batch of this time was acknowledged."""
        self.proven_ms = max(self.proven_ms, timestamp_ms)

    def limited(self, action: Produce) -> Produce | None:
        """Nothing leaves behind the sending deadline, nor with a time so old that a broker would soon forget it: others
        might then fill the same slots again. None where it is too late."""
        now, fresh_ms = self._context.now, self._context.limits.fresh_ms
        oldest_ms = min(batch.max_timestamp_ms for batch in action.batches)
        left_ms = min(self.until_ms, oldest_ms + fresh_ms) - now.wall_ms
        return action._replace(until_ms=min(action.until_ms, now.monotonic_ms + left_ms)) if left_ms > 0 else None

    @property
    def goodbye_ms(self) -> int:
        """Until when the goodbye of others is waited for."""
        return min(self.awaits_until_ms or 0, self.others_until_ms)

    @property
    def may_others_send(self) -> bool:
        return self._context.now.wall_ms < self.others_until_ms

    @property
    def is_over(self) -> bool:
        return self._context.now.wall_ms >= self.until_ms

    @property
    def is_proof_old(self) -> bool:
        """The broker may have forgotten who holds the journal, by the time a batch that is made now arrives."""
        return self._context.now.wall_ms - self.proven_ms >= self._context.limits.fresh_ms
