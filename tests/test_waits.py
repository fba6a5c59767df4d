"""A signal that does not wake the main thread is heard all the same, in every wait of ours."""

import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from oncelog import waiting
from oncelog.client.consumer.consumer import Consumer
from oncelog.client.net.loop_thread import LoopThread
from oncelog.waiting import result_of, until_ended, until_set
from tests.waiting import until

MAIN = threading.main_thread()
LOST_S = 5.0


class Heard(Exception):
    """Raised by the handler, as KeyboardInterrupt is."""


async def _never(thread: LoopThread) -> None:
    await thread.loop.create_future()


def _wait_for_a_coroutine() -> None:
    thread = LoopThread()
    try:
        thread.run(_never(thread))
    finally:
        thread.stop()


def _poll() -> None:
    with Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}) as consumer:
        consumer.poll()


WAITS: dict[str, Callable[[], object]] = {
    "for an event": lambda: until_set(threading.Event()),
    "for an event, with an end": lambda: until_set(threading.Event(), 60),
    "for a future": lambda: result_of(Future()),
    "for a thread": lambda: until_ended(_idle_thread()),
    "for a coroutine in the client's thread": _wait_for_a_coroutine,
    "for a message": _poll,
}


def _idle_thread() -> threading.Thread:
    thread = threading.Thread(target=threading.Event().wait, args=(60,), daemon=True)
    thread.start()
    return thread


def _is_asleep() -> bool:
    """Whether the main thread is in one of our waits, and sleeps."""
    frame = innermost = sys._current_frames().get(MAIN.ident or 0)
    while frame is not None and frame.f_code.co_filename != waiting.__file__:
        frame = frame.f_back
    if frame is None or innermost is None or innermost.f_code.co_filename != threading.__file__:
        return False
    return Path(f"/proc/self/task/{MAIN.native_id}/stat").read_text().rpartition(")")[2].split()[0] == "S"


@pytest.fixture
def signalled() -> Iterator[None]:
    """The signal is delivered to another thread: Python notes it, and nothing wakes the main thread, just as when it
    comes in the moment before the main thread goes to sleep."""

    def raise_heard(*_: object) -> None:
        raise Heard

    before = signal.signal(signal.SIGUSR1, raise_heard)
    over = threading.Event()
    lost: list[bool] = []

    def send() -> None:
        until(_is_asleep, "the main thread to wait")
        signal.raise_signal(signal.SIGUSR1)
        if not over.wait(LOST_S):
            lost.append(True)
            os.kill(os.getpid(), signal.SIGUSR1)  # the next one, which the kernel gives to the main thread

    sender = threading.Thread(target=send)
    sender.start()
    try:
        yield
    finally:
        over.set()
        sender.join()
        signal.signal(signal.SIGUSR1, before)
    assert not lost, f"the signal was not heard in {LOST_S:g} s"


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
def test_a_signal_just_before_the_sleep_is_heard(wait: Callable[[], object], signalled: None) -> None:
    with pytest.raises(Heard):
        wait()


def test_a_signal_as_a_consumer_begins_to_leave_forgets_no_work(
    monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    """It comes before the work is in the thread's hands."""
    consumer = Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g"})
    signals = [Heard()]

    def interrupted(step: Callable[..., Any]) -> Callable[..., Any]:
        def interrupt(*arguments: Any) -> Any:
            if signals:
                raise signals.pop()
            return step(*arguments)

        return interrupt

    for name in ("run", "call_soon"):
        monkeypatch.setattr(LoopThread, name, interrupted(getattr(LoopThread, name)))
    with pytest.raises(Heard):
        consumer.close()
    gc.collect()
    assert [str(each.message) for each in recwarn if "never awaited" in str(each.message)] == []
