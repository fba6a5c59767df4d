"""The one place where a test may sleep: while it asks another process again and again whether it is there yet.

Inside one process nothing needs this: turn a ManualClock, await the future, wait for the threading.Event.
"""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

ASK_AGAIN_SECONDS = 0.01


def until(answer: Callable[[], T], what: str, *, give_up_seconds: float = 30.0) -> T:
    """The first true answer; an AssertionError that names what was waited for where none comes."""
    give_up = time.monotonic() + give_up_seconds
    while not (found := answer()):
        if time.monotonic() > give_up:
            raise AssertionError(f"waited {give_up_seconds:g} s in vain for: {what}")
        time.sleep(ASK_AGAIN_SECONDS)
    return found
