"""The topics of this server, their partitions, and every change to them.

Each change is made in an order that a crash cannot harm: see `metadata_log.py` and `folders.py`.
"""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from uuid import UUID, uuid4

from oncelog.clock import Now
from oncelog.log.checkpoint import Checkpointer
from oncelog.log.closing import close_all
from oncelog.log.config import LogConfig
from oncelog.log.disk import Disk
from oncelog.log.errors import LogStorageError
from oncelog.log.handles import MAX_FILES, Handles, Pace
from oncelog.log.partition import PartitionLog
from oncelog.log.steps import Steps, at_once
from oncelog.producers import ProducerMap
from oncelog.server import topic_configs, topic_rules
from oncelog.server.errors import ErrorCode, KafkaError, Unsettled
from oncelog.server.folders import METADATA_ID, Folders, owner_of
from oncelog.server.metadata_log import DamagedMetadata, Definition, MetadataLog
from oncelog.server.names import METADATA_TOPIC, RESERVED_TOPICS
from oncelog.server.process import open_files_limit
from oncelog.server.settings import Settings
from oncelog.server.topic import Partition, Topic
from oncelog.settings import SettingsError

__all__ = ["DataFolderError", "Partition", "Topic", "Topics"]

logger = logging.getLogger(__name__)

SMALL_SEGMENTS, SMALL_SEGMENTS_PAUSE_MS = 32, 100  # closed at once, and from one to the next after that
FEWEST_FILES = 8
FILES_LEFT = 64
MARKED_AT_A_TIME = 50  # folders of a deleted topic: a rename may wait for flushes of others
METADATA_CONFIG = LogConfig(segment_bytes=16 * 2**20, cleanup_policy=("compact",))


class DataFolderError(SettingsError):
    """The data folder is not as the server left it, and going on would hide that."""


