"""One cluster, asked and told about topics by the driver."""

from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple, Self, TypeVar

from oncelog.client import KafkaError, KafkaException, NewTopic
from oncelog.client.door import (
    EARLIEST,
    LATEST,
    Brokers,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    Metadata,
    Patience,
    ResourceType,
    Timeouts,
    cool,
    create_topics,
    describe_configs,
    end_offsets,
    exception_of,
    kafka_pid,
    warm,
)
from oncelog.slots import Identity, Place
from oncelog.spark.copying.job import CopyRefused
from oncelog.spark.copying.lane import Side

T = TypeVar("T")

REQUEST_MS: Final = 30_000
CREATE_MS: Final = 30_000
PATIENCE: Final = Patience(60.0, 0.2)
LAGGING: Final = replace(PATIENCE, lag_s=3.0)  # so long a broker may not have heard of a topic
CLUSTER_DEFAULT: Final = -1
# The configurations that say how a topic's records are kept. The rest is of the cluster (replicas, throttles), or
# would change what is copied: with the log's own time the timestamps would be those of the copy.
KEPT_CONFIGS: Final = (
    "cleanup.policy",
    "compression.type",
    "delete.retention.ms",
    "max.compaction.lag.ms",
    "max.message.bytes",
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
    "retention.bytes",
    "retention.ms",
    "segment.bytes",
    "segment.ms",
)


class Topic(NamedTuple):
    side: Side
    partition_count: int


class Configs(NamedTuple):
    """The configurations that are set for a topic; empty where they may not be read."""

    entries: Mapping[str, ConfigEntry]

    def value(self, name: str) -> str | None:
        entry = self.entries.get(name)
        return None if entry is None else entry.value

    @property
    def is_compacted(self) -> bool:
        """Whether the topic is compacted; True where nobody says: to take it for compacted is right in any case."""
        policy = self.value("cleanup.policy")
        return policy is None or "compact" in policy

    def kept(self) -> dict[str, str]:
        """The configurations that were set for the topic itself."""
        own = {name: self.entries[name] for name in KEPT_CONFIGS if name in self.entries}
        return {
            name: entry.value
            for name, entry in own.items()
            if entry.source is ConfigSource.DYNAMIC_TOPIC_CONFIG and entry.value is not None
        }


class Topics:
    """Belongs to one thread; its connections are shared with all else that this process asks of the cluster."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._client = warm(properties)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        cool(self._client)

    @property
    def servers(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self._client.settings.bootstrap_servers)

    def find(self, name: str, *, is_expected: bool = False) -> Topic | None:
        """Asked for with all others, since to name one could make it. `is_expected`: a broker that knows of no such
        topic may lag behind, and is not believed at once."""
        metadata = self._told(name, None) if is_expected else self._asked(lambda each: each.refresh(None))
        found = metadata.topics.get(name)
        if found is None or not found.partitions:
            return None
        return Topic(Side(metadata.cluster_id or "", name, str(found.topic_id or "")), len(found.partitions))

    def configs(self, topic: str) -> Configs:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        found = self._asked(lambda brokers: describe_configs(brokers, [resource], Timeouts(REQUEST_MS)))[resource]
        return Configs({} if isinstance(found, KafkaException) else found)

    def create(self, name: str, partition_count: int, configs: Mapping[str, str]) -> None:
        """One that somebody else has made meanwhile is as good."""
        topic = NewTopic(name, partition_count, CLUSTER_DEFAULT, config=configs)
        patience = Timeouts(REQUEST_MS, CREATE_MS)
        outcome = self._asked(lambda brokers: create_topics(brokers, [topic], patience, validate_only=False))[name]
        if isinstance(outcome, KafkaException) and outcome.error.code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise CopyRefused(f"topic {name} cannot be made: {outcome.error.str()}")
        self.ends(name, range(partition_count))  # which waits until it is led

    def granted(self) -> Identity:
        """A producer id of the cluster."""
        return self._asked(kafka_pid)

    # --- offsets

    def starts(self, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        return self._offsets(topic, partitions, EARLIEST)

    def ends(self, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        return self._offsets(topic, partitions, LATEST)

    def at_time(self, topic: str, partitions: Iterable[int], time_ms: int) -> dict[int, int]:
        """The first record of that time or later; -1 where there is none."""
        return self._offsets(topic, partitions, time_ms)

    def stable_ends(self, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        """The offsets up to which no transaction is open."""
        return self._offsets(topic, partitions, LATEST, read_committed=True)

    def _offsets(
        self, topic: str, partitions: Iterable[int], which: int, *, read_committed: bool = False
    ) -> dict[int, int]:
        places = [Place(topic, index) for index in partitions]

        async def ask(brokers: Brokers) -> dict[Place, int]:
            await brokers.refresh([topic])
            return await end_offsets(brokers, places, which, read_committed=read_committed)

        return {place.partition: offset for place, offset in self._asked(ask).items()}

    def partition_count(self, topic: str) -> int:
        """The count of partitions as it is now, of a topic that was there before."""
        found = self._told(topic, [topic]).topics.get(topic)
        return 0 if found is None else len(found.partitions)

    def _told(self, topic: str, asked: list[str] | None) -> Metadata:
        """The metadata, once brokers know the topic or are not asked any more."""

        async def ask(brokers: Brokers) -> None:
            found = (await brokers.refresh(asked)).topics.get(topic)
            if found is None or not found.partitions:
                raise exception_of(KafkaError.UNKNOWN_TOPIC_OR_PART, f"topic {topic}")

        try:
            self._asked(ask, LAGGING)
        except KafkaException as failure:
            if failure.error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
        return self._client.brokers.metadata

    def _asked(self, question: Callable[[Brokers], Coroutine[Any, Any, T]], patience: Patience = PATIENCE) -> T:
        return self._client.ask(lambda: question(self._client.brokers), patience)
