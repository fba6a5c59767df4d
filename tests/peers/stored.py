"""What a server really keeps on disk: the codecs of the batches in a partition's segment files, and who sent them.

A client that finds a feature missing sends its batches uncompressed and still reads them back; only the file tells.
"""

from typing import Any

from tests.peers.server_process import ServerProcess
from tests.raw.batches import CODECS, HEADER, HEADER_BYTES

NAMES = {number: name for name, number in CODECS.items()}


def stored_codecs(server: ServerProcess, topic: str, partition: int = 0) -> set[str]:
    return {NAMES[attributes & 7] for attributes in batch_attributes(server, topic, partition)}


def stored_producers(server: ServerProcess, topic: str, partition: int = 0) -> list[bool]:
    """Of each batch, whether it was sent idempotently."""
    return [header[9] >= 0 for header in _headers(server, topic, partition)]


def batch_attributes(server: ServerProcess, topic: str, partition: int = 0) -> list[int]:
    return [header[5] for header in _headers(server, topic, partition)]


def _headers(server: ServerProcess, topic: str, partition: int) -> list[tuple[Any, ...]]:
    found = []
    for path in sorted((server.data / f"{topic}-{partition}").glob("*.log")):
        data, at = path.read_bytes(), 0
        while at + HEADER_BYTES <= len(data):
            header = HEADER.unpack_from(data, at)
            if header[1] <= 0:
                break  # Kafka may have reserved space that is not written yet
            found.append(header)
            at += header[1] + 12
    return found
