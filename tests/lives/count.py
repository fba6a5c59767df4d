"""What is missing, there twice, foreign or out of order: counted by the experiment's own audit."""

from collections.abc import Mapping

import numpy as np

from oncelog.chaos.audit import Audit, Result
from tests.lives.stored import Numbers


def counted(sent: int, standing: Mapping[int, Numbers]) -> Result:
    """Numbers from 0 to before `sent`, all of which must stand there once; by places in which they must ascend."""
    audit = Audit(sent)
    audit.confirm(np.arange(sent))
    for place, numbers in standing.items():
        audit.take(place, numbers)
    return audit.result()


def jumps_back(result: Result) -> int:
    """How often something stands behind what came after it; the same number twice in a row is no jump."""
    return sum(run.jump > 0 for run in result.runs)
