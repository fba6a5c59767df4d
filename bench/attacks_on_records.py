"""Attacks by records: what codecs are made to unfold, and what compaction has to read beside others."""

import gzip
from collections import Counter
from collections.abc import Generator
from functools import partial

from bench import attacks
from bench.attacks import PATIENCE_S, Row, Said, counted
from tests.console.served import Served
from tests.peers.server_process import ServerProcess
from tests.raw import RawConnection, Rec, batch
from tests.waiting import until

GZIP, SNAPPY = 1, 2
SNAPPY_HEAD = b"\x82SNAPPY\0\0\0\0\1\0\0\0\1"
SNAPPY_BLOCK = b"\0\0\0\3\1\0x"  # its length, and one byte
KEYS = 1_000
VALUE_BYTES = 9_000
BATCHES = 280  # of nearly a megabyte
LAG = "min.compaction.lag.ms"
ROWS: list[Row] = []
row = partial(attacks.row, among=ROWS)


@row("52,000 empty gzip members, and 200,000 blocks of snappy with a byte each, to a compacted topic, ten times")
def crumbs(server: ServerProcess) -> Generator[None, None, Said]:
    with RawConnection(server.port, timeout_s=PATIENCE_S) as connection:
        connection.create_topic("attacked", configs={"cleanup.policy": "compact", "max.message.bytes": "4000000"})
        batches = [
            batch([Rec(b"v", key=b"k")], payload=gzip.compress(b"") * 52_000, codec=GZIP),
            batch([Rec(b"v", key=b"k")], payload=SNAPPY_HEAD + SNAPPY_BLOCK * 200_000, codec=SNAPPY),
        ]
        yield
        codes = Counter(connection.produce("attacked", 0, each).error_code.name for each in batches * 10)
    return counted(codes)


@row(
    "280 MB of a compacted topic, while they are compacted",
    served=partial(Served, settings={"log.cleaner.backoff.ms": "100"}),
)
def compaction(server: ServerProcess) -> Generator[None, None, Said]:
    """Nothing of it may be compacted before the victim is watched."""
    with RawConnection(server.port, timeout_s=PATIENCE_S) as connection:
        configs = {"cleanup.policy": "compact", LAG: str(10**9), "segment.bytes": str(64 << 20)}
        connection.create_topic("attacked", configs=configs)
        for number in range(BATCHES):
            keys = [b"%d" % ((number * 110 + at) % KEYS) for at in range(110)]
            connection.produce("attacked", 0, batch([Rec(bytes(VALUE_BYTES), key=key) for key in keys]))
        full_bytes = size_bytes(connection)
        yield
        change = {"name": LAG, "value": "0", "config_operation": 0}
        resource = {"resource_type": 2, "resource_name": "attacked", "configs": [change]}
        connection.call("incremental_alter_configs", 1, resources=[resource], validate_only=False)
        until(lambda: size_bytes(connection) < full_bytes // 2, "the end of the pass", give_up_seconds=PATIENCE_S)
        left_bytes = size_bytes(connection)
    return f"{full_bytes / 1e6:.0f} MB become {left_bytes / 1e6:.0f}"


def size_bytes(connection: RawConnection) -> int:
    topics = [{"topic": "attacked", "partitions": [0]}]
    return int(connection.call("describe_log_dirs", 2, topics=topics).results[0].topics[0].partitions[0].partition_size)
