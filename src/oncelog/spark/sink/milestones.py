"""The named milestones of a batch, in their order, each an audit event of Python's (`sys.audit`) as it is reached.

To observe one, or to keep a process there, add an audit hook: for an operator that is a log, for the tests the
place at which a process is stopped or killed. Without a hook a milestone costs next to nothing.
"""

import sys
from typing import Any, Final

EVENT: Final = "oncelog.spark"  # its arguments are the milestone, and what is known there as a dictionary

# A task, which writes as one lane
BEGUN: Final = "begun"
STATE_READ: Final = "state read"  # it is decided what to do
CLAIMED: Final = "claimed"  # the lane's claim stands in the log, ours or another's
RESUMED: Final = "resumed"  # it is known how far an earlier attempt got
FIRST_SEND: Final = "first send"  # the first rows are about to be handed to the producer
SENT: Final = "sent"  # again and again: this many rows were handed over
INPUT_ENDED: Final = "input ended"  # be it that there is no more, or that the JVM is gone
ACKNOWLEDGED: Final = "acknowledged"
RETURNING: Final = "returning"

# The driver
COMMITTING: Final = "committing"
BEFORE_SAVE: Final = "before save"  # everything was compared and found right
SAVED: Final = "saved"
COMMITTED: Final = "committed"  # Spark is about to be told


def reached(milestone: str, **facts: Any) -> None:
    """Tell that this process has reached a milestone."""
    sys.audit(EVENT, milestone, facts)
