"""The accounts of a producer that is to be saved. Pure.

It counts the records that the application handed over, partition by partition, and those that are surely stored. A save
takes the first count as its boundary at once, and is complete when the second has reached it everywhere; what is
produced meanwhile belongs to the next save.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from uuid import UUID

from oncelog.client.partitioners import KeylessCounter
from oncelog.client.saving.errors import in_words
from oncelog.client.saving.saved import SavedProducer
from oncelog.client.saving.saved_topics import NO_TOPIC_ID, SavedTopic, check_topic_id
from oncelog.slots import Identity, Place, Span
from oncelog.slots.chain import SavedPartition, behind, changed

if TYPE_CHECKING:
    from oncelog.client.net.metadata import Metadata


@dataclass(slots=True)
class _Account:
    partition: SavedPartition  # as it is surely stored
    taken: int = 0  # records handed over since the start
    stored: int = 0  # of these, surely in the log


@dataclass(slots=True)
class _Topic:
    topic_id: str
    partition_count: int
    keyless: KeylessCounter

    def saved(self) -> SavedTopic:
        return SavedTopic(
            topic_id=self.topic_id, partition_count=self.partition_count, keyless_counter=self.keyless.counter
        )


@dataclass(slots=True)
class Save:
    """A boundary on its way to become a value."""

    topics: dict[str, SavedTopic]  # without partitions so far
    waiting: dict[Place, int] = field(default_factory=dict)  # how many must be stored there
    partitions: dict[Place, SavedPartition] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        return not self.waiting


def _nothing(place: Place) -> int:
    return 0


class Book:
    def __init__(self, cluster_id: str, partitioner: str, keyless_run: int = 1) -> None:
        self.cluster_id = cluster_id
        self.partitioner = partitioner
        self.keyless_run = keyless_run
        self._topics: dict[str, _Topic] = {}
        self._accounts: dict[Place, _Account] = {}
        self._saves: list[Save] = []

    # --- what is pinned

    def pin(self, name: str, topic_id: str, partition_count: int, keyless_counter: int = 0) -> None:
        self._topics[name] = _Topic(topic_id, partition_count, KeylessCounter(keyless_counter, self.keyless_run))

    def open(self, place: Place, partition: SavedPartition) -> None:
        self._accounts[place] = _Account(partition)

    def partition_count(self, name: str) -> int | None:
        """The number of partitions that the topic's records are spread over; None where it is not pinned."""
        topic = self._topics.get(name)
        return None if topic is None else topic.partition_count

    def topic_id(self, name: str) -> UUID | None:
        """None where the broker that it was pinned on gave none."""
        topic_id = self._topics[name].topic_id
        return None if topic_id in ("", NO_TOPIC_ID) else UUID(topic_id)

    def check_topics(self, metadata: "Metadata") -> None:
        """Raises TopicGone where a topic of this name is another one. One that is not known may still come back."""
        for name, topic in self._topics.items():
            known = metadata.topics.get(name)
            if known is not None and known.partitions:
                check_topic_id(name, topic.topic_id, str(known.topic_id or ""))

    def keyless(self, name: str) -> KeylessCounter:
        """The counter that places the topic's records without a key."""
        return self._topics[name].keyless

    @property
    def topics(self) -> Iterable[str]:
        return self._topics.keys()

    @property
    def partitions(self) -> Mapping[Place, SavedPartition]:
        return {place: account.partition for place, account in self._accounts.items()}

    def is_idle(self, place: Place) -> bool:
        """Nothing of the partition is under way."""
        account = self._accounts[place]
        return account.taken == account.stored

    # --- what happens

    def taken(self, place: Place, records: int = 1) -> None:
        self._accounts[place].taken += records

    def stored(self, place: Place, records: int, next_offset: int) -> list[Save]:
        """`records` more are in the log, sent or found there; the saves that are complete now."""
        account = self._accounts[place]
        before, stored_before = account.partition, account.stored
        account.stored += records
        offset = max(next_offset, before.next_offset)
        account.partition = SavedPartition(next_offset=offset, spans=_behind(before.spans, records))
        complete = []
        for save in self._saves:
            goal = save.waiting.get(place)
            if goal is not None and account.stored >= goal:
                del save.waiting[place]
                save.partitions[place] = account.partition
                if goal < account.stored:
                    # The boundary lies inside of what was stored in one piece; below it nothing later can be.
                    spans = _behind(before.spans, goal - stored_before)
                    save.partitions[place] = SavedPartition(next_offset=before.next_offset, spans=spans)
                if save.is_complete:
                    complete.append(save)
        self._saves = [save for save in self._saves if not save.is_complete]
        return complete

    def move(self, place: Place, next_offset: int) -> None:
        """Nothing that is open lies below this offset."""
        account = self._accounts[place]
        offset = max(next_offset, account.partition.next_offset)
        account.partition = replace(account.partition, next_offset=offset)

    def change_identity(self, save: Save, place: Place, identity: Identity) -> None:
        """The partition goes on under another identity, with nothing under way; so does what is saved."""
        account = self._accounts[place]
        last = account.partition.last
        save.partitions[place] = changed(save.partitions[place], last, identity)
        account.partition = changed(account.partition, last, identity)

    # --- saving

    def begin_save(self, pending: Callable[[Place], int] = _nothing) -> Save:
        """`pending`: what the application handed over that was not told as `taken` yet."""
        save = Save({name: topic.saved() for name, topic in self._topics.items()})
        for place, account in self._accounts.items():
            goal = pending(place) + account.taken
            if goal == account.stored:
                save.partitions[place] = account.partition
            else:
                save.waiting[place] = goal
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
            keyless_run=self.keyless_run,
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


def _behind(spans: tuple[Span, ...], records: int) -> tuple[Span, ...]:
    with in_words():
        return behind(spans, records)
