"""A server under test as a child process: started, awaited by its first answer, ended by its own process id."""

import itertools
import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.raw import RawConnection

STOP_SECONDS = 20


# Below those that the kernel hands out by itself, so that no connection and no port 0 of another test takes one between
# its choice and the server's start.
PORTS = range(18_000, 32_000)
_next_port = itertools.cycle([*PORTS[os.getpid() * 61 % len(PORTS) :], *PORTS[: os.getpid() * 61 % len(PORTS)]])


def free_ports(count: int) -> list[int]:
    """Ports that nobody holds right now, and that this process has not chosen before."""
    found: list[int] = []
    while len(found) < count:
        port = next(_next_port)
        with socket.socket() as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
    return found


class ServerProcess:
    name = "server"
    start_seconds = 30.0

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.data = folder / "log"
        self.port = port
        self.bootstrap_servers = f"127.0.0.1:{port}"
        self._process: subprocess.Popen[bytes] | None = None

    # --- what a peer says about itself ----------------------------------------------------------------------------

    def command(self) -> list[str]:
        raise TypeError("each server has its own command")

    def environment(self) -> dict[str, str]:
        return dict(os.environ)

    def prepare(self) -> None:
        """What must be there before the command can run."""

    def ready(self, connection: RawConnection) -> bool:
        return bool(connection.call("metadata", 9, topics=[]).brokers)

    # --- its life -------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError(f"{self.name} is not running")
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def prepare_folder(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.prepare()

    def launch(self) -> None:
        """Starts it and returns at once."""
        self.prepare_folder()
        with open(self.log_path, "ab") as log:
            self._process = subprocess.Popen(
                self.command(), stdout=log, stderr=log, cwd=self.folder, env=self.environment()
            )

    def start(self) -> None:
        self.launch()
        try:
            self.await_first_answer()
        except BaseException:
            self.kill()
            raise

    def await_first_answer(self, pause_s: float = 0.01) -> None:
        give_up = time.monotonic() + self.start_seconds
        while True:
            if not self.running:
                raise RuntimeError(f"{self.name} ended while starting:\n{self.log_text()[-3000:]}")
            try:
                with RawConnection(self.port, timeout_s=10) as connection:
                    if self.ready(connection):
                        return
            except OSError:
                pass
            if time.monotonic() > give_up:
                raise RuntimeError(f"no answer from {self.name}:\n{self.log_text()[-3000:]}")
            time.sleep(pause_s)

    def stop(self) -> None:
        """Ends it in an orderly way; one that does not listen is killed."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def kill(self) -> None:
        """kill -9: no goodbye, no flush."""
        if self._process is not None:
            if self._process.poll() is None:
                os.kill(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def wait_for_end(self, seconds: float) -> int:
        if self._process is None:
            raise RuntimeError(f"{self.name} is not running")
        return self._process.wait(seconds)

    @property
    def log_path(self) -> Path:
        return self.folder / "server.log"

    def log_text(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""
