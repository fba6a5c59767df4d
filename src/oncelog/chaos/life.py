"""A process, life after life: it is started, awaited until it speaks, killed, and started again. Whatever any of its
lives says stands in one file."""

import itertools
import os
import re
import signal
import socket
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from oncelog.chaos.stopped import DidNotStart
from oncelog.clock import monotonic_s

START_S: Final = 60.0
STOP_S: Final = 20.0
PAUSE_S: Final = 0.02
HOST: Final = "127.0.0.1"

Popen = Callable[..., "subprocess.Popen[bytes]"]
T = TypeVar("T")


# Below those that the kernel hands out by itself, so that no connection and no port 0 of anybody takes one between its
# choice and the server's start. Processes that were started one after the other begin far apart, so that neither comes
# to what another has chosen and not bound yet: by the golden ratio, hundreds lie between any twenty in a row.
PORTS: Final = range(18_000, 32_000)
_begin: Final = os.getpid() * 8_653 % len(PORTS)
_next_port: Final = itertools.cycle([*PORTS[_begin:], *PORTS[:_begin]])


def free_ports(count: int) -> list[int]:
    """Ports that are free right now, and that this process has not chosen before."""
    found: list[int] = []
    while len(found) < count:
        port = next(_next_port)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
        found.append(port)
    return found


def listens(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), timeout=1).close()
    except OSError:
        return False
    return True


class Life:
    """`popen` starts it: that of an experiment's guard, or subprocess itself."""

    def __init__(self, name: str, log: Path, popen: Popen = subprocess.Popen) -> None:
        self.name = name
        self.log = log
        self._popen = popen
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def process(self) -> "subprocess.Popen[bytes]":
        """The present life, or the last one."""
        if self._process is None:
            raise RuntimeError(f"{self.name} was never started")
        return self._process

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def was_started(self) -> bool:
        return self._process is not None

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def launch(self, command: Sequence[str], **how: Any) -> None:
        """Starts it and returns at once."""
        with open(self.log, "ab") as log:
            self._process = self._popen(command, **{"stdout": log, "stderr": log, **how})

    def await_ready(self, ask: Callable[[], T | None], seconds: float = START_S, pause_s: float = PAUSE_S) -> T:
        """The first true answer. One that ends before it is ready, or takes longer than this, is killed."""
        give_up_s = monotonic_s() + seconds
        while not (found := ask()):
            if self.has_ended_within(pause_s) or monotonic_s() > give_up_s:
                self.kill()
                raise DidNotStart(f"{self.name} did not start:\n{self.last_words()}")
        return found

    def await_words(self, pattern: str, seconds: float = START_S) -> str:
        """Wait until it has said this; returns the pattern's first group."""
        return self.await_ready(lambda: re.search(pattern, self.log_text()), seconds)[1]

    def has_ended_within(self, seconds: float) -> bool:
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def kill(self) -> None:
        """kill -9: no goodbye, no flush."""
        if self.was_started:
            self.process.kill()
            self.process.wait()

    def stop(self, seconds: float = STOP_S) -> None:
        """Stop it in an orderly way; a process that does not listen is killed."""
        if self.is_running:
            self.process.send_signal(signal.SIGTERM)
            if not self.has_ended_within(seconds):
                self.kill()

    def log_text(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def last_words(self) -> str:
        return self.log_text()[-3000:]
