"""What a partition is doing with its open batches."""

from enum import IntEnum


class State(IntEnum):
    SENDING = 0
    DRAINING = 1  # something failed; all that is in flight comes back first
    LOOKING_UP = 2  # the log is being asked
    SETTLING = 3  # the log will be asked when nothing can be under way any more
    STOPPED = 4  # another process has taken over, or the slots cannot be filled as they must be
