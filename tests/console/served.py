"""`oncelog serve --console` in a process of its own, with a file of faults."""

from pathlib import Path

from oncelog.chaos.life import free_ports
from oncelog.console.faults import FaultFile
from tests.peers.oncelog_process import OncelogProcess


class Served(OncelogProcess):
    """A server with its page."""

    def __init__(self, folder: Path, settings: dict[str, str] | None = None) -> None:
        super().__init__(folder, settings=settings)
        self.faults = FaultFile(folder / "faults")
        self.console_port = free_ports(1)[0]

    @property
    def page(self) -> str:
        return f"http://127.0.0.1:{self.console_port}/"

    def command(self) -> list[str]:
        faults = str(self.folder / "faults")
        return [*super().command(), "--console", f"127.0.0.1:{self.console_port}", "--console-faults", faults]
