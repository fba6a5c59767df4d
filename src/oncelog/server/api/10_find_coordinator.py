"""FindCoordinator, versions 0 to 6 (KIP-699 many keys, KIP-890).

A group is coordinated by the broker that leads its partition of `__consumer_offsets`, a transactional id by the one
that leads its partition of `__transaction_state`; among brokers these topics are made first. A server that stands alone
coordinates all, and makes the topic when there is something to store.

Version 0 must stay: librdkafka takes a server without it for one that is too old for lz4 and sends such batches
uncompressed without saying so.
"""

from typing import Any

from oncelog.replication.leadership import NOBODY
from oncelog.security.operations import Operation, Resource
from oncelog.server.api import Api
from oncelog.server.api_rights import REFUSALS
from oncelog.server.call import Call
from oncelog.server.errors import ErrorCode
from oncelog.server.packing import packed_aside

GROUP, TRANSACTION, SHARE = 0, 1, 2
MANY_KEYS = 4
_RESOURCES = {GROUP: Resource.GROUP, TRANSACTION: Resource.TRANSACTIONAL_ID}
NOT_YET = "No broker leads the partition where it is kept at the moment; ask again."

Brokers = dict[int, tuple[str, int]]  # host and port


@packed_aside
async def handle(request: Any, call: Call) -> Any:
    key_type = getattr(request, "key_type", GROUP)
    await call.broker.cluster.until_nobody_is_missed()
    brokers = {node_id: (host, port) for node_id, host, port, _ in call.broker.brokers(call.listener, call.local_host)}
    if call.version < MANY_KEYS:
        return call.new("FindCoordinatorResponse", **_answer(request.key, key_type, brokers, call))
    coordinators = await call.each(
        request.coordinator_keys, lambda key: call.new("Coordinator", key=key, **_answer(key, key_type, brokers, call))
    )
    return call.new("FindCoordinatorResponse", coordinators=coordinators)


def _answer(key: str, key_type: int, brokers: Brokers, call: Call) -> dict[str, Any]:
    code, message, node_id = ErrorCode.none, None, NOBODY
    if key_type not in (GROUP, TRANSACTION):
        code, message = ErrorCode.invalid_request, f"There is no coordinator of the type {key_type} here."
    elif not call.rights.may(Operation.DESCRIBE, _RESOURCES[key_type], key):
        code, message = REFUSALS[_RESOURCES[key_type]]
    else:
        node_id = _coordinator(key, key_type, call)
        if node_id not in brokers:
            code, message, node_id = ErrorCode.coordinator_not_available, NOT_YET, NOBODY
    host, port = brokers.get(node_id, ("", -1))
    return {"error_code": code, "error_message": message, "node_id": node_id, "host": host, "port": port}


def _coordinator(key: str, key_type: int, call: Call) -> int:
    broker = call.broker
    coordinator = broker.groups if key_type == GROUP else broker.transactions
    partition = coordinator.partition_of(key)
    if partition is not None and partition.leadership is not None:
        return partition.leadership.leader
    if not broker.topics.is_replicated:
        return broker.node_id
    if partition is None:
        coordinator.make_place(call.now)
    return NOBODY


API = Api(key=10, name="find_coordinator", versions=(0, 6), handle=handle)
