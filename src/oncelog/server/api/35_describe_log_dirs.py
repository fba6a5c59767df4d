"""DescribeLogDirs, versions 1 to 5 (KIP-113, KIP-827 free space): how much each partition takes in the data folder."""

from os.path import abspath
from typing import Any

from oncelog.security.operations import CLUSTER_NAME, Operation, Resource
from oncelog.server.api import Api, once
from oncelog.server.call import Call
from oncelog.server.errors import ErrorCode
from oncelog.server.packing import packed_aside
from oncelog.server.topics import Topic

UNKNOWN_BYTES = -1


@packed_aside
async def handle(request: Any, call: Call) -> Any:
    topics = call.broker.topics
    if not call.rights.may(Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME):
        return call.new("DescribeLogDirsResponse", error_code=ErrorCode.cluster_authorization_failed, results=())
    asked: list[tuple[Topic, tuple[int, ...] | None]]
    if request.topics is None:
        asked = [(topic, None) for topic in topics.all()]
    else:
        named = once((each.topic, each.partitions) for each in request.topics)
        found = [(topics.get(name), tuple(indexes)) for name, indexes in named.items()]
        asked = [(topic, indexes) for topic, indexes in found if topic is not None]
    result = call.new(
        "DescribeLogDirsResult",
        error_code=ErrorCode.none,
        log_dir=abspath(call.broker.settings.log_dir),
        topics=await call.each(asked, lambda each: _topic(*each, call)),
        total_bytes=UNKNOWN_BYTES,
        usable_bytes=topics.free_bytes(),
        is_cordoned=False,
    )
    return call.new("DescribeLogDirsResponse", error_code=ErrorCode.none, results=(result,))


async def _topic(topic: Topic, indexes: tuple[int, ...] | None, call: Call) -> Any:
    wanted = None if indexes is None else frozenset(indexes)
    return call.new(
        "DescribeLogDirsTopic",
        name=topic.name,
        partitions=await call.each(
            [each for each in topic.open_partitions if wanted is None or each.index in wanted],
            lambda partition: call.new(
                "DescribeLogDirsPartition",
                partition_index=partition.index,
                partition_size=partition.log.size_bytes,
                offset_lag=0,
                is_future_key=False,
            ),
        ),
    )


API = Api(key=35, name="describe_log_dirs", versions=(1, 5), handle=handle)
