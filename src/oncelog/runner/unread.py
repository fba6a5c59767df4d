"""Partitions that a topic got since its flow began. Each cell is one partition, for ever, so no cell reads them. What
comes to them is told, and stops the stage."""

from collections.abc import Iterable
from typing import NamedTuple

from oncelog.client.door import EARLIEST, Brokers, end_offsets


def to_read_all(topic: str, partitions: int) -> str:
    """The advice, since a flow is not rescaled in place."""
    return (
        f"To read all, say Topic({topic!r}, ..., partitions={partitions}) and run it as a flow of another name, or by "
        "`flow.backfill`, into other topics"
    )


class Known(NamedTuple):
    """An input of a stage, as the stage has it."""

    stage: str
    topic: str
    cells: int
    is_derived: bool  # the flow writes it, and to the partitions of its cells only


class Unread(NamedTuple):
    of: Known
    partitions: int  # that there are now
    starts: dict[int, int]  # by partition
    ends: dict[int, int]

    @property
    def by_partition(self) -> dict[int, int]:
        """The number of records that came to it. Records of another's topic that retention took were never read,
        either."""
        starts = self.starts if self.of.is_derived else dict.fromkeys(self.starts, 0)
        return {index: end - starts[index] for index, end in self.ends.items()}

    @property
    def records(self) -> int:
        return sum(self.by_partition.values())

    def words(self, flow: str) -> str:
        """The same wherever it is noticed."""
        stage, topic, cells, is_derived = self.of
        what = f"flow {flow}, stage {stage}: its input {topic} has {self.partitions} partitions now, and the stage has "
        what += f"{cells} cells, for ever, so nobody reads what comes to the others. "
        if is_derived:
            return what + "The flow does not write to these: find out what does, and remove its records"
        return what + to_read_all(topic, self.partitions)


async def unread(brokers: Brokers, inputs: Iterable[Known]) -> list[Unread]:
    """The inputs that have more partitions than cells, by what is known of topics now."""
    topics = brokers.metadata.topics
    counts = {each: len(topics[each.topic].partitions) for each in inputs if each.topic in topics}
    more = {each: range(each.cells, count) for each, count in counts.items() if count > each.cells}
    places = {(each.topic, index) for each, indices in more.items() for index in indices}
    if not places:
        return []
    starts, ends = await end_offsets(brokers, places, EARLIEST), await end_offsets(brokers, places)
    return [
        Unread(
            each,
            counts[each],
            {index: starts[each.topic, index] for index in indices},
            {index: ends[each.topic, index] for index in indices},
        )
        for each, indices in more.items()
    ]
