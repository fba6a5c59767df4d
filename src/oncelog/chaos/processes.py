"""The processes that an experiment starts, kills and starts again. Every one of them ends with it."""

import os
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from oncelog.chaos.guard import Guard
from oncelog.chaos.outcome import Stopped
from oncelog.chaos.sending import Order
from oncelog.clock import monotonic_s

START_S: Final = 60.0
STOP_S: Final = 20.0
PAUSE_S: Final = 0.02
HOST: Final = "127.0.0.1"


class DidNotStart(Stopped):
    """With what the process said."""


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        port: int = taken.getsockname()[1]
        return port


def await_port(process: subprocess.Popen[bytes], port: int, name: str, log: Path) -> None:
    """Until it listens; one that does not is killed."""
    give_up_s = monotonic_s() + START_S
    while not _answers(port):
        if _has_ended_within(process, PAUSE_S) or monotonic_s() > give_up_s:
            process.kill()
            process.wait()
            raise DidNotStart(f"{name} did not start:\n{log.read_text(errors='replace')[-2000:]}")


def _has_ended_within(process: subprocess.Popen[bytes], seconds: float) -> bool:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def _answers(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), timeout=1).close()
    except OSError:
        return False
    return True


class ServerLives:
    """`oncelog serve` on one folder and one port, life after life."""

    def __init__(
        self, guard: Guard, folder: Path, settings: Mapping[str, str] | None = None, more: Sequence[str] = ()
    ) -> None:
        self._guard = guard
        self.port = free_port()
        self.servers = f"{HOST}:{self.port}"
        self._folder = folder
        self._log = folder / "server.log"
        self._command = [sys.executable, "-m", "oncelog", "serve", "--listen", self.servers, "--data"]
        self._command += [str(folder / "data")]
        for name, value in (settings or {}).items():
            self._command += ["--set", f"{name}={value}"]
        self._command += more
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def start(self) -> None:
        with open(self._log, "ab") as log:
            self._process = self._guard.popen(self._command, stdout=log, stderr=log)
        await_port(self._process, self.port, "the server", self._log)

    def kill(self) -> None:
        """kill -9, as when the machine goes."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class ProducerLives:
    """`sending.py` or `java_sending.py`, life after life; `read` gives what the present one tells."""

    def __init__(self, guard: Guard, folder: Path, order: Order) -> None:
        self._guard = guard
        self._order = order
        self._log = folder / "producer.log"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)  # with Java, where that is the client
            self._process.wait()
        self._close_pipe()

    def start(self) -> None:
        self._close_pipe()
        module = "oncelog.chaos.java_sending" if self._order.client == "java" else "oncelog.chaos.sending"
        command = [sys.executable, "-m", module, self._order.to_json()]
        with open(self._log, "ab") as log:
            self._process = self._guard.popen(command, stdout=subprocess.PIPE, stderr=log)
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)

    def fileno(self) -> int:
        assert self._process is not None and self._process.stdout is not None
        return self._process.stdout.fileno()

    def wait(self, seconds: float) -> None:
        """Until it has something to tell, or has ended."""
        with selectors.DefaultSelector() as ready:
            ready.register(self, selectors.EVENT_READ)
            ready.select(seconds)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def read(self) -> bytes | None:
        """What came since; nothing: not now; None: the process has ended and everything was read."""
        try:
            data = os.read(self.fileno(), 1 << 20)
        except BlockingIOError:
            return b""
        return data or None

    def exit_code(self) -> int:
        assert self._process is not None
        return self._process.wait(STOP_S)

    def last_words(self) -> str:
        return self._log.read_text(errors="replace")[-2000:] if self._log.exists() else ""

    def _close_pipe(self) -> None:
        if self._process is not None and self._process.stdout is not None:
            self._process.stdout.close()
