"""What a person is told of a cell that waits for holders with other code."""

import logging
from typing import Final

from oncelog.flow.cell import Cell
from oncelog.flow.states import State

LONG_WAIT_MS: Final = 3_000  # that is noticed
_log: Final = logging.getLogger("oncelog.flow")


def tell_wait(cell: Cell, now_ms: int) -> bool:
    """Whether there was anything to tell."""
    left_ms = cell.others_until_ms - now_ms
    if cell.state not in (State.AWAITING, State.YIELDING) or left_ms < LONG_WAIT_MS:
        return False
    _log.warning(
        "%s waits up to %d s: a process with another version of the code held it, has not said goodbye and may "
        "still send (this one is %s). Where that process is at work, stop it; where it was killed, wait, or start "
        "its version again and stop that one",
        cell.stage.title,
        left_ms // 1000,
        cell.holder.code,
    )
    return True
