"""The outputs of a run of records, on their way to the partitions of their topics."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from oncelog.flow.codecs import Codec
from oncelog.flow.messages import Outputs
from oncelog.flow.parts import Sink
from oncelog.flow.topics import Topic
from oncelog.slots import Place

MOST_KNOWN: Final = 100_000  # keys whose partition is


class Partitions(dict[bytes, int]):
    """The partitions of keys of one topic."""

    def __init__(self, topic: Topic[Any, Any], cell: int) -> None:
        self._topic, self._cell = topic, cell

    def __missing__(self, key: bytes) -> int:
        """A record without a key goes to the partition number of its cell, modulo the partitions of the topic."""
        topic = self._topic
        found = self[key] = self._cell % topic.partitions if key is None else topic.partition_of(key)
        return found


class Route:
    """The partitions of one output topic, and what is on its way to each."""

    def __init__(self, sink: Sink, cell: int, *, is_held: bool) -> None:
        self.topic = sink.topic
        self.is_held = is_held
        self.tells_source = sink.tells_source
        self.known = Partitions(sink.topic, cell)
        self.begin()

    def begin(self) -> None:
        partitions = range(self.topic.partitions)
        self.keys: list[list[bytes]] = [[] for _ in partitions]
        self.values: list[list[bytes | None]] = [[] for _ in partitions]
        self.times: list[list[int]] = [[] for _ in partitions]
        self.sources: list[list[bytes]] = [[] for _ in partitions]
        self.columns: dict[int, Outputs] = {}  # of a run that came as such
        if len(self.known) > MOST_KNOWN:
            self.known.clear()

    def take(
        self,
        keys: Sequence[bytes | None],
        values: Sequence[Any],
        times: Sequence[int],
        sources: tuple[bytes, Sequence[int]] | None = None,
    ) -> None:
        """All of them, or none where a value cannot be encoded. Of sources: how all begin, and the offsets behind."""
        from oncelog.flow.numbered import by_partition, encoded

        data = encoded(self.topic.value, values)
        self.columns = dict(by_partition(keys, data, times, self.topic.partitions, sources))

    def take_stored(self, keys: Sequence[bytes], stored: Sequence[bytes], codec: Codec[Any], time_ms: int) -> None:
        """The same of what this codec has encoded, all at one time."""
        from oncelog.flow.numbered import by_partition, encoded

        is_same = codec.made_by is not None and codec.made_by == self.topic.value.made_by
        data = stored if is_same else encoded(self.topic.value, [*map(codec.decode, stored)])
        self.columns = dict(by_partition(keys, data, time_ms, self.topic.partitions))

    def take_back(self, partition: int) -> None:
        """The last one."""
        for column in (self.keys, self.values, self.times, self.sources):
            if column[partition]:  # not all say their source
                column[partition].pop()

    def outputs(self) -> Iterator[tuple[Place, Outputs]]:
        for partition, keys in enumerate(self.keys):
            if keys:
                sources = self.sources[partition] if self.tells_source else None
                yield (
                    Place(self.topic.name, partition),
                    Outputs(keys, self.values[partition], self.times[partition], sources),
                )
        for partition, outputs in self.columns.items():
            yield Place(self.topic.name, partition), outputs
