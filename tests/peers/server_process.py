"""A server under test as a child process: started, awaited by its first answer, ended by its own process id."""

import os
from pathlib import Path
from types import TracebackType
from typing import Self

from oncelog.chaos.life import Life
from tests.raw import RawConnection


class ServerProcess(Life):
    called = "server"
    start_seconds = 30.0

    def __init__(self, folder: Path, port: int) -> None:
        super().__init__(self.called, folder / "server.log")
        self.folder = folder
        self.data = folder / "log"
        self.port = port
        self.bootstrap_servers = f"127.0.0.1:{port}"

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

    def prepare_folder(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.prepare()

    def begin(self) -> None:
        """Starts it and returns at once."""
        self.prepare_folder()
        self.launch(self.command(), cwd=self.folder, env=self.environment())

    def start(self) -> None:
        self.begin()
        try:
            self.await_first_answer()
        except BaseException:
            self.kill()
            raise

    def await_first_answer(self, pause_s: float = 0.01) -> None:
        self.await_ready(self._answers, self.start_seconds, pause_s)

    def _answers(self) -> bool:
        try:
            with RawConnection(self.port, timeout_s=10) as connection:
                return self.ready(connection)
        except OSError:
            return False
