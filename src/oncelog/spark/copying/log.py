"""The copy's topic on the destination cluster: `oncelog.copy.NAME`, which keeps its register.

It holds nothing but claims and what lanes wrote down, so it stays small and is read from its beginning.
"""

from collections.abc import Iterable
from typing import Final, Self
from zlib import crc32

from oncelog.client.door import RegisterKind, TopicKeeper, cool, topic_keeper, warm
from oncelog.spark.copying.cluster import Cluster
from oncelog.spark.copying.job import CopyRefused
from oncelog.spark.copying.lane import CopyRegister
from oncelog.spark.register_names import most_letters, unfit_name

PREFIX: Final = "oncelog.copy."
PATIENCE_MS: Final = 120_000
KIND: Final = RegisterKind(
    what="the copy's state",
    refused=CopyRefused,
    missing=CopyRefused,
    config={"segment.bytes": str(16 << 20)},
    too_large="the source has too many partitions, or too many holes in them, for one copy",
    cut="It cannot be told how far the copy got: copy to a new topic, under another --name",
)


def check_name(name: str) -> None:
    unfit = unfit_name(name, PREFIX)
    if unfit is not None:
        raise CopyRefused(f"{name!r} cannot be a copy's name: {unfit}; --name gives another")


def usual_name(source: str, destination: str) -> str:
    """The usual name of a copy between the two topics; two long names are told apart by what their letters come to."""
    name = f"{source}-{destination}"
    if len(name) <= most_letters(PREFIX):
        return name
    return f"{name[: most_letters(PREFIX) - 9]}-{crc32(name.encode()):08x}"


class CopyLog:
    """Belongs to one thread."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.topic = PREFIX + name
        self._client = warm(cluster.reading)
        self._keeper: TopicKeeper[CopyRegister] = topic_keeper(
            self._client.brokers, self.topic, KIND, CopyRegister, PATIENCE_MS
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        cool(self._client)

    def create(self) -> None:
        self._client.thread.run(self._keeper.create())

    def check_config(self) -> None:
        self._client.thread.run(self._keeper.check_config())

    def read(self) -> CopyRegister:
        return self._client.thread.run(self._keeper.read())

    def read_on(self, register: CopyRegister) -> None:
        self._client.thread.run(self._keeper.read_to_end(register))

    def append(self, register: CopyRegister, records: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Append records. They are stored when this returns, and `register` has all that stands before them."""
        self._client.thread.run(self._keeper.append(register, records))
