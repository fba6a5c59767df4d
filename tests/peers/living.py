"""Processes of stock clients that are killed again and again."""

import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread


@contextmanager
def living(
    *command: str, log: Path | None = None, environment: Mapping[str, str] | None = None
) -> Iterator[Callable[[], None]]:
    """A process that is started again whenever it has ended; called, it is killed. Its input does not end."""
    is_over, current = Event(), [_started(command, log, environment)]

    def watch() -> None:
        while not is_over.is_set():
            try:
                current[0].wait(0.1)
            except subprocess.TimeoutExpired:
                continue
            if not is_over.is_set():
                current[0] = _started(command, log, environment)

    watching = Thread(target=watch)
    watching.start()
    try:
        yield lambda: current[0].kill()
    except AssertionError as failure:
        if log is not None:
            failure.add_note(log.read_text(errors="replace")[-3000:])
        raise
    finally:
        is_over.set()
        watching.join()
        current[0].kill()
        current[0].wait()


def _started(
    command: Sequence[str], log: Path | None, environment: Mapping[str, str] | None
) -> "subprocess.Popen[bytes]":
    if log is None:
        return subprocess.Popen(command, stdin=subprocess.PIPE, env=environment)
    with log.open("ab") as output:
        return subprocess.Popen(command, stdin=subprocess.PIPE, env=environment, stdout=output, stderr=output)
