"""AddPartitionsToTxn, versions 0 to 5 (KIP-98, KIP-360 PRODUCER_FENCED from v2 on, KIP-890 batches and verification).

Clients speak up to version 3, and ask for one transaction; from version 4 on brokers ask, for many, whether partitions
were added. One partition that is not there, or not allowed, keeps all of its transaction from being added.
"""

from typing import Any

from oncelog.security.operations import CLUSTER_NAME, Operation, Resource
from oncelog.server.api import Api
from oncelog.server.call import Call
from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.names import INTERNAL_TOPICS
from oncelog.server.packing import packed_aside
from oncelog.transactions.machine import TopicPartition

BROKERS, FENCED = 4, 2

Errors = dict[TopicPartition, ErrorCode]


@packed_aside
async def handle(request: Any, call: Call) -> Any:
    if call.version < BROKERS:
        places = _places(request.v3_and_below_topics)
        name, pid, epoch = (
            request.v3_and_below_transactional_id,
            request.v3_and_below_producer_id,
            request.v3_and_below_producer_epoch,
        )
        errors = await _for_client(name, pid, epoch, places, call)
        return call.new("AddPartitionsToTxnResponse", results_by_topic_v3_and_below=await _topics(errors, call))
    if not call.rights.may(Operation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME):
        raise KafkaError(ErrorCode.cluster_authorization_failed)
    results = await call.each(request.transactions, lambda each: _for_broker(each, call))
    return call.new("AddPartitionsToTxnResponse", error_code=ErrorCode.none, results_by_transaction=results)


def _places(topics: Any) -> list[TopicPartition]:
    return list(dict.fromkeys((each.name, index) for each in topics for index in each.partitions))


async def _for_client(name: str, pid: int, epoch: int, places: list[TopicPartition], call: Call) -> Errors:
    if not call.rights.may(Operation.WRITE, Resource.TRANSACTIONAL_ID, name):
        return dict.fromkeys(places, ErrorCode.transactional_id_authorization_failed)
    errors = await _checked(places, call, is_client=True)
    if any(errors.values()):
        return {at: error or ErrorCode.operation_not_attempted for at, error in errors.items()}
    error = await call.broker.transactions.add_partitions(name, pid, epoch, places)
    if error is ErrorCode.producer_fenced and call.version < FENCED:
        error = ErrorCode.invalid_producer_epoch
    return dict.fromkeys(places, error)


async def _for_broker(wanted: Any, call: Call) -> Any:
    places = _places(wanted.topics)
    who = wanted.transactional_id, wanted.producer_id, wanted.producer_epoch
    errors = await _checked(places, call, is_client=False)
    if any(errors.values()):
        errors = {at: error or ErrorCode.operation_not_attempted for at, error in errors.items()}
    elif wanted.verify_only:
        errors = call.broker.transactions.verify(*who, places)
    else:
        errors = dict.fromkeys(places, await call.broker.transactions.add_partitions(*who, places))
    topics = await _topics(errors, call)
    return call.new("AddPartitionsToTxnResult", transactional_id=wanted.transactional_id, topic_results=topics)


async def _checked(places: list[TopicPartition], call: Call, *, is_client: bool) -> Errors:
    errors: Errors = {}
    for at in places:
        await call.broker.turns.pause()
        errors[at] = _check(at, call, is_client=is_client)
    return errors


def _check(at: TopicPartition, call: Call, *, is_client: bool) -> ErrorCode:
    name, index = at
    topic = call.broker.topics.get(name)
    if is_client and (name in INTERNAL_TOPICS or not call.rights.may(Operation.WRITE, Resource.TOPIC, name)):
        return ErrorCode.topic_authorization_failed
    is_there = topic is not None and 0 <= index < len(topic.partitions)
    return ErrorCode.none if is_there else ErrorCode.unknown_topic_or_partition


async def _topics(errors: Errors, call: Call) -> tuple[Any, ...]:
    by_topic: dict[str, list[tuple[int, ErrorCode]]] = {}
    for (name, index), error in errors.items():
        by_topic.setdefault(name, []).append((index, error))

    async def topic(each: tuple[str, list[tuple[int, ErrorCode]]]) -> Any:
        partitions = await call.each(
            each[1],
            lambda one: call.new(
                "AddPartitionsToTxnPartitionResult", partition_index=one[0], partition_error_code=one[1]
            ),
        )
        return call.new("AddPartitionsToTxnTopicResult", name=each[0], results_by_partition=partitions)

    return await call.each(by_topic.items(), topic)


API = Api(key=24, name="add_partitions_to_txn", versions=(0, 5), handle=handle)
