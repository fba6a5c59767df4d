"""The server that is fuzzed: limits small, so that going over them is cheap."""

from pathlib import Path

from tests.peers.oncelog_process import OncelogProcess


def fuzzed_server(folder: Path) -> OncelogProcess:
    settings = {
        "auto.create.topics.enable": "false",  # a topic for every mutated name would only fill the disk
        "socket.request.max.bytes": str(8 << 20),
        "log.segment.bytes": str(1 << 20),
        "group.initial.rebalance.delay.ms": "0",
    }
    return OncelogProcess(folder, settings=settings)
