"""What is missing, there twice, foreign or out of order: counted by the experiment's own audit."""

from collections.abc import Mapping

import numpy as np

from oncelog.chaos.audit import Audit, Result
from tests.lives.stored import Numbers


def counted(sent: int, standing: Mapping[int, Numbers], confirmed: Numbers | None = None) -> Result:
    """Numbers from 0 to before `sent`, of which those that were confirmed (all of them, if none are named) must stand
    there, none may twice, and all in ascending order within a place."""
    audit = Audit(sent)
    audit.confirm(np.arange(sent) if confirmed is None else confirmed)
    for place, numbers in standing.items():
        audit.take(place, numbers)
    return audit.result()


def jumps_back(result: Result) -> int:
    """How often something stands behind what came after it; the same number twice in a row is no jump."""
    return sum(run.jump > 0 for run in result.runs)
