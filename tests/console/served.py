"""`oncelog serve --console` in a process of its own, with a file of faults."""

from pathlib import Path

from oncelog.chaos.life import free_ports
from oncelog.console.faults import FaultFile
from tests.peers.oncelog_process import SOURCES, OncelogProcess


class Served(OncelogProcess):
    """A server with its page and its metrics."""

    def __init__(self, folder: Path, settings: dict[str, str] | None = None, *, sources: Path = SOURCES) -> None:
        self.console_port, self.metrics_port = free_ports(2)
        metrics = {"oncelog.metrics.listener": f"127.0.0.1:{self.metrics_port}"}
        super().__init__(folder, settings={**metrics, **(settings or {})}, sources=sources)
        self.faults = FaultFile(folder / "faults")

    @property
    def page(self) -> str:
        return f"http://127.0.0.1:{self.console_port}/"

    def command(self) -> list[str]:
        faults = str(self.folder / "faults")
        return [*super().command(), "--console", f"127.0.0.1:{self.console_port}", "--console-faults", faults]
