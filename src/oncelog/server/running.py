"""Running a server until it is told to stop: the event loop, the signals, the one line that people need."""

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import Any

from oncelog.server.broker import Broker


def run_loop(main: Coroutine[Any, Any, None]) -> None:
    """On uvloop where there is one."""
    try:
        import uvloop
    except ImportError:
        asyncio.run(main)
    else:
        uvloop.run(main)


def serve(open_broker: Callable[[], Broker], say: Callable[[str], None]) -> None:
    run_loop(_serve(open_broker, say))


async def _serve(open_broker: Callable[[], Broker], say: Callable[[str], None]) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    broker = open_broker()
    try:
        await broker.start()
        say(ready_line(broker))
        await stop.wait()
    finally:
        await broker.stop()


def ready_line(broker: Broker) -> str:
    """What a person can use: where to connect to, and where the data is."""
    return f"oncelog listens on {broker.addresses()} and keeps its data in {broker.settings.log_dir}"
