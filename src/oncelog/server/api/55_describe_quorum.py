"""DescribeQuorum, versions 0 to 2 (KIP-595, KIP-836 timestamps, KIP-853 nodes): who agrees on what topics there are.

A server that stands alone keeps that in a log of its own, and is the only voter. Several brokers agree by a tree
outside of them: there is no quorum to describe, and UNSUPPORTED_VERSION says what clients of a Kafka with ZooKeeper
are told.
"""

from typing import Any

from oncelog.log.partition import PartitionLog
from oncelog.security.operations import Operation
from oncelog.server.api import Api
from oncelog.server.api_rights import demand_cluster
from oncelog.server.call import Call
from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.packing import packed_aside

NAME = "__cluster_metadata"
NODES_FROM = 2
NO_QUORUM = "Brokers agree by a tree here; there is no quorum of controllers."
NO_PARTITION = "This server does not host this topic-partition."


@packed_aside
async def handle(request: Any, call: Call) -> Any:
    demand_cluster(call.rights, Operation.DESCRIBE)
    log = call.broker.topics.metadata
    if log is None:
        raise KafkaError(ErrorCode.unsupported_version, NO_QUORUM)
    is_it = _is_it(request.topics)
    return call.new(
        "DescribeQuorumResponse",
        error_code=ErrorCode.none,
        error_message="",
        topics=await call.each(request.topics, lambda asked: _topic(asked, log if is_it else None, call)),
        nodes=(_node(call),) if is_it and call.version >= NODES_FROM else (),
    )


def _is_it(topics: tuple[Any, ...]) -> bool:
    """Whether the one partition is asked for, and nothing beside it."""
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        return False
    return bool(topics[0].topic_name == NAME and topics[0].partitions[0].partition_index == 0)


async def _topic(asked: Any, log: PartitionLog | None, call: Call) -> Any:
    partitions = await call.each(
        asked.partitions, lambda each: _missing(each, call) if log is None else _partition(log, call)
    )
    return call.new("TopicData", topic_name=asked.topic_name, partitions=partitions)


def _missing(asked: Any, call: Call) -> Any:
    return call.new(
        "PartitionData",
        partition_index=asked.partition_index,
        error_code=ErrorCode.unknown_topic_or_partition,
        error_message=NO_PARTITION,
        leader_id=0,
        leader_epoch=0,
        high_watermark=0,
        current_voters=(),
        observers=(),
    )


def _partition(log: PartitionLog, call: Call) -> Any:
    voter = call.new(
        "ReplicaState",
        replica_id=call.broker.node_id,
        replica_directory_id=None,
        log_end_offset=log.next_offset,
        last_fetch_timestamp=call.now.wall_ms,
        last_caught_up_timestamp=call.now.wall_ms,
    )
    return call.new(
        "PartitionData",
        partition_index=0,
        error_code=ErrorCode.none,
        error_message="",
        leader_id=call.broker.node_id,
        leader_epoch=log.leader_epoch,
        high_watermark=log.next_offset,
        current_voters=(voter,),
        observers=(),
    )


def _node(call: Call) -> Any:
    host, port = call.broker.advertised(call.listener, call.local_host)
    listener = call.new("Listener", name=call.listener, host=host, port=port)
    return call.new("Node", node_id=call.broker.node_id, listeners=(listener,))


API = Api(key=55, name="describe_quorum", versions=(0, 2), handle=handle)
