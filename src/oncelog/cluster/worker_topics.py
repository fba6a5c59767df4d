"""The topics of a folder that several workers share, as one of them serves them: its own partitions are open."""

from collections.abc import Callable, Container, Mapping
from uuid import UUID

from oncelog.clock import Now
from oncelog.cluster.cluster_topics import ClusterTopics
from oncelog.cluster.documents import TopicDocument
from oncelog.log.disk import Disk
from oncelog.log.work_steps import Steps
from oncelog.producers import ProducerMap
from oncelog.replication.sharing import is_deleted
from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.settings import Settings
from oncelog.server.topic import Partition, Topic
from oncelog.server.topic_rules import check_replication
from oncelog.server.topics import Assignment, Targets


class WorkerTopics(ClusterTopics):
    HAVE_COPIES = False

    def __init__(
        self,
        settings: Settings,
        disk: Disk,
        new_producers: Callable[[], ProducerMap],
        now: Now,
        *,
        stayed_up: bool,
    ) -> None:
        super().__init__(settings, disk, new_producers, now, stayed_up=stayed_up)
        self._leaving: dict[UUID, Topic] = {}  # deleted, and of no use to anybody; some may still be open

    @property
    def is_replicated(self) -> bool:
        return True

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
        if not is_internal:
            check_replication(self.replication_of(replication, assignment), 1)
        return (
            yield from super().creating(
                name,
                partitions,
                configs,
                now,
                is_internal=is_internal,
                replication=1,
                assignment=assignment,
            )
        )

    def moving(self, topic: Topic, targets: Targets) -> Steps[None]:
        raise KafkaError(
            ErrorCode.invalid_request, "workers of one server share its partitions out by themselves, one to each"
        )
        yield  # a generator, as the others

    # What the supervisor has seen

    def show(self, name: str, document: TopicDocument) -> Topic:
        """One that is being deleted can be found by nobody."""
        if not is_deleted(document.partitions) or document.id in self._by_id:
            return super().show(name, document)
        if document.id not in self._leaving:
            topic = self._leaving[document.id] = self._topic_of(document.definition(name))
            topic.partitions = [Partition(topic, index) for index in range(len(document.partitions))]
        return self._leaving[document.id]

    def open_here(self, partition: Partition, now: Now) -> None:
        topic = partition.topic
        partition.open(self._open_log(topic.name, topic.id, partition.index, topic.log_config, now))

    def forget(self, topic: Topic) -> None:
        """Forget a deleted topic. The parent removes its files once no worker has any of them open."""
        if topic.id in self._by_id:
            self._withdraw(topic)
            self._leaving[topic.id] = topic

    def left(self, topic: Topic) -> None:
        self._leaving.pop(topic.id, None)

    def remove_gone(self, gone: Container[UUID]) -> None:
        """The parent does."""

    def remove_deleted(self) -> None:
        """The parent does."""
