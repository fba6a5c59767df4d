"""What a producer that is to be saved keeps account of. Pure.

It counts the records that the application handed over, partition by partition, and those that are surely stored. A save
takes the first count as its boundary at once, and is complete when the second has reached it everywhere; what is
produced meanwhile belongs to the next save.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from oncelog.client.saving.errors import CannotResume
from oncelog.client.saving.saved import Identity, Place, SavedPartition, SavedProducer, SavedTopic, Span
from oncelog.producers.sequences import sequence_after


@dataclass(slots=True)
class _Account:
    partition: SavedPartition  # as it is surely stored
    taken: int = 0  # records handed over since the start
    stored: int = 0  # of these, surely in the log


@dataclass(slots=True)
class _Topic:
    topic_id: str
    partition_count: int
    keyless_counter: int


@dataclass(slots=True)
class Save:
    """A boundary on its way to become a value."""

    topics: dict[str, _Topic]
    waiting: dict[Place, int] = field(default_factory=dict)  # how many must be stored there
    partitions: dict[Place, SavedPartition] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        return not self.waiting


class Book:
    def __init__(self, cluster_id: str, partitioner: str) -> None:
        self.cluster_id = cluster_id
        self.partitioner = partitioner
        self._topics: dict[str, _Topic] = {}
        self._accounts: dict[Place, _Account] = {}
        self._saves: list[Save] = []

    # --- what is pinned

    def pin(self, name: str, topic_id: str, partition_count: int, keyless_counter: int = 0) -> None:
        self._topics[name] = _Topic(topic_id, partition_count, keyless_counter)

    def open(self, place: Place, partition: SavedPartition) -> None:
        self._accounts[place] = _Account(partition)

    def partition_count(self, name: str) -> int | None:
        """How many partitions records of the topic are spread over; None where it is not pinned."""
        topic = self._topics.get(name)
        return None if topic is None else topic.partition_count

    def next_keyless(self, name: str) -> int:
        """The partition of the next record without a key."""
        topic = self._topics[name]
        partition = topic.keyless_counter % topic.partition_count
        topic.keyless_counter += 1
        return partition

    @property
    def topics(self) -> Iterable[str]:
        return self._topics.keys()

    @property
    def partitions(self) -> Mapping[Place, SavedPartition]:
        return {place: account.partition for place, account in self._accounts.items()}

    def is_settled(self, place: Place) -> bool:
        """Nothing of the partition is under way."""
        account = self._accounts[place]
        return account.taken == account.stored

    # --- what happens

    def taken(self, place: Place, records: int = 1) -> None:
        self._accounts[place].taken += records

    def stored(self, place: Place, records: int, next_offset: int) -> list[Save]:
        """So many more are in the log, sent or found there; the saves that are complete now."""
        account = self._accounts[place]
        account.stored += records
        spans = _after(place, account.partition.spans, records)
        offset = max(next_offset, account.partition.next_offset)
        account.partition = SavedPartition(next_offset=offset, spans=spans)
        complete = []
        for save in self._saves:
            goal = save.waiting.get(place)
            if goal is not None and account.stored >= goal:
                # Batches are sealed when a save begins, so a boundary is never inside of one.
                del save.waiting[place]
                save.partitions[place] = account.partition
                if save.is_complete:
                    complete.append(save)
        self._saves = [save for save in self._saves if not save.is_complete]
        return complete

    def change(self, place: Place, partition: SavedPartition) -> None:
        """Another identity, or a later offset, for a partition where nothing is under way."""
        self._accounts[place].partition = partition

    def change_identity(self, identity: Identity) -> None:
        """All go on under this one from their boundary; only while nothing is under way anywhere."""
        for account in self._accounts.values():
            account.partition = replace(account.partition, spans=(Span(identity, 0),))

    # --- saving

    def begin_save(self) -> Save:
        save = Save({name: replace(topic) for name, topic in self._topics.items()})
        for place, account in self._accounts.items():
            if account.taken == account.stored:
                save.partitions[place] = account.partition
            else:
                save.waiting[place] = account.taken
        if not save.is_complete:
            self._saves.append(save)
        return save

    def forget(self, save: Save) -> None:
        """Nobody waits for it any more."""
        self._saves = [each for each in self._saves if each is not save]

    def value(self, save: Save, wall_ms: int) -> SavedProducer:
        assert save.is_complete, "a boundary that is not reached cannot be saved"
        return SavedProducer(
            cluster_id=self.cluster_id,
            made_at_ms=wall_ms,
            partitioner=self.partitioner,
            topics={
                name: SavedTopic(
                    topic_id=topic.topic_id,
                    partition_count=topic.partition_count,
                    keyless_counter=topic.keyless_counter,
                    partitions={
                        place.partition: each for place, each in save.partitions.items() if place.topic == name
                    },
                )
                for name, topic in save.topics.items()
            },
        )


def _after(place: Place, spans: tuple[Span, ...], records: int) -> tuple[Span, ...]:
    """The chain without its first so many records."""
    while records:
        first = spans[0]
        if first.records is None:
            return (first._replace(next_sequence=sequence_after(first.next_sequence, records)), *spans[1:])
        step = min(records, first.records)
        records -= step
        if step == first.records:
            spans = spans[1:]
        else:
            left = first.records - step
            spans = (Span(first.identity, sequence_after(first.next_sequence, step), left), *spans[1:])
    if not spans:
        raise CannotResume(f"{place.topic}-{place.partition} has no open span: this is a defect of the client")
    return spans
