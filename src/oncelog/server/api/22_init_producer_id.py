"""InitProducerId, versions 0 to 6 (KIP-98, KIP-360 bump of an epoch, KIP-890, KIP-939).

Every idempotent producer asks for a pid here, once. One with a transactional id gets the pid that belongs to it, and a
raised epoch, which fences the one that had it before; what that has left open is aborted first.
A producer without one that names the pid and epoch it had (KIP-360, as librdkafka does) gets a new pid, as in Kafka:
nobody can tell whether the pid is its own, and the next epoch would fence its owner.
"""

from datetime import timedelta
from typing import Any

from oncelog.security.operations import CLUSTER_NAME, Operation, Resource
from oncelog.server.api import Api
from oncelog.server.call import Call
from oncelog.server.errors import ErrorCode
from oncelog.server.ports import ClusterStorageError
from oncelog.transactions.machine import Expected

FENCED = 4  # older clients know INVALID_PRODUCER_EPOCH only
MS = timedelta(milliseconds=1)


async def handle(request: Any, call: Call) -> Any:
    pid, epoch = getattr(request, "producer_id", -1), getattr(request, "producer_epoch", -1)
    name = request.transactional_id
    if name is not None and not call.rights.may(Operation.WRITE, Resource.TRANSACTIONAL_ID, name):
        return _answer(call, ErrorCode.transactional_id_authorization_failed, -1, -1)
    if name is None and not (
        call.rights.may(Operation.IDEMPOTENT_WRITE, Resource.CLUSTER, CLUSTER_NAME)
        or call.rights.may_somewhere(Operation.WRITE, Resource.TOPIC)
    ):
        return _answer(call, ErrorCode.cluster_authorization_failed, -1, -1)
    if (pid == -1) != (epoch == -1) or pid < -1 or epoch < -1:
        return _answer(call, ErrorCode.invalid_request, -1, -1)
    if name is not None:
        expected = None if pid == -1 else Expected(pid, epoch)
        timeout_ms = request.transaction_timeout // MS
        error, pid, epoch = await call.broker.transactions.init_producer(name, timeout_ms, expected, call.client_host)
        is_old = error is ErrorCode.producer_fenced and call.version < FENCED
        return _answer(call, ErrorCode.invalid_producer_epoch if is_old else error, pid, epoch)
    try:
        return _answer(call, ErrorCode.none, await call.broker.take_kafka_pid(call.principal), 0)
    except ClusterStorageError:
        return _answer(call, ErrorCode.coordinator_not_available, -1, -1)


def _answer(call: Call, code: ErrorCode, pid: int, epoch: int) -> Any:
    return call.new("InitProducerIdResponse", error_code=code, producer_id=pid, producer_epoch=epoch)


API = Api(key=22, name="init_producer_id", versions=(0, 6), handle=handle)
