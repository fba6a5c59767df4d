"""A flow, as users have it in hand."""

from collections.abc import Iterable

from oncelog.flow.program import Program, Sent
from oncelog.flow.simulating import Simulated, simulate


class Flow(Program):
    def simulate(self, sent: Iterable[Sent], *, crashes: bool = False) -> Simulated:
        """Runs it in memory over these records. With `crashes` each cell is stopped at each of its steps, and must come
        to the same; a function that does not give the same for the same is found so."""
        return simulate(self, sent, crashes=crashes)
