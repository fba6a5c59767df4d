"""Topics for tests of the source, filled by hand-made batches."""

from typing import Any, Protocol

from oncelog.client.admin import Admin
from oncelog.client.types import NewPartitions, TopicPartition
from tests.peers.server_process import ServerProcess
from tests.raw import CODECS, RawConnection, Rec, batch

WAIT_S = 90.0
EPOCH_MS = 1_700_000_000_000


def produce(raw: RawConnection, topic: str, partition: int, count: int, *, first: int = 0, codec: str = "none") -> None:
    """`count` records a second apart, with and without keys, values and headers."""
    records = [
        Rec(
            None if at % 11 == 10 else b"value %d" % at,
            None if at % 3 == 0 else b"key %d" % at,
            (("h", b"%d" % at), ("none", None))[: at % 4 % 3],
            at * 1000,
        )
        for at in range(first, first + count)
    ]
    data = batch(records, timestamp_ms=EPOCH_MS, codec=CODECS[codec])
    assert raw.produce(topic, partition, data).error_code == 0


def delete_before(server: ServerProcess, topic: str, partition: int, offset: int) -> None:
    with Admin({"bootstrap.servers": server.bootstrap_servers}) as admin:
        for each in admin.delete_records([TopicPartition(topic, partition, offset)]).values():
            each.result(WAIT_S)


def add_partitions(server: ServerProcess, raw: RawConnection, topic: str, count: int) -> None:
    with Admin({"bootstrap.servers": server.bootstrap_servers}) as admin:
        for each in admin.create_partitions([NewPartitions(topic, count)]).values():
            each.result(WAIT_S)
    raw.await_leaders(topic, range(count))


def new_topic(raw: RawConnection, name: str, partitions: int = 1, configs: dict[str, str] | None = None) -> str:
    forever = {"retention.ms": "-1"}  # their timestamps are years old
    assert raw.create_topic(name, partitions, forever | (configs or {})) == 0
    raw.await_leaders(name, range(partitions))
    return name


class Servers(Protocol):
    @property
    def bootstrap_servers(self) -> str: ...


def options(server: Servers, **more: Any) -> dict[str, str]:
    return {"kafka.bootstrap.servers": server.bootstrap_servers} | {name: str(value) for name, value in more.items()}
