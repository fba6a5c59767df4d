"""The copy's topic on the destination cluster: `oncelog.copy.NAME`, one partition, compacted.

It holds nothing but claims and what lanes wrote down, so it stays small and is read from its beginning. Records are
facts, so one that is there twice because its acknowledgement was lost does no harm.
"""

from collections.abc import Iterable, Mapping
from typing import Final, Self
from zlib import crc32

from oncelog.client import KafkaError, KafkaException, Producer
from oncelog.client.door import EARLIEST, LATEST, Range, cool, end_offsets, read_columns, warm
from oncelog.slots import Place
from oncelog.spark.copying.cluster import Cluster
from oncelog.spark.copying.job import CopyRefused
from oncelog.spark.copying.lane import Lane, Noted, Standing

PREFIX: Final = "oncelog.copy."
MOST_RECORD_BYTES: Final = 8 << 20
CONFIG: Final = {
    "cleanup.policy": "compact",
    "max.message.bytes": str(MOST_RECORD_BYTES),
    "segment.bytes": str(16 << 20),
    "min.cleanable.dirty.ratio": "0.1",
}
APPEND_S: Final = 120.0


MOST_NAME_LETTERS: Final = 249 - len(PREFIX)
LETTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def check_name(name: str) -> None:
    if not name or len(name) > MOST_NAME_LETTERS or not LETTERS.issuperset(name):
        raise CopyRefused(
            f"{name!r} cannot be a copy's name: it is 1 to {MOST_NAME_LETTERS} letters, digits, dots, hyphens and "
            "underscores, as it becomes part of a topic's name; --name gives another"
        )


def usual_name(source: str, destination: str) -> str:
    """Of the two topics; two long names are told apart by what their letters come to."""
    name = f"{source}-{destination}"
    if len(name) <= MOST_NAME_LETTERS:
        return name
    return f"{name[: MOST_NAME_LETTERS - 9]}-{crc32(name.encode()):08x}"


class CopyLog:
    """Belongs to one thread."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self._cluster = cluster
        self._client = warm(cluster.reading)
        self._place = Place(PREFIX + name, 0)
        self._producer: Producer | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        cool(self._client)
        if self._producer is not None:
            self._producer.close(0)

    @property
    def topic(self) -> str:
        return self._place.topic

    @property
    def config(self) -> Mapping[str, str]:
        """For who makes the topic."""
        return CONFIG

    def read(self, standing: Standing) -> list[tuple[str, Lane]]:
        """What was appended since it was read last; the lanes' records, with who wrote them."""
        end = self._offset(LATEST)
        asked = Range(*self._place, standing.next_offset or self._offset(EARLIEST), end)
        found = []
        for columns in read_columns(self._cluster.reading, asked, columns=frozenset({"key", "value", "offset"})):
            assert columns.key is not None and columns.value is not None and columns.offset is not None
            keys = (key or b"" for key in columns.key.to_list())
            records = zip(columns.offset.tolist(), keys, columns.value.to_list(), strict=True)
            found += standing.read(Noted(*each) for each in records)
        standing.next_offset = max(standing.next_offset, end)
        return found

    def _offset(self, which: int) -> int:
        brokers = self._client.brokers

        async def ask() -> int:
            await brokers.refresh([self.topic])
            return (await end_offsets(brokers, [self._place], which))[self._place]

        return self._client.thread.run(ask())

    def append(self, records: Iterable[tuple[bytes, bytes | None]]) -> None:
        """They are stored when this returns."""
        producer = self._opened()
        failures: list[KafkaError] = []

        def told(error: KafkaError | None, _: object) -> None:
            if error is not None:
                failures.append(error)

        for key, value in records:
            producer.produce(self.topic, value, key, partition=0, on_delivery=told)
        if producer.flush(APPEND_S):
            failures.append(KafkaError(KafkaError._TIMED_OUT, f"topic {self.topic} takes no records"))
        if failures:
            raise KafkaException(failures[0])

    def _opened(self) -> Producer:
        if self._producer is None:
            own = {
                "enable.idempotence": "false",
                "request.required.acks": "all",
                "max.in.flight": "1",
                "linger.ms": "0",
                "compression.type": "gzip",
                "message.max.bytes": str(MOST_RECORD_BYTES),
            }
            self._producer = Producer(dict(self._cluster.writing) | own)
        return self._producer
