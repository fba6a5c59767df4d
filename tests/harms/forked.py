"""A server that is forked off from here, with everything imported: ten starts take what one would."""

import ctypes
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import IO, Any

from oncelog.cli import main as oncelog
from oncelog.embedded import Server
from tests.peers.oncelog_process import OncelogProcess

PR_SET_PDEATHSIG = 1

_context = multiprocessing.get_context("fork")


class Forked:
    """What `Life` asks of a process."""

    def __init__(
        self, command: Sequence[str], *, stdout: IO[bytes], cwd: Path, before: Callable[[], None], **rest: Any
    ) -> None:
        _import_all()
        arguments = list(command[command.index("serve") :])
        self._process = _context.Process(target=_live, args=(arguments, stdout.fileno(), str(cwd), before))
        self._process.start()
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int | None:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("oncelog", timeout or 0)
        return self._process.exitcode

    def kill(self) -> None:
        self._process.kill()

    def send_signal(self, number: int) -> None:
        if self.pid is not None and self.poll() is None:
            os.kill(self.pid, number)


@cache
def _import_all() -> None:
    """Much is imported by who first needs it."""
    import_module("oncelog.cli.serve")
    with Server():
        pass


def _live(arguments: list[str], log_fd: int, folder: str, before: Callable[[], None]) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # it does not outlive a campaign that is ended
    for fd in (1, 2):
        os.dup2(log_fd, fd)
    os.chdir(folder)
    before()
    sys.argv = ["oncelog", *arguments]
    oncelog(prog_name="oncelog")


class ForkedOncelog(OncelogProcess):
    start_seconds = 300.0  # it shall give way to others: nothing is measured here

    def __init__(self, folder: Path, *, settings: dict[str, str], before: Callable[[], None] = lambda: None) -> None:
        """`before` is called in the server's process, before it begins."""
        super().__init__(folder, settings=settings)
        self._popen = partial(Forked, before=before)  # type: ignore[assignment]
