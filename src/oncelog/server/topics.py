"""The topics of this server, their partitions, and what is asked before a change to them.

How a change is made depends on where it stands which topics there are: in the data folder of a server that stands alone
(`local_topics.py`), or where the brokers of a cluster agree.
"""

import logging
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from uuid import UUID

from oncelog.clock import Now
from oncelog.log.checkpoint import Checkpointer
from oncelog.log.closing_logs import close_all
from oncelog.log.config import LogConfig
from oncelog.log.disk import Disk
from oncelog.log.handles import MAX_FILES, Handles, Pace
from oncelog.log.partition import PartitionLog
from oncelog.log.work_steps import Steps, at_once
from oncelog.producers import ProducerMap
from oncelog.security.documents import Change, Document, Kind
from oncelog.server import topic_configs, topic_rules
from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.folders import Folders, owner_of
from oncelog.server.metadata_log import Definition
from oncelog.server.names import METADATA_TOPIC
from oncelog.server.process import open_files_limit
from oncelog.server.settings import Settings
from oncelog.server.topic import Partition, Topic

__all__ = ["Partition", "Topic", "Topics"]

logger = logging.getLogger(__name__)

SMALL_SEGMENTS, SMALL_SEGMENTS_PAUSE_MS = 32, 100  # closed at once, and from one to the next after that
FEWEST_FILES = 8
FILES_LEFT = 64

Assignment = Sequence[Sequence[int]]  # for each partition the brokers that have it, the preferred leader first


ConfigChange = Callable[[Mapping[str, str]], Mapping[str, str | None]]  # what a topic has of its own, after it
Targets = Mapping[int, Sequence[int] | None]  # to which brokers each partition is to move; None takes a move back


