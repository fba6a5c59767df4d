"""python -m tests.peers.matrix [--kafka] [NAME ...]

Installs each peer, runs it against oncelog, with --kafka against a real Apache Kafka too, and writes its row into
docs/compatibility.md. A name is part of a peer's; without any, all are run. What is not to be had on this machine keeps
its row, and is told.
"""

import sys
import tempfile
import time
import traceback
from pathlib import Path

import click

from tests.peers.apache import QUICK_BROKER, ApacheKafka
from tests.peers.jars import MissingPeer
from tests.peers.matrix.page import DONE, PEERS, Row, row_of, rows, write
from tests.peers.matrix.steps import SETTINGS, Peer, World
from tests.peers.oncelog_process import OncelogProcess
from tests.peers.server_process import ServerProcess


def result(peer: Peer, server: ServerProcess, folder: Path) -> str:
    """What did not go as it should, in one line; all of it goes to stderr."""
    try:
        with server:
            peer.run(World(server, folder))
    except Exception as error:
        traceback.print_exc()
        step = str(getattr(error, "__notes__", [""])[-1]).partition(": ")[2]
        return f"failed at: {step}"
    return DONE


def run(peer: Peer, before: Row | None, *, with_kafka: bool) -> Row:
    peer.install()
    with tempfile.TemporaryDirectory() as folder:
        ours = Path(folder) / "oncelog"
        oncelog = result(peer, OncelogProcess(ours, settings=SETTINGS), ours)
        kafka = before.kafka if before else ""
        if with_kafka:
            theirs = Path(folder) / "kafka"
            kafka = result(peer, ApacheKafka(theirs, jvm=QUICK_BROKER), theirs)
    return row_of(peer, oncelog, kafka)


def main(words: list[str]) -> int:
    with_kafka, wanted = "--kafka" in words, [word for word in words if word != "--kafka"]
    found = rows()
    for name, peer in PEERS.items():
        if wanted and not any(word.lower() in name.lower() for word in wanted):
            continue
        begun = time.monotonic()
        try:
            found[name] = run(peer, found.get(name), with_kafka=with_kafka)
        except MissingPeer as missing:
            click.echo(f"{name}: {missing}")
            continue
        click.echo(f"{found[name].text()} in {time.monotonic() - begun:.1f} s")
        write(found)
    return int(any(row.oncelog != DONE for row in found.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
