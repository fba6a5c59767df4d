"""Being the parent of processes that serve, in the foreground."""

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from oncelog.cluster.parent import Parent

LOOK_S: Final = 0.5


def keep_up(
    open_parent: "Callable[[], Parent]",
    say: "Callable[[Parent], None]",
    *,
    until: Callable[[], object] | None = None,
) -> None:
    """Keep it up until SIGTERM or SIGINT, or until `until` returns, which is called in a thread."""
    stop = threading.Event()

    def told(number: int, frame: FrameType | None) -> None:
        stop.set()

    def wait(until: Callable[[], object]) -> None:
        until()
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, told)
    if until is not None:
        threading.Thread(target=wait, args=(until,), name="oncelog-until", daemon=True).start()
    with open_parent() as parent:
        say(parent)
        while not stop.wait(LOOK_S):
            parent.keep_up()