class Topics(ABC):
    def __init__(
        self,
        settings: Settings,
        disk: Disk,
        new_producers: Callable[[], ProducerMap],
        *,
        stayed_up: bool,
        replicated: bool = False,
    ) -> None:
        self.settings = settings
        self._stayed_up = stayed_up
        self._replicated = replicated
        self._disk = disk
        self._new_producers = new_producers
        self._folders = Folders(disk, settings.log_dir)
        self._removing = threading.Lock()
        self.revision = 0  # another one whenever a topic came, went or grew
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[UUID, Topic] = {}
        self._by_collision_key: dict[str, Topic] = {}
        self._on_their_way: Counter[str] = Counter()  # by the same key: partitions that are being made or taken away
        self._documents: dict[Kind, Document] = {kind: {} for kind in Kind}
        self._told: list[Callable[[Kind], None]] = []
        disk.mkdir(settings.log_dir)
        self._handles = Handles(disk, _files_to_keep_open(), Pace(SMALL_SEGMENTS, SMALL_SEGMENTS_PAUSE_MS))
        self.checkpointer = Checkpointer(settings.oncelog_recovery_max_bytes)

    @property
    def is_replicated(self) -> bool:
        """Whether other brokers serve them, too: each leads some partitions."""
        return self._replicated

    # Looking up

    def get(self, name: str) -> Topic | None:
        return self._by_name.get(name)

    def by_id(self, topic_id: UUID) -> Topic | None:
        return self._by_id.get(topic_id)

    def all(self) -> list[Topic]:
        return list(self._by_name.values())

    def partition(self, name: str, index: int) -> Partition | None:
        topic = self._by_name.get(name)
        return topic.partitions[index] if topic is not None and 0 <= index < len(topic.partitions) else None

    def open_partition(self, name: str, index: int) -> Partition | None:
        """None also where its log is on other brokers alone."""
        partition = self.partition(name, index)
        return partition if partition is not None and partition.is_open else None

    @abstractmethod
    def is_stray(self, name: str) -> bool:
        """Whether it has a folder, but nothing says that there is or was such a topic."""

    def logs(self) -> Iterator[PartitionLog]:
        """Every log that needs care."""
        for topic in self._by_name.values():
            for partition in topic.open_partitions:
                yield partition.log

    @property
    def metadata(self) -> PartitionLog | None:
        """The log in which topics themselves are kept; None where several brokers agree on them elsewhere."""
        return None

    @property
    def partition_count(self) -> int:
        there = sum(len(topic.partitions) for topic in self._by_name.values())
        return there + sum(self._on_their_way.values())

    def free_bytes(self) -> int:
        return self._disk.free_bytes(self.settings.log_dir)

    # Changing

    def check_new(self, name: str) -> None:
        """Whether a topic may be called that, and none is: before anything else that is asked of it, as in Kafka."""
        topic_rules.check_name(name)
        key = topic_rules.collision_key(name)
        if name in self._by_name or name == METADATA_TOPIC or key in self._on_their_way:
            raise KafkaError(ErrorCode.topic_already_exists, f"Topic '{name}' already exists.")
        rival = self._by_collision_key.get(key)
        if rival is not None:
            raise KafkaError(
                ErrorCode.invalid_topic_exception,
                f"Topic '{name}' collides with existing topic: {rival.name}",
            )

    def check_create(self, name: str, partitions: int, configs: Mapping[str, str | None]) -> tuple[int, dict[str, str]]:
        """The partition count and the configs that a topic would get, or why it cannot be made."""
        self.check_new(name)
        count = self.settings.num_partitions if partitions == -1 else partitions
        topic_rules.check_partitions(count, self.partition_count, self.settings.oncelog_max_partitions)
        return count, topic_configs.check(self.settings, configs)

    @abstractmethod
    def creating(
        self,
        name: str,
        partitions: int,
        configs: Mapping[str, str | None],
        now: Now,
        *,
        is_internal: bool = False,
        replication: int = -1,
        assignment: Assignment | None = None,
    ) -> Steps[Topic]:
        """In steps. It can be found once what speaks of it is durable: so what is stored in it is found again.

        `partitions` -1 means num.partitions, `replication` -1 default.replication.factor; an assignment says both."""

    @abstractmethod
    def deleting(self, topic: Topic, now: Now, forgetting: Iterable[None] = ()) -> Steps[None]:
        """Forget the topic: it is gone with the first step, and its name is free with the last one. In between its logs
        are let go, its files marked, for `remove_deleted`, and what others know of it is forgotten. What a kill leaves
        undone is done at the next start."""

    @abstractmethod
    def adding_partitions(
        self, topic: Topic, count: int, now: Now, *, assignment: Assignment | None = None
    ) -> Steps[None]:
        """`count` is how many partitions there are afterwards; an assignment is that of those that are new."""

    @abstractmethod
    def electing(self, topic: Topic, indexes: Collection[int]) -> Steps[None]:
        """The preferred leaders of these partitions. That they are up and in sync must have been checked."""

    @abstractmethod
    def moving(self, topic: Topic, targets: Targets) -> Steps[None]:
        """Move partitions to other brokers, which goes on after this. Brokers and partitions must have been checked."""

    @abstractmethod
    def altering_configs(self, topic: Topic, change: ConfigChange, now: Now) -> Steps[None]:
        """Change the topic's own configs; they count from the next request on. What there is to be changed stands where
        it is agreed on which topics there are: others may have changed it, too. What `change` raises is raised, and
        nothing has changed then."""

    @abstractmethod
    def altering_broker_configs(self, configs: Mapping[str, str], now: Now) -> Steps[None]:
        """Replace the settings that were changed at run time; every value must have been checked."""

    @abstractmethod
    def changing_document(self, kind: Kind, change: Change, now: Now) -> Steps[None]:
        """Change a document: users, rights, quotas or groups' configs. What `change` raises is raised, and nothing has
        changed then."""

    # Users, rights, quotas, configs of groups

    @property
    @abstractmethod
    def where_documents_are(self) -> str:
        """The place of the documents, for people."""

    def document(self, kind: Kind) -> Document:
        return self._documents[kind]

    def tell_documents(self, told: Callable[[Kind], None]) -> None:
        """Call `told` for each document at once, and whenever one has changed."""
        self._told.append(told)
        for kind in Kind:
            told(kind)

    def see_document(self, kind: Kind, document: Document) -> None:
        if document != self._documents[kind]:
            self._documents[kind] = document
            for told in self._told:
                told(kind)

    def remove_deleted(self) -> None:
        """Remove the files of deleted topics; slow, and safe to call from any number of threads."""
        with self._removing:  # two would trip over what the other has removed already, and leave the rest
            try:
                self._folders.remove_deleted()
            except OSError as error:
                logger.warning("files of deleted topics stay until the next start: %s", error)

    def create(
        self,
        name: str,
        partitions: int,
        configs: Mapping[str, str | None],
        now: Now,
        *,
        is_internal: bool = False,
    ) -> Topic:
        """Create a topic, for callers that have nobody to leave turns to."""
        return at_once(self.creating(name, partitions, configs, now, is_internal=is_internal))

    def auto_creating(self, name: str, now: Now) -> Steps[Topic]:
        """The topic that a client named before anyone made it."""
        if not self.settings.auto_create_topics_enable:
            raise KafkaError(ErrorCode.unknown_topic_or_partition)
        return (yield from self.creating(name, -1, {}, now))

    def replication_of(self, asked: int, assignment: Assignment | None) -> int:
        """The number of replicas for a new topic."""
        if assignment is not None:
            return len(assignment[0])
        return self.settings.default_replication_factor if asked == -1 else asked

    def check_delete(self, topic: Topic) -> None:
        if not self.settings.delete_topic_enable:
            raise KafkaError(ErrorCode.topic_deletion_disabled, "delete.topic.enable is false")
        if topic.is_internal:
            raise KafkaError(ErrorCode.invalid_topic_exception, f"Topic '{topic.name}' is internal")

    def check_add_partitions(self, topic: Topic, count: int) -> None:
        have = len(topic.partitions)
        if topic_rules.collision_key(topic.name) in self._on_their_way:
            raise KafkaError(ErrorCode.invalid_partitions, f"The topic {topic.name} is growing already.")
        if count < have:
            raise KafkaError(
                ErrorCode.invalid_partitions,
                f"The topic {topic.name} currently has {have} partition(s); {count} would not be an increase.",
            )
        if count == have:
            raise KafkaError(ErrorCode.invalid_partitions, f"Topic already has {have} partition(s).")
        topic_rules.check_partitions(count - have, self.partition_count, self.settings.oncelog_max_partitions)

    def check_alter_configs(self, topic: Topic, configs: Mapping[str, str | None]) -> dict[str, str]:
        if topic.is_internal:
            raise KafkaError(ErrorCode.invalid_topic_exception, f"Topic '{topic.name}' is internal")
        return topic_configs.check(self.settings, configs)

    def close(self) -> None:
        """Bring everything to the disk; what fails is left to the recovery of the next start."""
        close_all(self.logs())

    # Below: one step each

    def _register(self, topic: Topic) -> None:
        self._by_name[topic.name] = self._by_id[topic.id] = topic
        self._by_collision_key[topic_rules.collision_key(topic.name)] = topic
        self.revision += 1

    def _withdraw(self, topic: Topic) -> None:
        del self._by_name[topic.name], self._by_id[topic.id]
        del self._by_collision_key[topic_rules.collision_key(topic.name)]
        self.revision += 1
        for partition in topic.partitions:
            partition.is_deleted = True
            if partition.is_open:
                partition.log.give_up()

    def _apply_configs(self, topic: Topic) -> None:
        topic.log_config = topic_configs.log_config(self.settings, topic.configs)
        for partition in topic.open_partitions:
            partition.log.configure(topic.log_config)

    @contextmanager
    def _holding(self, name: str, count: int) -> Iterator[None]:
        """No topic gets the name, and its partitions count, though they cannot be found."""
        key = topic_rules.collision_key(name)
        self._on_their_way[key] += count
        try:
            yield
        finally:
            self._on_their_way[key] -= count
            if not self._on_their_way[key]:
                del self._on_their_way[key]

    def _open_log(self, topic: str, topic_id: UUID, index: int, config: LogConfig, now: Now) -> PartitionLog:
        folder = self._folders.path(topic, index)
        return PartitionLog.open(
            self._disk,
            folder,
            config,
            self._new_producers(),
            now,
            topic=topic,
            partition=index,
            handles=self._handles,
            checkpointer=self.checkpointer,
            replicated=self._replicated,
            stayed_up=self._stayed_up,
            owner=owner_of(topic_id, index),
        )

    def _topic_of(self, definition: Definition) -> Topic:
        return Topic(definition, topic_configs.log_config(self.settings, definition.configs))


def _files_to_keep_open() -> int:
    """Half of what is allowed, but for some: flushes, compactions and connections open their own."""
    return min(MAX_FILES, max(FEWEST_FILES, (open_files_limit() - FILES_LEFT) // 2))
