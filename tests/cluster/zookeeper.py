"""A real ZooKeeper, of the jars that come with PySpark; one for each process that runs tests."""

import atexit
import importlib.util
import tempfile
from functools import cache
from pathlib import Path

from oncelog.chaos.life import Life, free_ports, listens
from tests.peers.jars import TOOL_JVM, MissingPeer, java, need_or_skip

TICK_MS = 200  # sessions last from 2 to 20 of them


class ZooKeeper(Life):
    def __init__(self, folder: Path, more: str = "") -> None:
        """`more` is added to its configuration."""
        super().__init__("ZooKeeper", folder / "zookeeper.log")
        self.folder = folder
        self._more = more
        (self.port,) = free_ports(1)

    def start(self) -> None:
        config = self.folder / "zoo.cfg"
        config.write_text(
            f"tickTime={TICK_MS}\ndataDir={self.folder}/data\nclientPort={self.port}\nclientPortAddress=127.0.0.1\n"
            f"admin.enableServer=false\nmaxClientCnxns=0\n{self._more}"
        )
        self.launch(_command(config), cwd=self.folder)
        self.await_ready(lambda: listens(self.port))


def _command(config: Path) -> list[str]:
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise MissingPeer("pyspark is not installed, which has the jars of ZooKeeper")
    jars = Path(found.origin).parent / "jars"
    return [java(), *TOOL_JVM, "-cp", f"{jars}/*", "org.apache.zookeeper.server.ZooKeeperServerMain", str(config)]


@cache
def running_zookeeper() -> ZooKeeper:
    folder = tempfile.TemporaryDirectory(prefix="oncelog-zookeeper-")
    server = ZooKeeper(Path(folder.name))
    try:
        server.start()
    except MissingPeer as missing:
        folder.cleanup()
        need_or_skip(missing)
    atexit.register(folder.cleanup)
    atexit.register(server.kill)
    return server
