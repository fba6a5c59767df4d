"""Whether a holder is to leave, and what its goodbye says."""

from oncelog.flow.cell_context import CellContext
from oncelog.flow.formats import MOST_WHY, Goodbye
from oncelog.flow.messages import Ended, LifeEnd


class Leaving:
    def __init__(self, context: CellContext) -> None:
        self._context = context
        self.is_wanted = self.is_at_the_end = False
        self.stopped_by = ""  # why a person has to look at it when it has left

    def ask(self, *, is_at_the_end: bool) -> None:
        """Ask it to leave; at the end, nothing of its run is left to do."""
        if not self.is_wanted:
            self.is_wanted, self.is_at_the_end = True, is_at_the_end

    def stop(self, why: str) -> None:
        """It cannot go on. What was done before is committed and goodbye is said, so nobody with mended code waits for
        its deadline."""
        # A user's exception may say what no text in a record can have.
        self.is_wanted, self.stopped_by = True, why.encode(errors="backslashreplace").decode()

    @property
    def goodbye(self) -> Goodbye:
        holder = self._context.holder
        return Goodbye(
            nonce=holder.nonce, ended=holder.run if self.is_at_the_end else None, why=self.stopped_by[:MOST_WHY]
        )

    @property
    def ended(self) -> Ended:
        return Ended(LifeEnd.STOPPED, self.stopped_by) if self.stopped_by else Ended(LifeEnd.LEFT, "")
