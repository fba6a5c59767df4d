"""Running a server until it is told to stop: the event loop, the signals, the one line that people need."""

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from typing import Any, Protocol, TypeVar

from oncelog.server.broker import Broker, bracketed
from oncelog.server.interpreter import keep_pauses_short
from oncelog.server.process import raise_open_files_limit
from oncelog.settings import parse_address

T = TypeVar("T")


def run_loop(main: Coroutine[Any, Any, T]) -> T:
    """Run on uvloop where there is one."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    return uvloop.run(main)


Beside = Callable[[Broker], AbstractAsyncContextManager[str]]  # what it yields is for people


class Serving(Protocol):
    """A broker at work, alone or among others."""

    @property
    def broker(self) -> Broker: ...

    @property
    def metrics_port(self) -> int | None: ...

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


def serve(
    open_service: Callable[[], Serving],
    say: Callable[[str], None],
    *,
    beside: Beside | None = None,
    until: Callable[[], object] | None = None,
) -> None:
    """`beside` is kept up on the same loop while the server runs. `until` is called in a thread, and when it returns
    the server stops, as by a signal."""
    run_loop(_serve(open_service, say, beside, until))


async def _serve(
    open_service: Callable[[], Serving],
    say: Callable[[str], None],
    beside: Beside | None,
    until: Callable[[], object] | None,
) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    if until is not None:
        _call_when_over(until, lambda: loop.call_soon_threadsafe(stop.set))
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    raise_open_files_limit()
    service = open_service()
    if service.broker.tls:
        loop.add_signal_handler(signal.SIGHUP, lambda: _begin(service.broker.look_at_certificates()))
    keeping: asyncio.Task[None] | None = None
    try:
        if not await is_started(service, stop):
            return
        keeping = asyncio.create_task(keep_pauses_short())
        async with AsyncExitStack() as stack:
            more = None if beside is None else await stack.enter_async_context(beside(service.broker))
            told = getattr(service, "for_people", "")
            say(ready_line(service) + (f"; {more}" if more else "") + (f"\n{told}" if told else ""))
            await stop.wait()
    finally:
        if keeping is not None:
            keeping.cancel()
        await service.stop()


_begun: set[asyncio.Future[None]] = set()


def _begin(work: Coroutine[Any, Any, None]) -> None:
    task = asyncio.ensure_future(work)
    _begun.add(task)  # the loop itself forgets tasks that nobody keeps
    task.add_done_callback(_begun.discard)


async def is_started(service: Serving, stop: asyncio.Event) -> bool:
    """Start it; False where it is told to stop before it is up, as it may be while it waits for what brokers agree
    by."""
    starting, stopped = asyncio.create_task(service.start()), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((starting, stopped), return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
        return starting.done()
    finally:
        for task in (starting, stopped):
            task.cancel()
        await asyncio.gather(starting, stopped, return_exceptions=True)


def _call_when_over(until: Callable[[], object], call: Callable[[], object]) -> None:
    def wait() -> None:
        until()
        with suppress(RuntimeError):  # the server has stopped already
            call()

    threading.Thread(target=wait, name="oncelog-until", daemon=True).start()


def ready_line(service: Serving) -> str:
    """The line for a person: the addresses to connect to, and the data folder."""
    broker = service.broker
    line = f"oncelog listens on {broker.bound_addresses()} and keeps its data in {broker.settings.log_dir}"
    if service.metrics_port is not None and broker.settings.oncelog_metrics_listener is not None:
        host, _ = parse_address("oncelog.metrics.listener", broker.settings.oncelog_metrics_listener)
        line += f"; metrics on {bracketed(host)}:{service.metrics_port}"
    return line
