"""Code blocks of the documents, found and run. What a block may say about itself stands in CONTRIBUTING.md."""

import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from oncelog.chaos.guard import Guard
from oncelog.chaos.life import free_ports, listens
from tests.repo.tree import ROOT, project_files, read
from tests.waiting import until

BLOCK = re.compile(
    r"^(?:<!--[ \t]*not run:(?P<reason>.*?)-->[ \t]*\n)?"
    r"(?P<indent>[ ]{0,3})(?P<fence>`{3,})(?P<language>[\w+-]*)[^\n`]*\n(?P<text>.*?)^(?P=indent)(?P=fence)[ \t]*$",
    re.MULTILINE | re.DOTALL,
)
ADDRESS = re.compile(r"(?:127\.0\.0\.1|localhost):9092")
METRICS = re.compile(r"(?:127\.0\.0\.1|localhost):9308")
RUN = ("bash", "sh", "python")
BLOCK_SECONDS = 300
STOP_SECONDS = 15
# What takes minutes is run with fewer messages and fewer kinds of faults; tests/chaos and tests/spark have the others.
SHORTER = {"./dev run": "./dev run --messages 60000 --every 8000 --kill responses,executor"}


@dataclass(frozen=True, slots=True)
class Block:
    page: str
    line: int
    language: str
    text: str
    not_run: str | None  # the reason

    @property
    def is_run(self) -> bool:
        return self.language in RUN and self.not_run is None

    @property
    def is_server(self) -> bool:
        return self.is_run and self.text.startswith("oncelog serve")

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[str]:
    """README, CONTRIBUTING and docs/; a decision is history and may name what is no more."""
    listed = [name for name in project_files() if re.fullmatch(r"(README|CONTRIBUTING)\.md|docs/.*\.md", name)]
    return [name for name in listed if not name.startswith("docs/decisions/")]


def blocks(page: str) -> list[Block]:
    return blocks_of(page, read(page))


def blocks_of(page: str, text: str) -> list[Block]:
    found = []
    for match in BLOCK.finditer(text):
        reason = match["reason"]
        line = text.count("\n", 0, match.start("fence")) + 1
        found.append(Block(page, line, match["language"], match["text"], reason if reason is None else reason.strip()))
    return found


def lines_missing(wanted: str, printed: str) -> list[str]:
    """Lines of an output block that were not printed, in their order; `…` stands for anything within a line."""
    left = [line.strip() for line in printed.splitlines()]
    missing = []
    for line in (line.strip() for line in wanted.splitlines()):
        if not line:
            continue
        pattern = re.compile(".*".join(re.escape(part) for part in line.split("…")))
        at = next((at for at, candidate in enumerate(left) if pattern.fullmatch(candidate)), None)
        if at is None:
            missing.append(line)
        else:
            left = left[at + 1 :]
    return missing


class BlockFailed(AssertionError):
    pass


class PageRun:
    """One page in a fresh copy of the project, with its server where it has one."""

    def __init__(self, page: str, folder: Path) -> None:
        self.folder = folder / "oncelog"
        self.port, self._metrics_port = free_ports(2)
        self._page = page
        self._server: subprocess.Popen[bytes] | None = None
        self._printed = ""
        self._guard = Guard()  # ends what the page has started, also where pytest is ended itself

    def __enter__(self) -> Self:
        self._guard.__enter__()
        for name in project_files():
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, self.folder / name)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._server is not None:
            _end(self._server)
        self._guard.__exit__(kind, error, at)

    def run(self, block: Block) -> None:
        if block.language == "output":
            missing = lines_missing(block.text, self._printed)
            if missing:
                raise BlockFailed(f"{block.where}: not printed: {missing}; printed was:\n{self._printed}")
        elif block.is_server:
            self._serve(block.text)
        elif block.is_run:
            if ADDRESS.search(block.text) and self._server is None:
                self._serve("oncelog serve --data page-data\n")
            self._run(block)

    def _run(self, block: Block) -> None:
        process = subprocess.Popen(
            self._command(block),
            cwd=self.folder,
            env=self._env(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            self._printed = process.communicate(timeout=BLOCK_SECONDS)[0].decode(errors="replace")
        except subprocess.TimeoutExpired:
            _end(process)
            raise BlockFailed(f"{block.where}: still running after {BLOCK_SECONDS} s") from None
        if process.returncode:
            raise BlockFailed(f"{block.where}: exit code {process.returncode}, printed:\n{self._printed}")

    def _command(self, block: Block) -> list[str]:
        text = self._with_own_ports(SHORTER.get(block.text.strip(), block.text))
        if block.language != "python":
            return ["bash", "-euo", "pipefail", "-c", text]
        if not re.search(r"^(async )?def test_", text, re.MULTILINE):
            return [sys.executable, "-c", text]
        file = self.folder / f"test_line_{block.line}.py"
        file.write_text(text, encoding="utf-8")
        return [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, str(file)]

    def _with_own_ports(self, text: str) -> str:
        """Pages are run side by side, and a reader's machine may have a server of its own."""
        return METRICS.sub(f"127.0.0.1:{self._metrics_port}", ADDRESS.sub(f"127.0.0.1:{self.port}", text))

    def _env(self) -> dict[str, str]:
        bin_folder = str(Path(sys.executable).parent)
        env = {name: value for name, value in os.environ.items() if not name.startswith(("ONCELOG_", "PYTEST_"))}
        env["PATH"] = bin_folder + os.pathsep + env.get("PATH", "")
        return env | self._guard.variables

    def _serve(self, text: str) -> None:
        """The page's server, in the background, on the page's own port."""
        if self._server is not None:
            _end(self._server)
        env = self._env() | {"ONCELOG_LISTENERS": f"PLAINTEXT://127.0.0.1:{self.port}"}
        command = ["bash", "-euo", "pipefail", "-c", self._with_own_ports(text)]
        with open(self.folder / "page-server.log", "wb") as log:
            self._server = subprocess.Popen(
                command,
                cwd=self.folder,
                env=env,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        until(self._server_answers, f"{self._page}'s server")

    def _server_answers(self) -> bool:
        if self._server is None or self._server.poll() is not None:
            raise BlockFailed(f"{self._page}: its server ended:\n{(self.folder / 'page-server.log').read_text()}")
        return listens(self.port)


def _end(process: subprocess.Popen[bytes]) -> None:
    """The process and those that it started; it leads a session of its own."""
    for number in (signal.SIGINT, signal.SIGKILL):
        if process.poll() is None:
            os.killpg(process.pid, number)
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                continue
