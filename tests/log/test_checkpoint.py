"""Flushes one at a time: a log that is cut back or let go waits for its own, not for those of others."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

from oncelog.log.checkpoint import Checkpointer


class Plan:
    """A flush that ends when it is told to."""

    folder = "flushed"

    def __init__(self) -> None:
        self.begun, self.go_on = Event(), Event()

    def still_holds(self) -> bool:
        return True

    def sync(self) -> None:
        self.begun.set()
        assert self.go_on.wait(30)

    def write_snapshot(self) -> None:
        self.begun.clear()


def test_a_log_waits_for_its_own_flush_and_for_no_other() -> None:
    checkpointer, plan = Checkpointer(), Plan()
    stand_in: Any = plan

    def is_over_when_waited_for() -> bool:
        checkpointer.wait("flushed")
        return not plan.begun.is_set()

    with ThreadPoolExecutor(2) as threads:
        flushing = threads.submit(checkpointer.run, stand_in)
        assert plan.begun.wait(30)
        checkpointer.wait("another")
        waiting = threads.submit(is_over_when_waited_for)
        assert not flushing.done() and not waiting.done()
        plan.go_on.set()
        flushing.result()
        assert waiting.result(), "it did not wait for the end"