class Topics:
    def __init__(
        self,
        settings: Settings,
        disk: Disk,
        new_producers: Callable[[], ProducerMap],
        now: Now,
        *,
        stayed_up: bool = False,
    ) -> None:
        """Open every log below the data folder; what a crash left behind is finished or put right first."""
        self.settings = settings
        self._stayed_up = stayed_up
        self._disk = disk
        self._new_producers = new_producers
        self._folders = Folders(disk, settings.log_dir)
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[UUID, Topic] = {}
        self._by_collision_key: dict[str, Topic] = {}
        self._on_their_way: Counter[str] = Counter()  # by the same key: partitions that are being made or taken away
        disk.mkdir(settings.log_dir)
        self._handles = Handles(disk, _files_to_keep_open(), Pace(SMALL_SEGMENTS, SMALL_SEGMENTS_PAUSE_MS))
        self._removing = threading.Lock()
        self.checkpointer = Checkpointer(settings.oncelog_recovery_max_bytes)
        if not self._folders.exists(METADATA_TOPIC, 0) and any(self._folders.found()):
            raise DataFolderError(
                f"the folder {self._folders.path(METADATA_TOPIC, 0)} is missing, which says which topics there are: "
                "put it back, or make an empty one to start without any topic; their folders stay as they are"
            )
        try:
            self._metadata = MetadataLog(self._open_log(METADATA_TOPIC, METADATA_ID, 0, METADATA_CONFIG, now))
        except DamagedMetadata as damage:
            raise DataFolderError(f"the log that says which topics there are cannot be read: {damage}") from damage
        self._restore_settings()
        self._finish_deletions(now)
        self._clear_leftovers()
        for definition in self._metadata.definitions.values():
            if not definition.is_deleting:
                self._open_topic(definition, now)

    # Looking up

    def get(self, name: str) -> Topic | None:
        return self._by_name.get(name)

    def by_id(self, topic_id: UUID) -> Topic | None:
        return self._by_id.get(topic_id)

    def all(self) -> list[Topic]:
        return list(self._by_name.values())

    def is_stray(self, name: str) -> bool:
        """Whether it has a folder, but nothing says that there is or was such a topic."""
        return name not in self._metadata.definitions and self._folders.exists(name, 0)

    def partition(self, name: str, index: int) -> Partition | None:
        topic = self._by_name.get(name)
        return topic.partitions[index] if topic is not None and 0 <= index < len(topic.partitions) else None

    def open_partition(self, name: str, index: int) -> Partition | None:
        """None also where its log is on other brokers alone."""
        partition = self.partition(name, index)
        return partition if partition is not None and partition.is_open else None

    def logs(self) -> Iterator[PartitionLog]:
        """Every log that needs care: those of all topics and the one that topics themselves are kept in."""
        yield self._metadata.log
        for topic in self._by_name.values():
            for partition in topic.open_partitions:
                yield partition.log

    @property
    def partition_count(self) -> int:
        there = sum(len(topic.partitions) for topic in self._by_name.values())
        return there + sum(self._on_their_way.values())

    def free_bytes(self) -> int:
        return self._disk.free_bytes(self.settings.log_dir)

    # Changing

    def check_create(self, name: str, partitions: int, configs: Mapping[str, str | None]) -> tuple[int, dict[str, str]]:
        """The partition count and the configs that a topic would get, or why it cannot be made."""
        topic_rules.check_name(name)
        if name in RESERVED_TOPICS:
            raise KafkaError(ErrorCode.invalid_topic_exception, f"The name '{name}' is reserved.")
        key = topic_rules.collision_key(name)
        if name in self._by_name or name == METADATA_TOPIC or key in self._on_their_way:
            raise KafkaError(ErrorCode.topic_already_exists, f"Topic '{name}' already exists.")
        rival = self._by_collision_key.get(key)
        if rival is not None:
            raise KafkaError(
                ErrorCode.invalid_topic_exception,
                f"Topic '{name}' collides with existing topic: {rival.name}",
            )
        count = self.settings.num_partitions if partitions == -1 else partitions
        topic_rules.check_partitions(count, self.partition_count, self.settings.oncelog_max_partitions)
        return count, topic_configs.check(self.settings, configs)

    def create(
        self,
        name: str,
        partitions: int,
        configs: Mapping[str, str | None],
        now: Now,
        *,
        is_internal: bool = False,
    ) -> Topic:
        """`partitions` -1 means num.partitions."""
        return at_once(self.creating(name, partitions, configs, now, is_internal=is_internal))

    def creating(
        self,
        name: str,
        partitions: int,
        configs: Mapping[str, str | None],
        now: Now,
        *,
        is_internal: bool = False,
    ) -> Steps[Topic]:
        """The same in steps. It can be found once the disk has what speaks of it: so what is stored in it is found
        again."""
        count, own = self.check_create(name, partitions, configs)
        definition = Definition(name=name, id=uuid4(), partitions=count, configs=own, is_internal=is_internal)
        topic = self._topic_of(definition)
        with self._holding(name, count):
            topic.partitions = yield from self._making(topic, range(count), lambda: definition, now)
            try:
                yield from self._metadata.settling(now)
            finally:
                self._register(topic)
                self._apply_configs(topic)  # the server's settings may have changed while it was made
        return topic

    def auto_creating(self, name: str, now: Now) -> Steps[Topic]:
        """The topic that a client named before anyone made it."""
        if not self.settings.auto_create_topics_enable:
            raise KafkaError(ErrorCode.unknown_topic_or_partition)
        return (yield from self.creating(name, -1, {}, now))

    def check_delete(self, topic: Topic) -> None:
        if not self.settings.delete_topic_enable:
            raise KafkaError(ErrorCode.topic_deletion_disabled, "delete.topic.enable is false")
        if topic.is_internal:
            raise KafkaError(ErrorCode.invalid_topic_exception, f"Topic '{topic.name}' is internal")

    def deleting(self, topic: Topic, now: Now, forgetting: Iterable[None] = ()) -> Steps[None]:
        """Forget the topic: it is gone with the first step, and its name is free with the last one. In between its logs
        are let go, its files marked, for `remove_deleted`, and what others know of it is forgotten. What a kill leaves
        undone is done at the next start."""
        self.check_delete(topic)
        definition = self._metadata.definitions[topic.name]
        with self._holding(topic.name, len(topic.partitions)):
            unsettled: Unsettled | None = None
            self._metadata.put(definition.deleting(), now)
            self._withdraw(topic)
            try:
                yield from self._metadata.settling(now)
            except Unsettled as doubt:
                unsettled = doubt
            for partition in topic.open_partitions:
                yield from partition.log.abandoning()
                partition.wake()
                yield None
            if unsettled is not None:  # a start may find the topic, and must find its files then
                raise unsettled
            yield from self._finish_deletion(definition, now)
            yield from forgetting

    def remove_deleted(self) -> None:
        """Remove the files of deleted topics; slow, and safe to call from any number of threads."""
        with self._removing:  # two would trip over what the other has removed already, and leave the rest
            try:
                self._folders.remove_deleted()
            except OSError as error:
                logger.warning("files of deleted topics stay until the next start: %s", error)

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

    def adding_partitions(self, topic: Topic, count: int, now: Now) -> Steps[None]:
        """`count` is how many partitions there are afterwards."""
        self.check_add_partitions(topic, count)
        indexes = range(len(topic.partitions), count)

        def grown() -> Definition:
            if self._by_name.get(topic.name) is not topic:
                raise KafkaError(ErrorCode.unknown_topic_or_partition, f"The topic {topic.name} was deleted meanwhile.")
            return replace(self._metadata.definitions[topic.name], partitions=count)

        with self._holding(topic.name, len(indexes)):
            added = yield from self._making(topic, indexes, grown, now)
            try:
                yield from self._metadata.settling(now)
            finally:
                if self._by_name.get(topic.name) is topic:
                    topic.partitions.extend(added)
                    self._apply_configs(topic)
                else:
                    _abandon(added)  # with its definition

    def check_alter_configs(self, topic: Topic, configs: Mapping[str, str | None]) -> dict[str, str]:
        if topic.is_internal:
            raise KafkaError(ErrorCode.invalid_topic_exception, f"Topic '{topic.name}' is internal")
        return topic_configs.check(self.settings, configs)

    def altering_configs(self, topic: Topic, configs: Mapping[str, str | None], now: Now) -> Steps[None]:
        """Replace the topic's own configs; they count from the next request on."""
        own = self.check_alter_configs(topic, configs)
        self._metadata.put(replace(self._metadata.definitions[topic.name], configs=own), now)
        topic.configs = own
        self._apply_configs(topic)
        yield from self._metadata.settling(now)

    def altering_broker_configs(self, configs: Mapping[str, str], now: Now) -> Steps[None]:
        """Replace the settings that were changed at run time; every value must have been checked."""
        self._metadata.put_broker_configs(configs, now)
        for name in {*self.settings.changed, *configs}:
            self.settings.change(name, configs.get(name))
        for topic in self.all():
            self._apply_configs(topic)
            yield None
        yield from self._metadata.settling(now)

    def close(self) -> None:
        """Bring everything to the disk; what fails is left to the recovery of the next start."""
        close_all(self.logs())

    # Below: one step each

    def _register(self, topic: Topic) -> None:
        self._by_name[topic.name] = self._by_id[topic.id] = topic
        self._by_collision_key[topic_rules.collision_key(topic.name)] = topic

    def _withdraw(self, topic: Topic) -> None:
        del self._by_name[topic.name], self._by_id[topic.id]
        del self._by_collision_key[topic_rules.collision_key(topic.name)]
        for partition in topic.partitions:
            partition.is_deleted = True
            if partition.is_open:
                partition.log.give_up()

    def _apply_configs(self, topic: Topic) -> None:
        topic.log_config = topic_configs.log_config(self.settings, topic.configs)
        for partition in topic.open_partitions:
            partition.log.configure(topic.log_config)

    def _making(
        self, topic: Topic, indexes: Iterable[int], define: Callable[[], Definition], now: Now
    ) -> Steps[list[Partition]]:
        """Logs that cannot be found yet, and then the record that speaks of them. Where a step fails they are let go,
        and their folders stay behind, empty: those count for nothing."""
        added: list[Partition] = []
        try:
            for index in indexes:
                added.append(self._make(topic, index, now))
                yield None
            yield self._folders.sync
            self._metadata.put(define(), now)
        except BaseException as error:
            _abandon(added)
            if isinstance(error, (OSError, LogStorageError)):
                raise KafkaError(ErrorCode.kafka_storage_error, f"the log could not be made: {error}") from error
            raise
        return added

    @contextmanager
    def _holding(self, name: str, count: int) -> Iterator[None]:
        """No topic gets the name, and so many partitions count, though they cannot be found."""
        key = topic_rules.collision_key(name)
        self._on_their_way[key] += count
        try:
            yield
        finally:
            self._on_their_way[key] -= count
            if not self._on_their_way[key]:
                del self._on_their_way[key]

    def _make(self, topic: Topic, index: int, now: Now) -> Partition:
        self._make_room(topic.name, index)
        log = self._open_log(topic.name, topic.id, index, topic.log_config, now)
        if log.offline is not None:
            log.abandon()
            raise LogStorageError(log.offline)
        return Partition(topic, index, log)

    def _make_room(self, name: str, index: int) -> None:
        """A new partition starts empty: an older folder in its place is removed if it is too, and refused if not."""
        if not self._folders.exists(name, index):
            return
        if self._folders.holds_records(name, index):
            raise KafkaError(
                ErrorCode.invalid_topic_exception,
                f"the folder {self._folders.path(name, index)} is in the way: it holds records of a topic "
                "that this server does not know; move it away",
            )
        self._folders.remove(name, index)

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
            stayed_up=self._stayed_up,
            owner=owner_of(topic_id, index),
        )

    def _open_topic(self, definition: Definition, now: Now) -> None:
        topic = self._topic_of(definition)
        for index in range(definition.partitions):
            if not self._folders.exists(topic.name, index):
                raise DataFolderError(
                    f"the folder {self._folders.path(topic.name, index)} is missing: put it back, "
                    "or make an empty one to go on without its records"
                )
            log = self._open_log(topic.name, topic.id, index, topic.log_config, now)
            topic.partitions.append(Partition(topic, index, log))
        self._register(topic)

    def _topic_of(self, definition: Definition) -> Topic:
        return Topic(definition, topic_configs.log_config(self.settings, definition.configs))

    def _restore_settings(self) -> None:
        for name, given in self._metadata.broker_configs.items():
            try:
                self.settings.change(name, given)
            except (KeyError, SettingsError) as refusal:
                logger.warning("%s=%s, set while the server ran, is left out: %s", name, given, refusal)

    def _finish_deletion(self, definition: Definition, now: Now) -> Steps[None]:
        """What fails here is done at the next start; the topic is gone all the same."""
        try:
            for start in range(0, definition.partitions, MARKED_AT_A_TIME):
                some = range(start, min(start + MARKED_AT_A_TIME, definition.partitions))
                yield partial(self._folders.mark_deleted, definition.name, some, definition.id)
            yield self._folders.sync
            self._metadata.forget(definition.name, now)
            yield from self._metadata.settling(now)
        except (OSError, KafkaError) as error:
            logger.warning("files of the deleted topic %s stay until the next start: %s", definition.name, error)

    def _finish_deletions(self, now: Now) -> None:
        for definition in list(self._metadata.definitions.values()):
            if definition.is_deleting:
                at_once(self._finish_deletion(definition, now))
        self.remove_deleted()

    def _clear_leftovers(self) -> None:
        definitions = self._metadata.definitions
        for name, index in list(self._folders.found()):
            known = definitions.get(name)
            if name == METADATA_TOPIC or (known is not None and index < known.partitions):
                continue
            path = self._folders.path(name, index)
            try:
                if self._folders.holds_records(name, index):
                    logger.warning("%s holds records of a topic that this server does not know; it is left alone", path)
                else:
                    self._folders.remove(name, index)
            except OSError as error:
                logger.warning("%s is of no topic that this server knows, and cannot be removed: %s", path, error)


def _files_to_keep_open() -> int:
    """Half of what is allowed, but for some: flushes, compactions and connections open their own."""
    return min(MAX_FILES, max(FEWEST_FILES, (open_files_limit() - FILES_LEFT) // 2))


def _abandon(partitions: Sequence[Partition]) -> None:
    for partition in partitions:
        partition.log.abandon()
