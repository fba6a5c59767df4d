"""DescribeTransactions, version 0 (KIP-664)."""

from datetime import UTC, datetime, timedelta
from typing import Any

from oncelog.security.operations import Operation, Resource
from oncelog.server.api import Api
from oncelog.server.call import Call
from oncelog.server.errors import ErrorCode
from oncelog.server.packing import packed_aside

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@packed_aside
async def handle(request: Any, call: Call) -> Any:
    wanted = dict.fromkeys(request.transactional_ids)
    states = await call.each(wanted, lambda name: _state(name, call))
    return call.new("DescribeTransactionsResponse", transaction_states=states)


async def _state(name: str, call: Call) -> Any:
    error, found = ErrorCode.transactional_id_authorization_failed, None
    if call.rights.may(Operation.DESCRIBE, Resource.TRANSACTIONAL_ID, name):
        error, found = call.broker.transactions.known(name)
    if found is None:
        return call.new(
            "TransactionState",
            error_code=error,
            transactional_id=name,
            transaction_state="",
            transaction_timeout=timedelta(0),
            transaction_start_time=_EPOCH,
            producer_id=0,
            producer_epoch=0,
            topics=(),
        )
    by_topic: dict[str, list[int]] = {}
    for topic, index in found.partitions:
        by_topic.setdefault(topic, []).append(index)
    topics = await call.each(sorted(by_topic.items()), lambda each: _topic(*each, call))
    return call.new(
        "TransactionState",
        error_code=error,
        transactional_id=name,
        transaction_state=found.state.told,
        transaction_timeout=timedelta(milliseconds=found.timeout_ms),
        transaction_start_time=_EPOCH + timedelta(milliseconds=found.started_wall_ms),
        producer_id=found.pid,
        producer_epoch=found.epoch,
        topics=tuple(each for each in topics if each is not None),
    )


def _topic(name: str, partitions: list[int], call: Call) -> Any:
    """None where nobody may tell."""
    is_told = call.rights.may(Operation.DESCRIBE, Resource.TOPIC, name)
    return call.new("TopicData", topic=name, partitions=tuple(sorted(partitions))) if is_told else None


API = Api(key=65, name="describe_transactions", versions=(0, 0), handle=handle)
