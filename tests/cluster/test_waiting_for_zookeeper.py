"""A broker that is started before its ZooKeeper."""

import subprocess
import sys
from pathlib import Path

from oncelog.chaos.life import Life, free_ports


def test_it_says_that_it_waits_and_ends_when_it_is_told_to(tmp_path: Path) -> None:
    where = f"127.0.0.1:{free_ports(1)[0]}"
    broker = Life("the broker", tmp_path / "broker.log")
    order = [sys.executable, "-m", "oncelog", "serve", "--cluster", f"zk://{where}/oncelog"]
    broker.launch([*order, "--listen", "127.0.0.1:0", "--data", str(tmp_path / "data")], stdin=subprocess.DEVNULL)
    try:
        broker.await_words(f"(no ZooKeeper answers at {where})")
        broker.stop()
        assert broker.process.returncode == 0, broker.last_words()
    finally:
        broker.kill()
