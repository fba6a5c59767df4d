"""Topics and partitions: made, removed, grown, described, cut at the front."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from oncelog.client.admin.timeouts import Timeouts, refusal
from oncelog.client.admin.values import DeletedRecords, FoundOffset, LeaseState, PartitionLeases, ProducerState
from oncelog.client.errors import KafkaError
from oncelog.client.net import offsets as net_offsets
from oncelog.client.net.leaders import by_topic
from oncelog.client.net.retry import Outcomes
from oncelog.client.types import NewPartitions, NewTopic
from oncelog.slots import AnyPlace

if TYPE_CHECKING:
    from oncelog.client.net.brokers import Brokers

NO_EPOCH = -1


async def create_topics(
    brokers: "Brokers", topics: Sequence[NewTopic], timeouts: Timeouts, *, validate_only: bool
) -> Outcomes[str]:
    wanted = {each.topic: each for each in topics}

    async def once(names: list[str]) -> Outcomes[str]:
        def build(spoken: Any) -> Any:
            return spoken.new(
                "CreateTopicsRequest",
                topics=tuple(_new_topic(spoken, wanted[name]) for name in names),
                timeout=timeouts.operation_timeout,
                validate_only=validate_only,
            )

        answer = await timeouts.ask_controller(brokers, "create_topics", build)
        return {str(each.name): refusal(each.error_code, _said(each)) for each in answer.topics}

    done_already = 0 if validate_only else KafkaError.TOPIC_ALREADY_EXISTS
    return await timeouts.ask(wanted, once, done_already=done_already)


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


async def delete_topics(brokers: "Brokers", topics: Sequence[str], timeouts: Timeouts) -> Outcomes[str]:
    async def once(names: list[str]) -> Outcomes[str]:
        def build(spoken: Any) -> Any:
            if spoken.version < 6:
                return spoken.new("DeleteTopicsRequest", topic_names=tuple(names), timeout=timeouts.operation_timeout)
            states = tuple(spoken.new("DeleteTopicState", name=name, topic_id=None) for name in names)
            return spoken.new("DeleteTopicsRequest", topics=states, timeout=timeouts.operation_timeout)

        answer = await timeouts.ask_controller(brokers, "delete_topics", build)
        return {str(each.name): refusal(each.error_code, _said(each)) for each in answer.responses}

    outcomes = await timeouts.ask(topics, once, done_already=KafkaError.UNKNOWN_TOPIC_OR_PART)
    brokers.forget([name for name, outcome in outcomes.items() if outcome is None])
    return outcomes


async def topic_sizes(brokers: "Brokers", topics: Sequence[str], timeouts: Timeouts) -> dict[str, int]:
    """The bytes that each existing topic takes on the disks of all brokers, replicas included."""
    known = (await brokers.refresh(topics)).topics
    wanted = {name: tuple(known[name].partitions) for name in topics if name in known and known[name].partitions}
    sizes = dict.fromkeys(wanted, 0)

    def build(spoken: Any) -> Any:
        asked = (
            spoken.new("DescribableLogDirTopic", topic=name, partitions=indexes) for name, indexes in wanted.items()
        )
        return spoken.new("DescribeLogDirsRequest", topics=tuple(asked))

    for node_id in brokers.metadata.brokers if wanted else ():
        answer = await brokers.request(node_id, "describe_log_dirs", build, timeout_ms=timeouts.request_timeout_ms)
        for folder in answer.results:
            for topic in folder.topics:
                sizes[str(topic.name)] += sum(int(each.partition_size) for each in topic.partitions)
    return sizes


async def create_partitions(
    brokers: "Brokers", topics: Sequence[NewPartitions], timeouts: Timeouts, *, validate_only: bool
) -> Outcomes[str]:
    wanted = {each.topic: each for each in topics}

    async def once(names: list[str]) -> Outcomes[str]:
        def build(spoken: Any) -> Any:
            return spoken.new(
                "CreatePartitionsRequest",
                topics=tuple(_more_partitions(spoken, wanted[name]) for name in names),
                timeout=timeouts.operation_timeout,
                validate_only=validate_only,
            )

        answer = await timeouts.ask_controller(brokers, "create_partitions", build)
        return {str(each.name): refusal(each.error_code, _said(each)) for each in answer.results}

    return await timeouts.ask(wanted, once)


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


async def list_offsets(brokers: "Brokers", wanted: Mapping[AnyPlace, int], timeouts: Timeouts) -> Outcomes[AnyPlace]:
    """Offsets by timestamp; -1 is the end, -2 the beginning, -3 the record with the greatest timestamp."""

    async def ask_node(node_id: int, partitions: list[AnyPlace]) -> Outcomes[AnyPlace]:
        asked = [(partition, NO_EPOCH, wanted[partition]) for partition in partitions]
        timeout_ms = timeouts.request_timeout_ms
        answers = await net_offsets.list_offsets(brokers, node_id, asked, read_committed=False, timeout_ms=timeout_ms)
        return {
            found.partition: refusal(found.error_code)
            or FoundOffset(found.offset, found.timestamp_ms, found.leader_epoch)
            for found in answers
        }

    return await timeouts.ask_leaders(brokers, list(wanted), ask_node)


async def delete_records(brokers: "Brokers", before: Mapping[AnyPlace, int], timeouts: Timeouts) -> Outcomes[AnyPlace]:
    async def ask_node(node_id: int, partitions: list[AnyPlace]) -> Outcomes[AnyPlace]:
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
                for topic, indexes in by_topic(partitions).items()
            )
            return spoken.new("DeleteRecordsRequest", topics=topics, timeout=timeouts.operation_timeout)

        answer = await brokers.request(node_id, "delete_records", build, timeout_ms=timeouts.request_timeout_ms)
        return {
            (str(topic.name), int(each.partition_index)): refusal(each.error_code) or DeletedRecords(each.low_watermark)
            for topic in answer.topics
            for each in topic.partitions
        }

    return await timeouts.ask_leaders(brokers, list(before), ask_node)


async def describe_producers(
    brokers: "Brokers", partitions: Mapping[AnyPlace, int], timeouts: Timeouts
) -> Outcomes[AnyPlace]:
    async def ask_node(node_id: int, asked: list[AnyPlace]) -> Outcomes[AnyPlace]:
        def build(spoken: Any) -> Any:
            topics = tuple(
                spoken.new("TopicRequest", name=topic, partition_indexes=tuple(indexes))
                for topic, indexes in by_topic(asked).items()
            )
            return spoken.new("DescribeProducersRequest", topics=topics)

        answer = await brokers.request(node_id, "describe_producers", build, timeout_ms=timeouts.request_timeout_ms)
        return {
            (str(topic.name), int(each.partition_index)): refusal(each.error_code, each.error_message)
            or [_producer(state) for state in each.active_producers]
            for topic in answer.topics
            for each in topic.partitions
        }

    return await timeouts.ask_leaders(brokers, partitions, ask_node)


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
    brokers: "Brokers", partitions: Mapping[AnyPlace, int], timeouts: Timeouts
) -> Outcomes[AnyPlace]:
    async def ask_node(node_id: int, asked: list[AnyPlace]) -> Outcomes[AnyPlace]:
        def build(spoken: Any) -> Any:
            topics = tuple(
                spoken.new("DescribeLeasesTopic", name=topic, partitions=tuple(indexes))
                for topic, indexes in by_topic(asked).items()
            )
            return spoken.new("DescribeLeasesRequest", topics=topics)

        answer = await brokers.request(node_id, "describe_leases", build, timeout_ms=timeouts.request_timeout_ms)
        return {
            (str(topic.name), int(each.partition_index)): refusal(each.error_code, each.error_message) or _leases(each)
            for topic in answer.topics
            for each in topic.partitions
        }

    return await timeouts.ask_leaders(brokers, partitions, ask_node)


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
