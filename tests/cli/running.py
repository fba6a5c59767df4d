"""Commands run in this process, or as processes of their own."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from click.testing import CliRunner

from oncelog.cli import main

PROCESS_SECONDS = 60
# kio makes hypothesis strategies of all its types where that is installed, which it is for tests alone.
START = "import sys; sys.modules['hypothesis'] = None; from oncelog.cli import main; main(prog_name='oncelog')"


@dataclass(frozen=True)
class Said:
    code: int
    out: bytes
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.decode().splitlines()

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def refusal(self) -> str:
        """The one line of a failure."""
        assert self.code in (1, 2), self
        (line,) = self.err.splitlines()
        assert line.startswith("Error: "), line
        return line.removeprefix("Error: ")


class Oncelog:
    def __init__(self, servers: str) -> None:
        self.servers = servers

    def run(self, command: str, *arguments: str, stdin: bytes = b"") -> Said:
        """Whatever it ends with."""
        connecting = () if "-b" in arguments else ("-b", self.servers)
        words = [*command.split(), *connecting, *arguments]
        done = CliRunner().invoke(main, words, input=stdin)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return Said(done.exit_code, done.stdout_bytes, done.stderr)

    def __call__(self, command: str, *arguments: str, stdin: bytes = b"") -> Said:
        """It is to succeed."""
        said = self.run(command, *arguments, stdin=stdin)
        assert said.code == 0, said
        return said

    def consumed(self, topic: str, *arguments: str) -> list[str]:
        return self("consume", "-t", topic, "-e", "-q", *arguments).lines

    def start(self, command: str, *arguments: str, **more: Any) -> "subprocess.Popen[bytes]":
        words = [sys.executable, "-c", START, *command.split(), "-b", self.servers, *arguments]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | more
        # Buffers as they are for everyone, and Ctrl-C as a terminal's.
        environ = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
        return subprocess.Popen(words, env=environ, preexec_fn=_hears_ctrl_c, **pipes)


def _hears_ctrl_c() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def ended(process: "subprocess.Popen[bytes]", stdin: bytes | None = None) -> Said:
    """Once it has ended by itself."""
    out, err = process.communicate(stdin, timeout=PROCESS_SECONDS)
    said = Said(process.returncode, out or b"", (err or b"").decode())
    assert "Traceback" not in said.err, said.err
    return said
