"""Where a sink can be stopped or killed by a test: the named steps of a batch, in their order.

`ONCELOG_TEST_STEPS` names a function (`package.module:function`) that is called with the step and what is known there.
Where it is not set, a step costs one look into a module's variable: a worker reads the environment when it starts.
"""

import os
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

VARIABLE: Final = "ONCELOG_TEST_STEPS"

# A task, which writes as one lane
BEGUN: Final = "begun"
STATE_READ: Final = "state read"  # it is decided what to do
CLAIMED: Final = "claimed"  # the lane's claim stands in the log, ours or another's
RESUMED: Final = "resumed"  # it is known how far an earlier attempt got
FIRST_SEND: Final = "first send"  # the first rows are about to be handed to the producer
SENT: Final = "sent"  # again and again: so many rows were handed over
INPUT_ENDED: Final = "input ended"  # be it that there is no more, or that the JVM is gone
ACKNOWLEDGED: Final = "acknowledged"
RETURNING: Final = "returning"

# The driver
COMMITTING: Final = "committing"
BEFORE_SAVE: Final = "before save"  # everything was compared and found right
SAVED: Final = "saved"
COMMITTED: Final = "committed"  # Spark is about to be told

TASK_STEPS: Final = (BEGUN, STATE_READ, CLAIMED, RESUMED, FIRST_SEND, SENT, INPUT_ENDED, ACKNOWLEDGED, RETURNING)
DRIVER_STEPS: Final = (COMMITTING, BEFORE_SAVE, SAVED, COMMITTED)

Hook = Callable[[str, dict[str, Any]], object]


def _hook() -> Hook | None:
    named = os.environ.get(VARIABLE)
    if not named:
        return None
    module, _, function = named.partition(":")
    found: Hook = getattr(import_module(module), function)
    return found


_reached: Hook | None = _hook()


def reached(step: str, **facts: Any) -> None:
    """This process is here now; a test may keep it."""
    if _reached is not None:
        _reached(step, facts)
