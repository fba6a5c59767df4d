"""EndTxn, versions 0 to 5 (KIP-98, KIP-360 PRODUCER_FENCED from v2 on, KIP-890: from v5 on each end raises the epoch).

The answer comes once it is stored what is to become of the transaction; partitions that are elsewhere may hear of it
later.
"""

from typing import Any

from oncelog.security.operations import Operation, Resource
from oncelog.server.api import Api
from oncelog.server.call import Call
from oncelog.server.errors import ErrorCode
from oncelog.server.transactions.coordinator import Initialised

FENCED, RAISING = 2, 5


async def handle(request: Any, call: Call) -> Any:
    ended = Initialised(ErrorCode.transactional_id_authorization_failed)
    if call.rights.may(Operation.WRITE, Resource.TRANSACTIONAL_ID, request.transactional_id):
        ended = await call.broker.transactions.end(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            is_commit=request.committed,
            raises=call.version >= RAISING,
        )
    error = ended.error
    if error is ErrorCode.producer_fenced and call.version < FENCED:
        error = ErrorCode.invalid_producer_epoch
    return call.new("EndTxnResponse", error_code=error, producer_id=ended.pid, producer_epoch=ended.epoch)


API = Api(key=26, name="end_txn", versions=(0, 5), handle=handle)
