"""Ends what an experiment has started, whatever becomes of the experiment: also where it is killed itself, or where
Ctrl-C comes between the start of a process and the line that would remember it.

    python -m oncelog.chaos.guard MARK [FOLDER]

Every process of an experiment has its mark among its environment variables, and hands it on to whatever it starts. An
experiment that another one starts has a mark that begins with the other's, and ends with it. The
guard is a process that holds one end of a pipe. When the other end is gone, it ends all that carry the mark, and then
removes the experiment's temporary folder. Marks are looked for in /proc; a system that has none relies on the
experiment's own tidiness.
"""

import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from threading import Event as Waiting
from types import TracebackType
from typing import Any, Final, Self

VARIABLE: Final = "CHAOS_MARK"  # what begins with ONCELOG_ is a setting of the server
WITHIN: Final = "."  # between the marks of an experiment and of one that it has started
PROCESSES: Final = Path("/proc")
LOOKS: Final = 100  # at most, each of which may find what was started during the one before
NOBODY: Final = 2  # looks in a row: one that is just becoming another program shows no environment, or its parent's
PAUSE_S: Final = 0.05
END_S: Final = 20.0


class Guard:
    """`folder` is the experiment's own, and ends with it, and so does what its processes put into their temporary
    folder: JVMs that are killed leave some megabytes there each time."""

    def __init__(self, folder: Path | None = None) -> None:
        around = os.environ.get(VARIABLE)
        self.mark = (f"{around}{WITHIN}" if around else "") + secrets.token_hex(8)
        self._folder = None if folder is None else folder.absolute()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "oncelog.chaos.guard", self.mark]
        command += [] if self._folder is None else [str(self._folder)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(END_S)

    def popen(
        self, command: Sequence[str], variables: Mapping[str, str] | None = None, **how: Any
    ) -> subprocess.Popen[bytes]:
        """Start a process in a session of its own, so that Ctrl-C in the terminal is for the experiment alone to act
        on."""
        environment = {**os.environ, **self.variables, **(variables or {})}
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, env=environment, start_new_session=True, **how)

    @property
    def variables(self) -> dict[str, str]:
        """The variables of every process of the experiment."""
        if self._folder is None:
            return {VARIABLE: self.mark}
        folder = self._folder / "tmp"
        folder.mkdir(exist_ok=True)
        java = f'{os.environ.get("JAVA_TOOL_OPTIONS", "")} "-Djava.io.tmpdir={folder}"'  # it does not know TMPDIR
        return {VARIABLE: self.mark, "TMPDIR": str(folder), "JAVA_TOOL_OPTIONS": java.strip()}


def marked(mark: str) -> Iterator[int]:
    wanted = f"{VARIABLE}={mark}".encode()
    within = wanted + WITHIN.encode()
    for pid in pids():
        try:
            variables = (PROCESSES / str(pid) / "environ").read_bytes()
        except OSError:
            continue  # it has ended, or is somebody else's
        if any(each == wanted or each.startswith(within) for each in variables.split(b"\0")):
            yield pid


def pids() -> Iterator[int]:
    if PROCESSES.is_dir():
        yield from (int(entry.name) for entry in PROCESSES.iterdir() if entry.name.isdigit())


def end(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # it has ended meanwhile


def main(arguments: Sequence[str]) -> int:
    mark, *folders = arguments
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.stdin.buffer.read()
    code = _end_all(mark)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)  # it may be gone already
    return code


def _end_all(mark: str) -> int:
    never = Waiting()
    empty = 0
    for _ in range(LOOKS):
        found = list(marked(mark))
        empty = 0 if found else empty + 1
        if empty == NOBODY:
            return 0
        for pid in found:
            end(pid)
        never.wait(PAUSE_S)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
