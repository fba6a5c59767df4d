"""UnregisterBroker, version 0 (KIP-631): a broker that was stopped for good does not belong to the cluster any more.

Its number may be given to another data folder from then on; should it be started again, it belongs to the cluster anew.
"""

import asyncio
from typing import Any

from oncelog.security.operations import Operation
from oncelog.server.api import Api
from oncelog.server.api_rights import demand_cluster
from oncelog.server.call import Call
from oncelog.server.errors import ErrorCode, KafkaError


async def handle(request: Any, call: Call) -> Any:
    code, message = ErrorCode.none, None
    try:
        demand_cluster(call.rights, Operation.ALTER)
        await _check(request.broker_id, call)
        # In a task of its own: what has begun is done whole, also when the client hangs up half-way.
        await asyncio.shield(asyncio.ensure_future(call.broker.cluster.forget(request.broker_id)))
    except KafkaError as refusal:
        code, message = refusal.code, refusal.message
    return call.new("UnregisterBrokerResponse", error_code=code, error_message=message)


async def _check(node_id: int, call: Call) -> None:
    cluster, turns = call.broker.cluster, call.broker.turns
    if node_id in cluster.members:
        raise KafkaError(ErrorCode.invalid_request, f"Broker {node_id} is up: stop it first.")
    if node_id not in cluster.away:
        raise KafkaError(ErrorCode.broker_id_not_registered, f"There is no broker {node_id}.")
    for topic in call.broker.topics.all():
        for partition in topic.partitions:
            if partition.leadership is not None and node_id in partition.leadership.replicas:
                where = f"{topic.name}-{partition.index}"
                message = f"Broker {node_id} is to have {where}: move that to other brokers first."
                raise KafkaError(ErrorCode.invalid_request, message)
        if turns.is_over():
            await turns.next()


API = Api(key=64, name="unregister_broker", versions=(0, 0), handle=handle)
