"""A loop in a thread of its own, for those who know nothing of loops."""

import asyncio
import os
import signal
import threading

import pytest

from oncelog.client.errors import KafkaError, KafkaException
from oncelog.client.net.loop_thread import LoopThread


def code_of(caught: pytest.ExceptionInfo[KafkaException]) -> int:
    return caught.value.error.code()


async def forever() -> None:
    await asyncio.get_running_loop().create_future()


def test_a_coroutine_runs_in_the_thread_and_its_result_comes_back() -> None:
    thread = LoopThread()

    async def name() -> str:
        return threading.current_thread().name

    assert thread.run(name()) == "oncelog-client"
    assert thread.run(name(), float("inf")) == "oncelog-client"
    thread.stop()


def test_an_exception_comes_back_as_it_is() -> None:
    thread = LoopThread()

    async def fail(error: Exception) -> None:
        raise error

    for error in (ValueError("mine"), TimeoutError("mine, too")):
        with pytest.raises(type(error), match="mine"):
            thread.run(fail(error), timeout_s=20)
    thread.stop()


def test_what_takes_too_long_is_cancelled() -> None:
    thread = LoopThread()
    cancelled = threading.Event()

    async def wait() -> None:
        try:
            await forever()
        finally:
            cancelled.set()

    with pytest.raises(KafkaException) as caught:
        thread.run(wait(), timeout_s=0.02)
    assert code_of(caught) == KafkaError._TIMED_OUT
    assert cancelled.wait(20)
    thread.stop()


def test_a_callback_that_waits_for_its_own_thread_is_told_instead_of_hanging() -> None:
    thread = LoopThread()
    caught: list[KafkaException] = []
    told = threading.Event()

    def callback() -> None:
        try:
            thread.run(forever())
        except KafkaException as error:
            caught.append(error)
        told.set()

    thread.call_soon(callback)
    assert told.wait(20)
    assert caught[0].error == KafkaError._STATE
    thread.stop()


def test_stop_ends_what_still_runs_and_those_who_wait_for_it_are_told() -> None:
    thread = LoopThread()
    began = threading.Event()
    codes: list[int] = []

    async def wait() -> None:
        began.set()
        await forever()

    def work() -> None:
        with pytest.raises(KafkaException) as caught:
            thread.run(wait())
        codes.append(code_of(caught))

    waiting = threading.Thread(target=work)
    waiting.start()
    assert began.wait(20)
    thread.stop()
    waiting.join(20)
    assert codes == [KafkaError._DESTROY]


def test_after_stop_nothing_runs_and_nothing_breaks() -> None:
    before = set(threading.enumerate())
    thread = LoopThread()
    thread.stop()
    thread.stop()
    thread.call_soon(print, "never")
    with pytest.raises(KafkaException) as caught:
        thread.run(forever())
    assert code_of(caught) == KafkaError._STATE
    assert set(threading.enumerate()) <= before


def test_a_forgotten_thread_does_not_keep_the_program_from_ending() -> None:
    import subprocess
    import sys

    program = "from oncelog.client.net.loop_thread import LoopThread; LoopThread()"
    assert subprocess.run([sys.executable, "-c", program], timeout=60, check=False).returncode == 0


def test_a_timeout_that_a_signal_handler_raises_comes_through() -> None:
    thread = LoopThread()

    def too_late(*_: object) -> None:
        raise TimeoutError("mine")

    before = signal.signal(signal.SIGUSR1, too_late)
    try:
        thread.call_soon(signal.pthread_kill, threading.get_ident(), signal.SIGUSR1)
        with pytest.raises(TimeoutError, match="mine"):
            thread.run(forever())
    finally:
        signal.signal(signal.SIGUSR1, before)
        thread.stop()


def test_a_forked_process_is_told_instead_of_waiting_for_a_thread_that_it_has_not() -> None:
    thread = LoopThread()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            thread.run(forever())
        except KafkaException as refused:
            thread.call_soon(print)
            thread.stop()
            status = 0 if "forked" in str(refused) else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

    async def works() -> bool:
        return True

    assert thread.run(works())
    thread.stop()


def test_a_signal_before_the_thread_is_anybodys_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def signalled(*_: object) -> bool:
        raise KeyError("a signal")

    monkeypatch.setattr("oncelog.client.net.loop_thread.until_set", signalled)
    with pytest.raises(KeyError):
        LoopThread("interrupted")
    assert "interrupted" not in {each.name for each in threading.enumerate()}
