"""The commands that start several processes on this machine."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def started(folder: Path, *command: str) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """The command, and the line that it prints once all that it starts is up."""
    words = [*command, "--listen", "127.0.0.1:0", "--data", str(folder)]
    with open(folder.with_suffix(".log"), "wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "oncelog", *words], stdout=subprocess.PIPE, stderr=log, text=True
        )
    assert process.stdout is not None
    with process.stdout as said:
        try:
            yield process, said.readline()
        finally:
            process.kill()
            process.wait()
