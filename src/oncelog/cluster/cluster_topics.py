"""The topics of a cluster: what there is stands where its brokers agree, and each has the partitions that are its own.

A change is made there, and counts here once this broker has seen it; see `supervisor.py`.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Container, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeVar
from uuid import UUID, uuid4

from oncelog.clock import Now
from oncelog.cluster.documents import DamagedTree, TopicDocument, decode_topic
from oncelog.cluster.tree import Node
from oncelog.log.disk import Disk
from oncelog.log.work_steps import Steps
from oncelog.producers import ProducerMap
from oncelog.replication.leadership import Leadership, first
from oncelog.security.documents import Change, Kind
from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.settings import Settings
from oncelog.server.topic import Partition, Topic
from oncelog.server.topic_rules import check_replication
from oncelog.server.topics import Assignment, ConfigChange, Targets, Topics

T = TypeVar("T")

logger = logging.getLogger(__name__)

AGREED_WITHIN_S = 30
MOST_TOLD = 20  # of what is gone
MOST_PARTITIONS = 2_000  # of a topic: all of them stand in one document


class Catalog(Protocol):
    """The place where brokers agree on topics. What it answers, this broker has seen."""

    @property
    def brokers(self) -> list[int]:
        """The brokers that are up, and not about to end."""
        ...

    @property
    def down(self) -> list[int]:
        """The others that belong to the cluster."""
        ...

    async def create(self, name: str, document: TopicDocument) -> None: ...

    async def delete(self, topic: Topic) -> None: ...

    async def grow(self, topic: Topic, added: Sequence[Leadership]) -> None: ...

    async def elect(self, topic: Topic, indexes: Collection[int]) -> None: ...

    async def reassign(self, topic: Topic, targets: Mapping[int, Sequence[int] | None]) -> None: ...

    async def alter(self, topic: Topic, change: Callable[[Mapping[str, str]], Mapping[str, str]]) -> None: ...

    async def change_document(self, kind: Kind, change: Change) -> None: ...


class ClusterTopics(Topics):
    HAVE_COPIES = True  # each broker its own

    def __init__(
        self,
        settings: Settings,
        disk: Disk,
        new_producers: Callable[[], ProducerMap],
        now: Now,
        *,
        stayed_up: bool,
    ) -> None:
        """The topics that there are, not known yet."""
        super().__init__(settings, disk, new_producers, stayed_up=stayed_up, replicated=self.HAVE_COPIES)
        self._catalog: Catalog | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def agree_by(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._loop = asyncio.get_running_loop()

    def is_stray(self, name: str) -> bool:
        return name not in self._by_name and self._folders.exists(name, 0)

    def lacks_any(self, topics: Mapping[str, Node], me: int) -> bool:
        """Whether others count on this broker for records whose folder is not there, or is another topic's: it must
        lead by nothing that it begins anew. Asked before any is opened, as that makes a folder."""
        lacking = [each for name, node in topics.items() for each in self._lacking(name, node, me)]
        for name, index in lacking[:MOST_TOLD]:
            logger.error(
                "%s-%d is counted on, and its folder is gone: until it is copied again, broker %d counts as lacking "
                "all that it has",
                *(name, index, me),
            )
        return bool(lacking)

    def _lacking(self, name: str, node: Node, me: int) -> Iterator[tuple[str, int]]:
        with suppress(DamagedTree):  # who reads it next says so
            document = decode_topic(node.value)
            for index, state in enumerate(document.partitions if self.HAVE_COPIES else ()):
                is_counted = state.epoch >= 0 and me in (*state.in_sync, *state.eligible)
                if is_counted and not self._is_here(name, index, document.id):
                    yield name, index

    def _is_here(self, name: str, index: int, topic_id: UUID) -> bool:
        return not self._folders.is_bare(name, index) and self._folders.owner(name, index) in (None, topic_id)

    # Changes

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
        _check_count(count)
        if assignment is None:
            assignment = self._assigned(name, range(count), self.replication_of(replication, None))
        catalog = self._agreeing()
        document = TopicDocument(uuid4(), own, is_internal, self._begun(assignment))
        yield lambda: self._wait_for(catalog.create(name, document))
        topic = self.get(name)
        if topic is None or topic.id != document.id:
            raise KafkaError(ErrorCode.topic_already_exists, f"Topic '{name}' already exists.")
        return topic

    def deleting(self, topic: Topic, now: Now, forgetting: Iterable[None] = ()) -> Steps[None]:
        self.check_delete(topic)
        catalog = self._agreeing()
        yield lambda: self._wait_for(catalog.delete(topic))  # every broker that sees it forgets by itself

    def adding_partitions(
        self, topic: Topic, count: int, now: Now, *, assignment: Assignment | None = None
    ) -> Steps[None]:
        self.check_add_partitions(topic, count)
        _check_count(count)
        have = topic.partitions
        if assignment is None:
            state = have[0].leadership
            factor = 1 if state is None else len(state.target)
            assignment = self._assigned(topic.name, range(len(have), count), factor)
        catalog, added = self._agreeing(), self._begun(assignment)
        yield lambda: self._wait_for(catalog.grow(topic, added))

    def electing(self, topic: Topic, indexes: Collection[int]) -> Steps[None]:
        catalog = self._agreeing()
        yield lambda: self._wait_for(catalog.elect(topic, indexes))

    def moving(self, topic: Topic, targets: Targets) -> Steps[None]:
        catalog = self._agreeing()
        yield lambda: self._wait_for(catalog.reassign(topic, targets))

    def altering_configs(self, topic: Topic, change: ConfigChange, now: Now) -> Steps[None]:
        def changed(configs: Mapping[str, str]) -> Mapping[str, str]:
            return self.check_alter_configs(topic, change(configs))

        catalog = self._agreeing()
        yield lambda: self._wait_for(catalog.alter(topic, changed))

    def altering_broker_configs(self, configs: Mapping[str, str], now: Now) -> Steps[None]:
        if not configs:
            return  # as Kafka's tool for moving partitions wants it: throttles that there are none of are taken away
        raise KafkaError(
            ErrorCode.invalid_request,
            "settings of brokers are not changed at run time in a cluster: change them where each broker is started",
        )
        yield  # a generator, as the others

    def _assigned(self, name: str, indexes: range, factor: int) -> Assignment:
        """Assign in turn over the brokers that are up, each topic from another one on, so that leaders are spread.
        Those that are down get something only where the others are too few, as with Kafka: they copy it once they are
        back."""
        up, down = sorted(self._agreeing().brokers), sorted(self._agreeing().down)
        check_replication(factor, len(up) + len(down) if up else 0)
        start = sum(name.encode())
        return [
            [*_in_turn(up, start + index, factor), *_in_turn(down, start + index, factor - len(up))]
            for index in indexes
        ]

    def _begun(self, assignment: Assignment) -> tuple[Leadership, ...]:
        up = self._agreeing().brokers
        return tuple(first(brokers, up) for brokers in assignment)

    def _agreeing(self) -> Catalog:
        if self._catalog is None:
            raise KafkaError(ErrorCode.coordinator_not_available, "this broker has not joined the others yet")
        return self._catalog

    def _wait_for(self, agreeing: Coroutine[Any, Any, T]) -> T:
        """Wait in a thread: what is agreed on happens on the loop."""
        assert self._loop is not None
        future = asyncio.run_coroutine_threadsafe(agreeing, self._loop)
        try:
            return future.result(AGREED_WITHIN_S)
        except TimeoutError:
            future.cancel()
            raise KafkaError(
                ErrorCode.request_timed_out,
                f"not every broker was there to see the change within {AGREED_WITHIN_S} s; it may count all the same",
            ) from None

    @property
    def where_documents_are(self) -> str:
        return "where the brokers agree"

    def changing_document(self, kind: Kind, change: Change, now: Now) -> Steps[None]:
        catalog = self._agreeing()
        yield lambda: self._wait_for(catalog.change_document(kind, change))

    # What the supervisor has seen

    def show(self, name: str, document: TopicDocument) -> Topic:
        """Show a topic as it stands in the tree; its logs are opened by `open_here`."""
        topic = self._by_name.get(name)
        if topic is None:
            topic = self._topic_of(document.definition(name))
            self._register(topic)
        elif topic.configs != document.configs:
            topic.configs = dict(document.configs)
            self._apply_configs(topic)
        for index in range(len(topic.partitions), len(document.partitions)):
            topic.partitions.append(Partition(topic, index))
            self.revision += 1
        return topic

    def open_here(self, partition: Partition, now: Now) -> None:
        topic, index = partition.topic, partition.index
        self._put_aside(topic, index)
        partition.open(self._open_log(topic.name, topic.id, index, topic.log_config, now))

    def dropping(self, partition: Partition) -> Steps[None]:
        """Others have it now, or its topic was deleted. Its files are marked, for `remove_deleted`."""
        if partition.is_open:
            log = partition.close()
            partition.wake()
            yield from log.abandoning()
        self._mark_deleted(partition.topic.name, partition.index)

    def forget(self, topic: Topic) -> None:
        """Forget a deleted topic. Its partitions are still to be dropped."""
        self._withdraw(topic)
        for partition in topic.open_partitions:
            partition.wake()

    def remove_gone(self, gone: Container[UUID]) -> None:
        """The folders of topics that were deleted while this broker was away."""
        for name, index in list(self._folders.found()):
            owner = self._folders.owner(name, index)
            if owner is not None and owner in gone and owner not in self._by_id:
                self._folders.mark_deleted(name, (index,))
        self.remove_deleted()

    def _put_aside(self, topic: Topic, index: int) -> None:
        """The folder of an earlier topic of that name, which was deleted while this broker was away."""
        owner = self._folders.owner(topic.name, index)
        if owner is not None and owner != topic.id:
            logger.warning("%s-%d holds records of a deleted topic of that name: removed", topic.name, index)
            self._mark_deleted(topic.name, index)

    def _mark_deleted(self, name: str, index: int) -> None:
        try:
            self._folders.mark_deleted(name, (index,))
        except OSError as error:  # a log that is to be opened there says whose folder it is, and takes nothing in
            logger.error("%s-%d cannot be removed: %s", name, index, error)


def _in_turn(brokers: Sequence[int], start: int, count: int) -> list[int]:
    return [brokers[(start + each) % len(brokers)] for each in range(min(count, len(brokers)))]


def _check_count(count: int) -> None:
    if count > MOST_PARTITIONS:
        raise KafkaError(
            ErrorCode.invalid_partitions, f"{count} partitions: a topic of a cluster has at most {MOST_PARTITIONS}"
        )
