"""The server and the producer that an experiment starts, kills and starts again. Both end with it."""

import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from oncelog.chaos.guard import Guard
from oncelog.chaos.life import HOST, STOP_S, Life, free_ports, listens
from oncelog.chaos.order_variable import telling
from oncelog.chaos.sending import Order


class ServerLives(Life):
    """`oncelog serve` on one folder and one port, life after life."""

    def __init__(
        self, guard: Guard, folder: Path, settings: Mapping[str, str] | None = None, more: Sequence[str] = ()
    ) -> None:
        super().__init__("the server", folder / "server.log", guard.popen)
        (self.port,) = free_ports(1)
        self.servers = f"{HOST}:{self.port}"
        self._folder = folder
        self._command = [sys.executable, "-m", "oncelog", "serve", "--listen", self.servers, "--data"]
        self._command += [str(folder / "data")]
        for name, value in (settings or {}).items():
            self._command += ["--set", f"{name}={value}"]
        self._command += more

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def start(self) -> None:
        self.launch(self._command)
        self.await_ready(lambda: listens(self.port))


class ProducerLives(Life):
    """`sending.py` or `java_sending.py`, life after life; `read` gives what the present one tells."""

    def __init__(self, guard: Guard, folder: Path, order: Order) -> None:
        super().__init__("the producer", folder / "producer.log", guard.popen)
        self._order = order

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.is_running:
            os.killpg(self.pid, signal.SIGKILL)  # with Java, where that is the client
            self.process.wait()
        self._close_pipe()

    def start(self) -> None:
        self._close_pipe()
        module = "oncelog.chaos.java_sending" if self._order.client == "java" else "oncelog.chaos.sending"
        variables = telling(self._order.as_dict())
        self.launch([sys.executable, "-m", module], variables=variables, stdout=subprocess.PIPE)
        os.set_blocking(self.fileno(), False)

    def fileno(self) -> int:
        assert self.process.stdout is not None
        return self.process.stdout.fileno()

    def wait(self, seconds: float) -> None:
        """Wait until it has something to tell, or has ended."""
        with selectors.DefaultSelector() as ready:
            ready.register(self, selectors.EVENT_READ)
            ready.select(seconds)

    def read(self) -> bytes | None:
        """The bytes that came since; empty: none now; None: the process has ended and everything was read."""
        try:
            data = os.read(self.fileno(), 1 << 20)
        except BlockingIOError:
            return b""
        return data or None

    def exit_code(self) -> int:
        return self.process.wait(STOP_S)

    def _close_pipe(self) -> None:
        if self.was_started and self.process.stdout is not None:
            self.process.stdout.close()
