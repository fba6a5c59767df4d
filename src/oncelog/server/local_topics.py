"""The topics of a server that stands alone: what there is stands in its own data folder.

Each change is made in an order that a crash cannot harm: see `metadata_log.py` and `folders.py`.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from uuid import uuid4

from oncelog.clock import Now
from oncelog.log.config import LogConfig
from oncelog.log.disk import Disk
from oncelog.log.errors import LogStorageError
from oncelog.log.partition import PartitionLog
from oncelog.log.work_steps import Steps, at_once
from oncelog.producers import ProducerMap
from oncelog.security.documents import Change, Kind, TooMuch
from oncelog.server.errors import ErrorCode, KafkaError, MayNotBeDurable
from oncelog.server.folders import METADATA_ID, Folders
from oncelog.server.metadata_log import DamagedMetadata, Definition, MetadataLog
from oncelog.server.names import METADATA_TOPIC
from oncelog.server.settings import Settings
from oncelog.server.topic import Partition, Topic
from oncelog.server.topics import Assignment, ConfigChange, Targets, Topics
from oncelog.settings import SettingsError

logger = logging.getLogger(__name__)

MARKED_AT_A_TIME = 50  # folders of a deleted topic: a rename may wait for flushes of others
METADATA_CONFIG = LogConfig(segment_bytes=16 * 2**20, cleanup_policy=("compact",))


class DataFolderError(SettingsError):
    """The data folder is not as the server left it, and going on would hide that."""


class LocalTopics(Topics):
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
        super().__init__(settings, disk, new_producers, stayed_up=stayed_up)
        self._metadata = open_metadata(
            self._folders, lambda: self._open_log(METADATA_TOPIC, METADATA_ID, 0, METADATA_CONFIG, now)
        )
        self._restore_settings()
        self._documents = dict(self._metadata.documents)
        self._finish_deletions(now)
        self._clear_leftovers()
        for definition in self._metadata.definitions.values():
            if not definition.is_deleting:
                self._open_topic(definition, now)

    def is_stray(self, name: str) -> bool:
        return name not in self._metadata.definitions and self._folders.exists(name, 0)

    def logs(self) -> Iterator[PartitionLog]:
        """The one that topics themselves are kept in, too."""
        yield self._metadata.log
        yield from super().logs()

    @property
    def metadata(self) -> PartitionLog:
        return self._metadata.log

    # Changing

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
        count, own = self.check_create(name, partitions, configs)
        definition = Definition(name=name, id=uuid4(), partitions=count, configs=own, is_internal=is_internal)
        topic = self._topic_of(definition)
        with self._holding(name, count):
            topic.partitions = yield from self._making(topic, range(count), lambda: definition, now)
            try:
                yield from self._metadata.making_durable(now)
            finally:
                self._register(topic)
                self._apply_configs(topic)  # the server's settings may have changed while it was made
        return topic

    def deleting(self, topic: Topic, now: Now, forgetting: Iterable[None] = ()) -> Steps[None]:
        self.check_delete(topic)
        definition = self._metadata.definitions[topic.name]
        with self._holding(topic.name, len(topic.partitions)):
            in_doubt: MayNotBeDurable | None = None
            self._metadata.put(definition.deleting(), now)
            self._withdraw(topic)
            try:
                yield from self._metadata.making_durable(now)
            except MayNotBeDurable as doubt:
                in_doubt = doubt
            for partition in topic.open_partitions:
                yield from partition.log.abandoning()
                partition.wake()
                yield None
            if in_doubt is not None:  # a start may find the topic, and must find its files then
                raise in_doubt
            yield from self._finish_deletion(definition, now)
            yield from forgetting

    def adding_partitions(
        self, topic: Topic, count: int, now: Now, *, assignment: Assignment | None = None
    ) -> Steps[None]:
        self.check_add_partitions(topic, count)
        indexes = range(len(topic.partitions), count)

        def grown() -> Definition:
            if self._by_name.get(topic.name) is not topic:
                raise KafkaError(ErrorCode.unknown_topic_or_partition, f"The topic {topic.name} was deleted meanwhile.")
            return replace(self._metadata.definitions[topic.name], partitions=count)

        with self._holding(topic.name, len(indexes)):
            added = yield from self._making(topic, indexes, grown, now)
            try:
                yield from self._metadata.making_durable(now)
            finally:
                if self._by_name.get(topic.name) is topic:
                    topic.partitions.extend(added)
                    self.revision += 1
                    self._apply_configs(topic)
                else:
                    _abandon(added)  # with its definition

    def electing(self, topic: Topic, indexes: Collection[int]) -> Steps[None]:
        yield from ()  # the one that is asked leads already

    def moving(self, topic: Topic, targets: Targets) -> Steps[None]:
        yield from ()  # there is nowhere else

    def altering_configs(self, topic: Topic, change: ConfigChange, now: Now) -> Steps[None]:
        own = self.check_alter_configs(topic, change(topic.configs))
        self._metadata.put(replace(self._metadata.definitions[topic.name], configs=own), now)
        topic.configs = own
        self._apply_configs(topic)
        yield from self._metadata.making_durable(now)

    def altering_broker_configs(self, configs: Mapping[str, str], now: Now) -> Steps[None]:
        self._metadata.put_broker_configs(configs, now)
        for name in {*self.settings.changed, *configs}:
            self.settings.change(name, configs.get(name))
        for topic in self.all():
            self._apply_configs(topic)
            yield None
        yield from self._metadata.making_durable(now)

    @property
    def where_documents_are(self) -> str:
        return self._metadata.log.folder

    def changing_document(self, kind: Kind, change: Change, now: Now) -> Steps[None]:
        changed = change(self._metadata.documents[kind])
        if changed == self._metadata.documents[kind]:
            return
        try:
            self._metadata.put_document(kind, changed, now)
        except TooMuch as refusal:
            raise KafkaError(ErrorCode.policy_violation, str(refusal)) from refusal
        self.see_document(kind, changed)
        yield from self._metadata.making_durable(now)

    # Below: one step each

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

    def _make(self, topic: Topic, index: int, now: Now) -> Partition:
        self._make_room(topic.name, index)
        log = self._open_log(topic.name, topic.id, index, topic.log_config, now)
        if log.offline is not None:
            log.abandon()
            raise LogStorageError(log.offline)
        return Partition(topic, index, log)

    def _make_room(self, name: str, index: int) -> None:
        """A new partition starts empty: an older folder in its place is removed if it is too, and refused if not."""
        if why := what_is_in_the_way(self._folders, name, index):
            raise KafkaError(ErrorCode.invalid_topic_exception, why)
        if self._folders.exists(name, index):
            self._folders.remove(name, index)

    def _open_topic(self, definition: Definition, now: Now) -> None:
        topic = self._topic_of(definition)
        for index in range(definition.partitions):
            check_there(self._folders, topic.name, index)
            log = self._open_log(topic.name, topic.id, index, topic.log_config, now)
            topic.partitions.append(Partition(topic, index, log))
        self._register(topic)

    def _restore_settings(self) -> None:
        for name, given in self._metadata.broker_configs.items():
            try:
                self.settings.change(name, given)
            except (KeyError, SettingsError) as refusal:
                logger.warning("%s=%s, set while the server ran, is left out: %s", name, given, refusal)

    def _finish_deletion(self, definition: Definition, now: Now) -> Steps[None]:
        """Remove the files of a deleted topic. What fails is done at the next start; the topic is gone all the same."""
        try:
            for start in range(0, definition.partitions, MARKED_AT_A_TIME):
                some = range(start, min(start + MARKED_AT_A_TIME, definition.partitions))
                yield partial(self._folders.mark_deleted, definition.name, some)
            yield self._folders.sync
            self._metadata.forget(definition.name, now)
            yield from self._metadata.making_durable(now)
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


def open_metadata(folders: Folders, open_log: Callable[[], PartitionLog]) -> MetadataLog:
    if not folders.exists(METADATA_TOPIC, 0) and any(folders.found()):
        raise DataFolderError(
            f"the folder {folders.path(METADATA_TOPIC, 0)} is missing, which says which topics there are: "
            "put it back, or make an empty one to start without any topic; their folders stay as they are"
        )
    try:
        return MetadataLog(open_log())
    except DamagedMetadata as damage:
        raise DataFolderError(f"the log that says which topics there are cannot be read: {damage}") from damage


def check_there(folders: Folders, name: str, index: int) -> None:
    if not folders.exists(name, index):
        raise DataFolderError(
            f"the folder {folders.path(name, index)} is missing: put it back, or make an empty one to go on without "
            "its records"
        )


def what_is_in_the_way(folders: Folders, name: str, index: int) -> str:
    """The folder in the way of a new partition, as a message; empty where there is none."""
    if not folders.exists(name, index) or not folders.holds_records(name, index):
        return ""
    return (
        f"the folder {folders.path(name, index)} is in the way: it holds records of a topic that this server does not "
        "know; move it away"
    )


def _abandon(partitions: Sequence[Partition]) -> None:
    for partition in partitions:
        partition.log.abandon()
