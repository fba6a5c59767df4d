"""InitProducerId, versions 0 to 6 (KIP-98, KIP-360 bump of an epoch, KIP-890, KIP-939).

Every idempotent producer asks for a pid here, once. A transactional id is refused: there are no transactions.
A producer that names the pid and epoch it had (KIP-360, as librdkafka does) gets a new pid, as in Kafka: without a
transactional id nobody can tell whether the pid is its own, and the next epoch would fence its owner.
"""

from typing import Any

from oncelog.security.operations import CLUSTER_NAME, Operation, Resource
from oncelog.server.api import Api
from oncelog.server.call import Call
from oncelog.server.errors import ErrorCode
from oncelog.server.ports import ClusterStorageError


async def handle(request: Any, call: Call) -> Any:
    if request.transactional_id is not None:
        return _answer(call, ErrorCode.transactional_id_authorization_failed, -1, -1)
    if not (
        call.rights.may(Operation.IDEMPOTENT_WRITE, Resource.CLUSTER, CLUSTER_NAME)
        or call.rights.may_somewhere(Operation.WRITE, Resource.TOPIC)
    ):
        return _answer(call, ErrorCode.cluster_authorization_failed, -1, -1)
    pid, epoch = getattr(request, "producer_id", -1), getattr(request, "producer_epoch", -1)
    if (pid == -1) != (epoch == -1) or pid < -1 or epoch < -1:
        return _answer(call, ErrorCode.invalid_request, -1, -1)
    try:
        return _answer(call, ErrorCode.none, await call.broker.kafka_pids.take(), 0)
    except ClusterStorageError:
        return _answer(call, ErrorCode.coordinator_not_available, -1, -1)


def _answer(call: Call, code: ErrorCode, pid: int, epoch: int) -> Any:
    return call.new("InitProducerIdResponse", error_code=code, producer_id=pid, producer_epoch=epoch)


API = Api(key=22, name="init_producer_id", versions=(0, 6), handle=handle)
