"""The brokers of a cluster and the replicas of its partitions: described, led by others, moved."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from oncelog.client.admin.timeouts import Timeouts, refusal
from oncelog.client.admin.values import BrokerDescription, ClusterDescription, Move, Replicas
from oncelog.client.errors import KafkaError, KafkaException, error_of
from oncelog.client.fetching.values import LATEST
from oncelog.client.net import offsets as net_offsets
from oncelog.client.net.leaders import by_topic
from oncelog.client.net.retry import Outcomes
from oncelog.slots import AnyPlace, Place

if TYPE_CHECKING:
    from oncelog.client.net.brokers import Brokers

PREFERRED: Final = 0
PAGE: Final = 2000
NO_EPOCH: Final = -1


async def describe_cluster(
    brokers: "Brokers", timeouts: Timeouts, *, include_fenced: bool = True
) -> ClusterDescription:
    def build(spoken: Any) -> Any:
        return spoken.new(
            "DescribeClusterRequest",
            include_cluster_authorized_operations=False,
            endpoint_type=1,
            include_fenced_brokers=include_fenced,
        )

    answer = await brokers.request(None, "describe_cluster", build, timeout_ms=timeouts.request_timeout_ms)
    _refuse(answer)
    return ClusterDescription(
        str(answer.cluster_id),
        int(answer.controller_id),
        tuple(
            BrokerDescription(
                int(each.broker_id), str(each.host), int(each.port), each.rack, bool(getattr(each, "is_fenced", False))
            )
            for each in sorted(answer.brokers, key=lambda each: int(each.broker_id))
        ),
    )


async def describe_replicas(brokers: "Brokers", timeouts: Timeouts) -> dict[Place, Replicas]:
    """The replicas of all partitions. Which are eligible is known from brokers that have DescribeTopicPartitions."""
    try:
        return await _replicas(brokers, timeouts)
    except KafkaException as failure:
        if failure.error.code() != KafkaError._UNSUPPORTED_FEATURE:
            raise
    metadata = await brokers.refresh(None)
    return {
        Place(name, index): Replicas(each.leader, each.leader_epoch, each.replicas, each.in_sync)
        for name, topic in metadata.topics.items()
        for index, each in topic.partitions.items()
    }


async def _replicas(brokers: "Brokers", timeouts: Timeouts) -> dict[Place, Replicas]:
    found: dict[Place, Replicas] = {}
    cursor: Any = None
    while True:

        def build(spoken: Any, cursor: Any = cursor) -> Any:
            at = cursor and spoken.new("Cursor", topic_name=cursor.topic_name, partition_index=cursor.partition_index)
            return spoken.new(
                "DescribeTopicPartitionsRequest", topics=(), response_partition_limit=PAGE, cursor=at or None
            )

        answer = await brokers.request(None, "describe_topic_partitions", build, timeout_ms=timeouts.request_timeout_ms)
        for topic in answer.topics:
            for each in topic.partitions:
                found[Place(str(topic.name), int(each.partition_index))] = Replicas(
                    int(each.leader_id),
                    int(each.leader_epoch),
                    tuple(map(int, each.replica_nodes)),
                    tuple(map(int, each.isr_nodes)),
                    tuple(map(int, each.eligible_leader_replicas or ())),
                )
        cursor = answer.next_cursor
        if cursor is None:
            return found


async def log_ends(
    brokers: "Brokers", asked: Sequence[tuple[int, str, int]], timeouts: Timeouts
) -> Outcomes[tuple[int, str, int]]:
    """The end offset of each replica's log, asked of the broker that has it; a broker that does not answer is left
    out."""

    async def ask_node(node_id: int, keys: list[tuple[int, str, int]]) -> Outcomes[tuple[int, str, int]]:
        questions = [((topic, index), NO_EPOCH, LATEST) for _, topic, index in keys]
        answers = await net_offsets.list_offsets(
            brokers,
            node_id,
            questions,
            read_committed=False,
            replica_id=net_offsets.WHOLE_LOG,
            timeout_ms=timeouts.request_timeout_ms,
        )
        return {(node_id, *each.partition): each.offset for each in answers if not each.error_code}

    by_node: dict[int, list[tuple[int, str, int]]] = {}
    for key in asked:
        by_node.setdefault(key[0], []).append(key)
    found = await timeouts.ask_nodes(by_node, ask_node)
    return {key: outcome for key, outcome in found.items() if not isinstance(outcome, KafkaException)}


async def elect_leaders(brokers: "Brokers", partitions: Iterable[AnyPlace], timeouts: Timeouts) -> Outcomes[AnyPlace]:
    """The preferred ones; False where they lead already. Asked once: a replica that is down stays so for a while."""

    async def once(left: list[AnyPlace]) -> Outcomes[AnyPlace]:
        def build(spoken: Any) -> Any:
            topics = tuple(
                spoken.new("TopicPartitions", topic=topic, partitions=tuple(indexes))
                for topic, indexes in by_topic(left).items()
            )
            return spoken.new(
                "ElectLeadersRequest",
                election_type=PREFERRED,
                topic_partitions=topics,
                timeout=timeouts.operation_timeout,
            )

        answer = await timeouts.ask_controller(brokers, "elect_leaders", build)
        _refuse(answer)
        return {
            (str(topic.topic), int(each.partition_id)): _election(int(each.error_code), each.error_message)
            for topic in answer.replica_election_results
            for each in topic.partition_result
        }

    outcomes = await timeouts.ask(partitions, once)
    return {key: KafkaException(each) if isinstance(each, KafkaError) else each for key, each in outcomes.items()}


def _election(code: int, message: str | None) -> KafkaException | KafkaError | bool:
    """A KafkaError counts, although Kafka calls it one that passes."""
    if code in (0, KafkaError.ELECTION_NOT_NEEDED):
        return code == 0
    failure = error_of(code, message)
    return failure if code == KafkaError.PREFERRED_LEADER_NOT_AVAILABLE else KafkaException(failure)


async def alter_partition_reassignments(
    brokers: "Brokers", targets: Mapping[AnyPlace, Sequence[int] | None], timeouts: Timeouts
) -> Outcomes[AnyPlace]:
    async def once(left: list[AnyPlace]) -> Outcomes[AnyPlace]:
        def partition(spoken: Any, topic: str, index: int) -> Any:
            target = targets[topic, index]
            replicas = None if target is None else tuple(target)
            return spoken.new("ReassignablePartition", partition_index=index, replicas=replicas)

        def build(spoken: Any) -> Any:
            topics = tuple(
                spoken.new(
                    "ReassignableTopic",
                    name=topic,
                    partitions=tuple(partition(spoken, topic, each) for each in indexes),
                )
                for topic, indexes in by_topic(left).items()
            )
            return spoken.new("AlterPartitionReassignmentsRequest", timeout=timeouts.operation_timeout, topics=topics)

        answer = await timeouts.ask_controller(brokers, "alter_partition_reassignments", build)
        _refuse(answer)
        return {
            (str(topic.name), int(each.partition_index)): refusal(each.error_code, each.error_message)
            for topic in answer.responses
            for each in topic.partitions
        }

    return await timeouts.ask(targets, once, done_already=KafkaError.NO_REASSIGNMENT_IN_PROGRESS)


async def list_partition_reassignments(brokers: "Brokers", timeouts: Timeouts) -> dict[Place, Move]:
    def build(spoken: Any) -> Any:
        return spoken.new("ListPartitionReassignmentsRequest", timeout=timeouts.operation_timeout, topics=None)

    answer = await timeouts.ask_controller(brokers, "list_partition_reassignments", build)
    _refuse(answer)
    return {
        Place(str(topic.name), int(each.partition_index)): Move(
            tuple(map(int, each.adding_replicas)), tuple(map(int, each.removing_replicas))
        )
        for topic in answer.topics
        for each in topic.partitions
    }


async def unregister_broker(brokers: "Brokers", node_id: int, timeouts: Timeouts) -> None:
    def build(spoken: Any) -> Any:
        return spoken.new("UnregisterBrokerRequest", broker_id=node_id)

    _refuse(await timeouts.ask_controller(brokers, "unregister_broker", build))


def _refuse(answer: Any) -> None:
    failure = refusal(getattr(answer, "error_code", 0), getattr(answer, "error_message", None))
    if failure is not None:
        raise failure
