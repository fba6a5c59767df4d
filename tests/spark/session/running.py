"""Runs the job as a user's script, with a log or a terminal for its stderr."""

import json
import os
import pty
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any

from tests.peers.server_process import ServerProcess

JOB = Path(__file__).with_name("job.py")
SOURCES = Path(__file__).parents[3] / "src"
JOB_SECONDS = 240
# What Spark's own shell scripts call.
TOOLS = ("bash", "cat", "chmod", "dirname", "env", "id", "ls", "ps", "readlink", "rm", "sh", "tar", "uname")


@dataclass(frozen=True)
class Ran:
    result: dict[str, Any]
    stderr: str

    @property
    def lines(self) -> list[str]:
        return self.stderr.splitlines()


def environment(**changed: str) -> dict[str, str]:
    """As this process', without what earlier sessions of it have set, and the same in all phases of a test."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK", "PYTEST"))}
    path = os.pathsep.join(part for part in (str(SOURCES), os.environ.get("PYTHONPATH", "")) if part)
    return {**kept, "PYTHONPATH": path, **changed}


def run_job(
    how: str, server: ServerProcess, topic: str, folder: Path, env: dict[str, str], in_terminal: bool = False
) -> Ran:
    folder.mkdir(parents=True, exist_ok=True)
    order = [sys.executable, str(JOB), how, server.bootstrap_servers, topic, str(folder)]
    result = folder / "stdout"
    with open(result, "w") as stdout:
        if in_terminal:
            code, said = _with_terminal(order, env, stdout.fileno())
        else:
            done = subprocess.run(order, env=env, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=JOB_SECONDS)
            code, said = done.returncode, done.stderr
    return Ran(result_of(code, result.read_text(), said), said)


def result_of(code: int, stdout: str, stderr: str) -> dict[str, Any]:
    found = [line for line in stdout.splitlines() if line.startswith("RESULT ")]
    assert code == 0 and found, f"ended with {code}:\n{stderr[-4000:]}"
    result: dict[str, Any] = json.loads(found[0].removeprefix("RESULT "))
    return result


def _with_terminal(order: list[str], env: dict[str, str], stdout: int) -> tuple[int, str]:
    ours, theirs = pty.openpty()
    read: list[bytes] = []

    def drain() -> None:
        while True:
            try:
                chunk = os.read(ours, 65536)
            except OSError:  # what Linux answers when the last process has closed its side
                return
            if not chunk:
                return
            read.append(chunk)

    process = subprocess.Popen(order, env=env, stdout=stdout, stderr=theirs)
    os.close(theirs)
    reader = Thread(target=drain, daemon=True)
    reader.start()
    try:
        code = process.wait(JOB_SECONDS)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    reader.join(JOB_SECONDS)
    os.close(ours)
    return code, b"".join(read).decode()
