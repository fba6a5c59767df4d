"""The fault to which it is put down that a partition had no confirmation for a while. Pure."""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

STILL_S: Final = 1.0  # for so long what was under way may still be confirmed


def put_down_to(faults_s: Sequence[float], since_s: float) -> int:
    """The place, among faults in the order of their times, of the first that came after the last confirmation or just
    before it: those that follow came while clients were still held up by that one. Without one, of the last of all."""
    return min(bisect_left(faults_s, since_s - STILL_S), len(faults_s) - 1)
