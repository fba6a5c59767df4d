"""`oncelog chaos --console`: the page of the server that is killed, and what is done to it, as it happens.

The page lives in that server, so it goes and comes back with it. What happened is written to a file, from which each
life of the server tells it.
"""

import socket
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from oncelog.cli.parts.endings import failure
from oncelog.console.faults import Fault, FaultFile
from oncelog.settings import SettingsError, parse_address

if TYPE_CHECKING:
    from oncelog.chaos.outcome import Progress


class Page:
    def __init__(self, address: str, folder: Path) -> None:
        try:
            host, port = parse_address("--console", address)
        except SettingsError as wrong:
            raise failure(str(wrong)) from wrong
        host = host or "127.0.0.1"
        try:
            port = free_port(host, port)
        except OSError as refusal:  # of the server it would be known when it has ended again
            raise failure(f"cannot serve the page on {address}: {refusal.strerror or refusal}") from refusal
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"  # the same in every life
        self._path = folder / "faults"
        self._faults = FaultFile(self._path)
        self._told = 0

    @property
    def arguments(self) -> list[str]:
        """The arguments for `oncelog serve`."""
        return ["--console", self.address, "--console-faults", str(self._path)]

    def show(self, progress: "Progress", now_ms: int) -> None:
        new = progress.happened[self._told :]
        self._told += len(new)
        with suppress(OSError):  # the experiment goes on where the disk is full; its report has them all
            for target, words in new:
                self._faults.add(Fault(at_ms=now_ms, kind=str(target), words=words))


def free_port(host: str, port: int) -> int:
    """This one, if it is free; of 0, any."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family) as taken:
        found: int = taken.getsockname()[1]
        return found
