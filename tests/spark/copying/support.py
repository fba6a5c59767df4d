"""Topics to copy, and what stands in them, read by hand: nothing of the copy is used to judge the copy."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from oncelog.client.consumer.consumer import Consumer
from oncelog.client.types import OFFSET_BEGINNING, TopicPartition
from oncelog.records.build import build_batch
from oncelog.spark.copying.cluster import Cluster
from oncelog.spark.copying.copy_planning import Plan, Spec
from oncelog.spark.copying.job import Copied, Task
from oncelog.spark.copying.moving import run
from oncelog.spark.copying.tasks import shared_out
from tests.raw import RawConnection

LONG_AGO_MS = 1_500_000_000_000  # any Kafka forgets at once who wrote such a record
PATIENCE_S = 30.0

Record = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], int]


class Stored(NamedTuple):
    offset: int
    record: Record


def some(first: int, last: int, *, time_ms: int = LONG_AGO_MS) -> list[Record]:
    """Nulls, empty bytes, headers of both kinds, times that go back; each record is another."""
    return [
        (
            None if number % 3 == 0 else b"key %d" % (number % 50),
            b"value %d" % number,
            (("number", b"%d" % number), ("none", None))[: number % 3],
            time_ms + (number * 37) % 50,
        )
        for number in range(first, last)
    ]


def written(
    raw: RawConnection, topic: str, partition: int, records: Sequence[Record], *, each: int = 20, codec: int = 0
) -> None:
    """Into batches of so many records."""
    for at in range(0, len(records), each):
        batch = build_batch(
            [(*record[:2], list(record[2]), record[3]) for record in records[at : at + each]], codec=codec
        )
        assert raw.produce(topic, partition, bytes(batch)).error_code == 0


def stored(servers: str, topic: str, partition: int = 0) -> list[Stored]:
    """What a consumer sees of transactions that were committed."""
    properties = {
        "bootstrap.servers": servers,
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
    }
    found: list[Stored] = []
    with Consumer(properties) as consumer:
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
        while True:
            message = consumer.poll(PATIENCE_S)
            assert message is not None, "neither a record nor the end came"
            error = message.error()
            if error is not None:
                assert error.code() == error._PARTITION_EOF, error
                return found
            headers = tuple(message.headers() or ())
            found.append(Stored(message.offset(), (message.key(), message.value(), headers, message.timestamp()[1])))


def records(servers: str, topic: str, partition: int = 0) -> list[Record]:
    return [each.record for each in stored(servers, topic, partition)]


class Copy:
    """One copy, run as a driver would, without Spark between it and its tasks."""

    def __init__(
        self,
        source_servers: str,
        source: str,
        destination: str,
        *,
        destination_servers: str | None = None,
        name: str | None = None,
        skips_lost: bool = False,
        fetch_bytes: int = 4 << 20,
        **writing: Any,
    ) -> None:
        reading = {"bootstrap.servers": source_servers, "fetch.message.max.bytes": str(fetch_bytes)}
        servers = {"bootstrap.servers": destination_servers or source_servers}
        more = {name.replace("_", "."): str(value) for name, value in writing.items()}
        self.spec = Spec(
            source=Cluster(reading | {"isolation.level": "read_committed"}, {}),
            destination=Cluster(servers | {"isolation.level": "read_uncommitted"}, servers | more),
            source_topic=source,
            destination_topic=destination,
            name=name or f"{source}-{destination}"[:200],
            skips_lost=skips_lost,
        )

    def tasks(self, most: int = 1) -> list[Task]:
        with Plan(self.spec) as plan:
            job = plan.job()
            register = plan.register(job)
            parts = shared_out(plan.orders(job, register), register.lanes, most)
            return [Task(job, part, register) for part in parts if part]

    def run(self, attempt: str = "a", most: int = 1) -> list[Copied]:
        return [each for task in self.tasks(most) for each in run(task, attempt)]
