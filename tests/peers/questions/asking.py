"""Questions that any broker can be asked, each with what is worth comparing in its answer.

A question gets a connection and a topic name of its own, and returns plain values. It never looks at times, ids or
texts that may differ between two honest brokers.
"""

import time
from collections.abc import Callable
from typing import Any

from tests.raw import RawConnection, ServerClosed

Question = Callable[[RawConnection, str], object]
QUESTIONS: dict[str, Question] = {}

EPOCH_MS = 1_700_000_000_000
KEEP = {"retention.ms": "-1"}  # by its time such a record is old, and goes whenever a broker looks for that


def question(ask: Question) -> Question:
    QUESTIONS[ask.__name__.replace("_", " ")] = ask
    return ask


def produced(answer: Any) -> tuple[str, int]:
    return answer.error_code.name, answer.base_offset


def or_closed(ask: Callable[[], object]) -> object:
    """What came back, or that the connection was ended instead."""
    try:
        return ask()
    except ServerClosed:
        return "closed"


def settled(ask: Callable[[], object], wanted: object, patience_s: float = 5) -> object:
    """The answer once it is the wanted one, or the last one: a change that Kafka's controller has accepted reaches
    its broker a moment later."""
    give_up = time.monotonic() + patience_s
    while (last := ask()) != wanted and time.monotonic() < give_up:
        time.sleep(0.02)
    return last
