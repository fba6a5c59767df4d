"""lease_pid, version 0: our own (the proposal's API; DESIGN 3.4). Described byte by byte in docs/protocol.md.

A lease is granted to a producer, not to a partition: all partitions of one request get the same pid, because a
producer on the Kafka wire has one pid for all its partitions. Who wants a pid for each sends a request for each.
Nothing is written to any log; the partition hears of the pid with its first batch.
"""

from random import SystemRandom
from typing import Any, Final

from oncelog.producers.leases import Lease, lease_of
from oncelog.security.operations import Operation, Resource
from oncelog.server.api import Api
from oncelog.server.api_rights import demand
from oncelog.server.call import Call
from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.packing import packed_aside
from oncelog.server.partitions import partition_of, writable_topic
from oncelog.server.ports import ClusterStorageError
from oncelog.wire.own import LEASE_PID_KEY

RANDOM: Final = SystemRandom()
NO_LEASES: Final = "a lease's pid would be bound to nobody (oncelog.bind.pids): ask for one by InitProducerId"


@packed_aside
async def handle(request: Any, call: Call) -> Any:
    granting = _Granting(call)

    async def topic(asked: Any) -> Any:
        partitions = await call.each(asked.partitions, lambda index: _answer(asked.name, index, call, granting))
        return call.new("LeasePidTopicResult", name=asked.name, partitions=partitions)

    return call.new("LeasePidResponse", topics=await call.each(request.topics, topic))


class _Granting:
    """One lease for the request, taken when the first partition has turned out to be there."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._lease: Lease | None = None

    async def lease(self) -> Lease:
        if self._lease is None:
            broker = self._call.broker
            try:
                pid = await broker.leased_pids.take()
                self._lease = lease_of(pid, broker.settings.oncelog_lease_lifetime_ms, RANDOM)
            except ClusterStorageError as failure:
                raise KafkaError(ErrorCode.kafka_storage_error, str(failure)) from failure
        return self._lease


async def _answer(name: str, index: int, call: Call, granting: _Granting) -> Any:
    lease = Lease(-1, -1, -1, -1)
    code, message = ErrorCode.none, None
    try:
        if call.broker.pid_binding is not None:
            raise KafkaError(ErrorCode.unsupported_version, NO_LEASES)
        demand(call.rights, Operation.WRITE, Resource.TOPIC, name)
        partition_of(writable_topic(call.broker.topics, name), index)
        lease = await granting.lease()
    except KafkaError as refusal:
        code, message = refusal.code, refusal.message
    return call.new(
        "LeasePidPartition",
        partition_index=index,
        error_code=code,
        error_message=message,
        producer_id=lease.pid,
        generation=lease.generation,
        sequence=lease.sequence,
        expire_ms=lease.expire_ms,
    )


API = Api(key=LEASE_PID_KEY, name="lease_pid", versions=(0, 0), handle=handle)
