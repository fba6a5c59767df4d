"""oncelog as users run it: `python -m oncelog serve` in a process of its own."""

import os
import sys
from pathlib import Path

from oncelog.chaos.life import free_ports
from tests.peers.server_process import ServerProcess

SOURCES = Path(__file__).parents[2] / "src"


class OncelogProcess(ServerProcess):
    called = "oncelog"

    def __init__(
        self,
        folder: Path,
        *,
        settings: dict[str, str] | None = None,
        variables: dict[str, str] | None = None,
        prefix: tuple[str, ...] = (),
        port: int | None = None,
        sources: Path = SOURCES,
    ) -> None:
        super().__init__(folder, free_ports(1)[0] if port is None else port)
        self.settings = settings or {}
        self._sources = sources
        self._variables = variables or {}
        self._prefix = prefix

    def command(self) -> list[str]:
        order = [*self._prefix, sys.executable, "-m", "oncelog", "serve"]
        order += ["--data", str(self.data)]
        if "listeners" not in self.settings:
            order += ["--listen", self.bootstrap_servers]
        for key, value in self.settings.items():
            order += ["--set", f"{key}={value}"]
        return order

    def environment(self) -> dict[str, str]:
        paths = [str(self._sources), os.environ.get("PYTHONPATH", "")]
        path = os.pathsep.join(part for part in paths if part)
        return {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", **self._variables}
