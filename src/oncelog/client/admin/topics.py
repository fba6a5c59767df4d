"""Topics and partitions: made, removed, grown, described, cut at the front."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from oncelog.client.admin.asking import Outcomes, Patience, ask, ask_controller, ask_each, refusal
from oncelog.client.admin.values import DeletedRecords, FoundOffset, LeaseState, PartitionLeases, ProducerState
from oncelog.client.consumer import asking
from oncelog.client.errors import KafkaError, KafkaException, exception_of
from oncelog.client.groups.protocol import Partition
from oncelog.client.types import NewPartitions, NewTopic

if TYPE_CHECKING:
    from oncelog.client.net.brokers import Brokers

NO_EPOCH = -1


async def create_topics(
    brokers: "Brokers", topics: Sequence[NewTopic], patience: Patience, *, validate_only: bool
) -> Outcomes[str]:
    wanted = {each.topic: each for each in topics}

    async def once(names: list[str]) -> Outcomes[str]:
        def build(spoken: Any) -> Any:
            return spoken.new(
                "CreateTopicsRequest",
                topics=tuple(_new_topic(spoken, wanted[name]) for name in names),
                timeout=patience.operation_timeout,
                validate_only=validate_only,
            )

        answer = await ask_controller(brokers, "create_topics", build, patience)
        return {str(each.name): refusal(each.error_code, _said(each)) for each in answer.topics}

    done_already = 0 if validate_only else KafkaError.TOPIC_ALREADY_EXISTS
    return await ask(wanted, patience, once, done_already=done_already)


def _new_topic(spoken: Any, topic: NewTopic) -> Any:
    assignments = topic.replica_assignment or ()
    return spoken.new(
        "CreatableTopic",
        name=topic.topic,
        num_partitions=-1 if assignments else topic.num_partitions,
        replication_factor=-1 if assignments else topic.replication_factor,
        assignments=tuple(
            spoken.new("CreatableReplicaAssignment", partition_index=index, broker_ids=tuple(nodes))
            for index, nodes in enumerate(assignments)
        ),
        configs=tuple(
            spoken.new("CreatableTopicConfig", name=name, value=str(value)) for name, value in topic.config.items()
        ),
    )


async def delete_topics(brokers: "Brokers", topics: Sequence[str], patience: Patience) -> Outcomes[str]:
    async def once(names: list[str]) -> Outcomes[str]:
        def build(spoken: Any) -> Any:
            if spoken.version < 6:
                return spoken.new("DeleteTopicsRequest", topic_names=tuple(names), timeout=patience.operation_timeout)
            states = tuple(spoken.new("DeleteTopicState", name=name, topic_id=None) for name in names)
            return spoken.new("DeleteTopicsRequest", topics=states, timeout=patience.operation_timeout)

        answer = await ask_controller(brokers, "delete_topics", build, patience)
        return {str(each.name): refusal(each.error_code, _said(each)) for each in answer.responses}

    outcomes = await ask(topics, patience, once, done_already=KafkaError.UNKNOWN_TOPIC_OR_PART)
    brokers.forget([name for name, outcome in outcomes.items() if outcome is None])
    return outcomes


async def create_partitions(
    brokers: "Brokers", topics: Sequence[NewPartitions], patience: Patience, *, validate_only: bool
) -> Outcomes[str]:
    wanted = {each.topic: each for each in topics}

    async def once(names: list[str]) -> Outcomes[str]:
        def build(spoken: Any) -> Any:
            return spoken.new(
                "CreatePartitionsRequest",
                topics=tuple(_more_partitions(spoken, wanted[name]) for name in names),
                timeout=patience.operation_timeout,
                validate_only=validate_only,
            )

        answer = await ask_controller(brokers, "create_partitions", build, patience)
        return {str(each.name): refusal(each.error_code, _said(each)) for each in answer.results}

    return await ask(wanted, patience, once)


def _more_partitions(spoken: Any, wanted: NewPartitions) -> Any:
    assignments = wanted.replica_assignment
    return spoken.new(
        "CreatePartitionsTopic",
        name=wanted.topic,
        count=wanted.new_total_count,
        assignments=None
        if assignments is None
        else tuple(spoken.new("CreatePartitionsAssignment", broker_ids=tuple(nodes)) for nodes in assignments),
    )


def _said(answer: Any) -> str | None:
    return getattr(answer, "error_message", None)


# --- what is asked of leaders


async def ask_leaders(
    brokers: "Brokers",
    partitions: Sequence[Partition],
    patience: Patience,
    ask_node: Any,
) -> Outcomes[Partition]:
    async def once(left: list[Partition]) -> Outcomes[Partition]:
        await brokers.refresh({topic for topic, _ in left})
        by_leader: dict[int, list[Partition]] = defaultdict(list)
        outcomes: Outcomes[Partition] = {}
        for partition in left:
            leader = _leader(brokers, partition)
            if isinstance(leader, KafkaException):
                outcomes[partition] = leader
            else:
                by_leader[leader].append(partition)
        return outcomes | await ask_each(by_leader, patience, ask_node)

    return await ask(partitions, patience, once)


def _leader(brokers: "Brokers", partition: Partition) -> int | KafkaException:
    topic, index = partition
    known = brokers.metadata.topics.get(topic)
    if known is None or (known.error_code and not known.partitions):
        code = KafkaError.UNKNOWN_TOPIC_OR_PART if known is None else known.error_code
        return exception_of(code, f"topic {topic}")
    if index not in known.partitions:
        words = f"{topic} has partitions 0 to {len(known.partitions) - 1}, not {index}"
        return exception_of(KafkaError.UNKNOWN_TOPIC_OR_PART, words)
    leader = known.partitions[index].leader
    return leader if leader >= 0 else exception_of(KafkaError.LEADER_NOT_AVAILABLE, f"{topic} [{index}]")


def _by_topic(partitions: Sequence[Partition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = defaultdict(list)
    for topic, index in partitions:
        topics[topic].append(index)
    return topics


async def list_offsets(brokers: "Brokers", wanted: Mapping[Partition, int], patience: Patience) -> Outcomes[Partition]:
    """Offsets by timestamp; -1 is the end, -2 the beginning, -3 the record with the greatest timestamp."""

    async def ask_node(node_id: int, partitions: list[Partition]) -> Outcomes[Partition]:
        asked = [(partition, NO_EPOCH, wanted[partition]) for partition in partitions]
        timeout_ms = patience.request_timeout_ms
        answers = await asking.list_offsets(brokers, node_id, asked, read_committed=False, timeout_ms=timeout_ms)
        return {
            found.partition: refusal(found.error_code) or FoundOffset(found.offset, timestamp_ms, found.leader_epoch)
            for found, timestamp_ms in answers
        }

    return await ask_leaders(brokers, list(wanted), patience, ask_node)


async def delete_records(
    brokers: "Brokers", before: Mapping[Partition, int], patience: Patience
) -> Outcomes[Partition]:
    async def ask_node(node_id: int, partitions: list[Partition]) -> Outcomes[Partition]:
        def build(spoken: Any) -> Any:
            topics = tuple(
                spoken.new(
                    "DeleteRecordsTopic",
                    name=topic,
                    partitions=tuple(
                        spoken.new("DeleteRecordsPartition", partition_index=index, offset=before[topic, index])
                        for index in indexes
                    ),
                )
                for topic, indexes in _by_topic(partitions).items()
            )
            return spoken.new("DeleteRecordsRequest", topics=topics, timeout=patience.operation_timeout)

        answer = await brokers.request(node_id, "delete_records", build, timeout_ms=patience.request_timeout_ms)
        return {
            (str(topic.name), int(each.partition_index)): refusal(each.error_code) or DeletedRecords(each.low_watermark)
            for topic in answer.topics
            for each in topic.partitions
        }

    return await ask_leaders(brokers, list(before), patience, ask_node)


async def describe_producers(
    brokers: "Brokers", partitions: Sequence[Partition], patience: Patience
) -> Outcomes[Partition]:
    async def ask_node(node_id: int, asked: list[Partition]) -> Outcomes[Partition]:
        def build(spoken: Any) -> Any:
            topics = tuple(
                spoken.new("TopicRequest", name=topic, partition_indexes=tuple(indexes))
                for topic, indexes in _by_topic(asked).items()
            )
            return spoken.new("DescribeProducersRequest", topics=topics)

        answer = await brokers.request(node_id, "describe_producers", build, timeout_ms=patience.request_timeout_ms)
        return {
            (str(topic.name), int(each.partition_index)): refusal(each.error_code, each.error_message)
            or [_producer(state) for state in each.active_producers]
            for topic in answer.topics
            for each in topic.partitions
        }

    return await ask_leaders(brokers, partitions, patience, ask_node)


def _producer(state: Any) -> ProducerState:
    start = int(state.current_txn_start_offset)
    return ProducerState(
        int(state.producer_id),
        int(state.producer_epoch),
        int(state.last_sequence),
        int(state.last_timestamp),
        None if start < 0 else start,
    )


async def describe_leases(
    brokers: "Brokers", partitions: Sequence[Partition], patience: Patience
) -> Outcomes[Partition]:
    async def ask_node(node_id: int, asked: list[Partition]) -> Outcomes[Partition]:
        def build(spoken: Any) -> Any:
            topics = tuple(
                spoken.new("DescribeLeasesTopic", name=topic, partitions=tuple(indexes))
                for topic, indexes in _by_topic(asked).items()
            )
            return spoken.new("DescribeLeasesRequest", topics=topics)

        answer = await brokers.request(node_id, "describe_leases", build, timeout_ms=patience.request_timeout_ms)
        return {
            (str(topic.name), int(each.partition_index)): refusal(each.error_code, each.error_message) or _leases(each)
            for topic in answer.topics
            for each in topic.partitions
        }

    return await ask_leaders(brokers, partitions, patience, ask_node)


def _leases(said: Any) -> PartitionLeases:
    producers = tuple(
        LeaseState(
            int(each.producer_id),
            int(each.generation),
            int(each.last_sequence),
            int(each.last_offset),
            int(each.last_timestamp_ms),
            int(each.lease_left_ms),
        )
        for each in said.producers
    )
    return PartitionLeases(int(said.capacity), int(said.lifetime_ms), producers)
