"""FindCoordinator, versions 0 to 6 (KIP-699 many keys, KIP-890).

One server coordinates every group. A transactional id is refused with words, here already, because this is the first
thing that a transactional producer asks. Version 0 must stay: librdkafka takes a server without it for one that is too
old for lz4 and sends such batches uncompressed without saying so.
"""

from typing import Any

from oncelog.server.api import Api
from oncelog.server.call import Call
from oncelog.server.errors import ErrorCode
from oncelog.server.packing import packed_aside

GROUP, TRANSACTION, SHARE = 0, 1, 2
MANY_KEYS = 4
NO_TRANSACTIONS = (
    "Transactions are not supported by this server. An idempotent producer (enable.idempotence) needs none."
)


@packed_aside
async def handle(request: Any, call: Call) -> Any:
    key_type = getattr(request, "key_type", GROUP)
    if call.version < MANY_KEYS:
        return call.new("FindCoordinatorResponse", **_answer(request.key, key_type, call))
    coordinators = await call.each(
        request.coordinator_keys, lambda key: call.new("Coordinator", key=key, **_answer(key, key_type, call))
    )
    return call.new("FindCoordinatorResponse", coordinators=coordinators)


def _answer(key: str, key_type: int, call: Call) -> dict[str, Any]:
    code, message = ErrorCode.none, None
    if key_type == TRANSACTION:
        code, message = ErrorCode.transactional_id_authorization_failed, NO_TRANSACTIONS
    elif key_type != GROUP:
        code, message = ErrorCode.invalid_request, f"There is no coordinator of the type {key_type} here."
    if code is not ErrorCode.none:
        return {"error_code": code, "error_message": message, "node_id": -1, "host": "", "port": -1}
    host, port = call.broker.advertised(call.listener, call.local_host)
    node_id = call.broker.node_id
    return {"error_code": code, "error_message": None, "node_id": node_id, "host": host, "port": port}


API = Api(key=10, name="find_coordinator", versions=(0, 6), handle=handle)
