"""The saved producer: a small value with a version.

It says, for each output partition, where the producer stands: all slots before `next_sequence` are filled and lie
below `next_offset`, and belong to the input position that the value is stored beside. Everything written later is
found again by identity and sequence, in the broker's memory or in the log itself.

A partition holds a chain of spans rather than one identity: `slots/chain.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from oncelog.client.saving import saved_json
from oncelog.client.saving.errors import BadSavedProducer
from oncelog.client.saving.saved_topics import SavedTopic, check_topic_id
from oncelog.slots import Identity, Place
from oncelog.slots.chain import SavedPartition

if TYPE_CHECKING:
    from oncelog.client.types import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedProducer:
    cluster_id: str
    made_at_ms: int
    partitioner: str
    topics: Mapping[str, SavedTopic]
    keyless_run: int = 1  # how many records without a key share a partition before the next has its turn

    @property
    def identities(self) -> tuple[Identity, ...]:
        """Every identity that occurs, once, in a fixed order."""
        return tuple(sorted({span.identity for each in self.partitions.values() for span in each.spans}))

    @property
    def partitions(self) -> Mapping[Place, SavedPartition]:
        """The partitions of all its topics."""
        return {Place(name, at): each for name, topic in self.topics.items() for at, each in topic.partitions.items()}

    def check_cluster(self, cluster_id: str) -> None:
        if cluster_id != self.cluster_id:
            raise BadSavedProducer(
                f"the producer was saved on cluster {self.cluster_id!r}, and this is cluster {cluster_id!r}: "
                "its numbers mean nothing here",
                "Connect to the former one, or start without a saved producer",
            )

    def check_topic(self, name: str, topic_id: str, partition_count: int) -> None:
        """`topic_id` and `partition_count` are the topic's now."""
        topic = self.topics[name]
        check_topic_id(name, topic.topic_id, topic_id)
        if partition_count < topic.partition_count:
            raise BadSavedProducer(
                f"topic {name!r} had {topic.partition_count} partitions when the producer was saved, "
                f"and has {partition_count} now: it is not the same topic"
            )

    def check_placing(self, partitioner: str, keyless_run: int) -> None:
        """Check that what decides where a record goes is what it was."""
        for name, saved, now in (
            ("partitioner", self.partitioner, partitioner),
            ("oncelog.keyless.run", self.keyless_run, keyless_run),
        ):
            if saved != now:
                raise BadSavedProducer(
                    f"the producer was saved with {name}={saved}, and is started with {name}={now}: "
                    "a replay would put records elsewhere; set the former"
                )

    def to_json(self) -> str:
        """One line of text; `from_json` brings back an equal value."""
        return saved_json.spell(self.to_value())

    def to_value(self) -> dict[str, Any]:
        """The same as plain dictionaries, lists, numbers and strings, for those who store JSON by themselves."""
        return saved_json.value_of(
            {
                "cluster_id": self.cluster_id,
                "made_at_ms": self.made_at_ms,
                "partitioner": self.partitioner,
                "topics": self.topics,
                "keyless_run": self.keyless_run,
            },
            self.identities,
        )

    @classmethod
    def from_json(cls, text: "str | bytes | Mapping[str, Any]") -> "SavedProducer":
        """The producer of `to_json`'s text or `to_value`'s dictionary; `BadSavedProducer` says what is wrong with
        another."""
        return cls(**saved_json.decode(text))

    @classmethod
    def load(cls, properties: Mapping[str, Any]) -> "tuple[list[TopicPartition], SavedProducer | None]":
        """The input positions and the producer that group `group.id` holds, for a program without an event loop.

        The producer is None where none was ever committed to the group.
        """
        from oncelog.client.saving.loading import load

        return load(properties, cls.from_json)

    @classmethod
    async def load_async(cls, properties: Mapping[str, Any]) -> "tuple[list[TopicPartition], SavedProducer | None]":
        from oncelog.client.saving.loading import load_async

        return await load_async(properties, cls.from_json)
