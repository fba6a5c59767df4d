"""Whether a holder is to leave, and what its goodbye says."""

from oncelog.flow.cell_context import CellContext
from oncelog.flow.formats import MOST_WHY, Goodbye
from oncelog.flow.messages import Ended, LifeEnd, RunEnd


class Leaving:
    def __init__(self, context: CellContext) -> None:
        self._context = context
        self.is_wanted = False
        self._at_end = RunEnd.OPEN
        self.stopped_by = ""  # why a person has to look at it when it has left

    def ask(self, at_end: RunEnd) -> None:
        if not self.is_wanted:
            self.is_wanted, self._at_end = True, at_end

    def stop(self, why: str) -> None:
        """It cannot go on. What was done before is committed and goodbye is said, so nobody with mended code waits for
        its deadline."""
        self.is_wanted, self._at_end = True, RunEnd.OPEN
        # A user's exception may say what no text in a record can have.
        self.stopped_by = why.encode(errors="backslashreplace").decode()

    @property
    def goodbye(self) -> Goodbye:
        holder, at_end = self._context.holder, self._at_end
        return Goodbye(
            nonce=holder.nonce,
            ended=holder.run if at_end is RunEnd.WHOLE else None,
            cut=holder.run if at_end is RunEnd.CUT else None,
            why=self.stopped_by[:MOST_WHY],
        )

    @property
    def ended(self) -> Ended:
        return Ended(LifeEnd.STOPPED, self.stopped_by) if self.stopped_by else Ended(LifeEnd.LEFT, "")
