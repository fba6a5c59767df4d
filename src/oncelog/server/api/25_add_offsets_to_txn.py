"""AddOffsetsToTxn, versions 0 to 4 (KIP-98, KIP-360 PRODUCER_FENCED from v2 on, KIP-890): the transaction is to commit
offsets of that group."""

import asyncio
from typing import Any

from oncelog.security.operations import Operation, Resource
from oncelog.server.api import Api
from oncelog.server.call import Call
from oncelog.server.errors import ErrorCode
from oncelog.server.names import OFFSETS_TOPIC

FENCED = 2


async def handle(request: Any, call: Call) -> Any:
    return call.new("AddOffsetsToTxnResponse", error_code=await _add(request, call))


async def _add(request: Any, call: Call) -> ErrorCode:
    if not call.rights.may(Operation.WRITE, Resource.TRANSACTIONAL_ID, request.transactional_id):
        return ErrorCode.transactional_id_authorization_failed
    if not call.rights.may(Operation.READ, Resource.GROUP, request.group_id):
        return ErrorCode.group_authorization_failed
    groups = call.broker.groups
    making = groups.making_place(call.now)
    if making is not None:
        await asyncio.wait([making])  # it is made for others, too, when this client hangs up
    partition = groups.partition_of(request.group_id)
    if partition is None:
        groups.make_place(call.now)
        return ErrorCode.coordinator_not_available
    error = await call.broker.transactions.add_partitions(
        request.transactional_id, request.producer_id, request.producer_epoch, [(OFFSETS_TOPIC, partition.index)]
    )
    is_old = error is ErrorCode.producer_fenced and call.version < FENCED
    return ErrorCode.invalid_producer_epoch if is_old else error


API = Api(key=25, name="add_offsets_to_txn", versions=(0, 4), handle=handle)
