"""WriteTxnMarkers, versions 1 and 2 (KIP-98, KIP-1228 version of the transaction): the end of transactions, by their
coordinator or by an administrator who ends one that nobody coordinates (KIP-664)."""

from typing import Any

from oncelog.security.operations import CLUSTER_NAME, Operation, Resource
from oncelog.server.api import Api
from oncelog.server.call import Call
from oncelog.server.errors import ErrorCode
from oncelog.server.packing import packed_aside
from oncelog.server.transactions.markers import Marking
from oncelog.transactions.machine import RAISES


@packed_aside
async def handle(request: Any, call: Call) -> Any:
    may = call.rights.may
    is_allowed = may(Operation.ALTER, Resource.CLUSTER, CLUSTER_NAME) or may(
        Operation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME
    )
    markers = await call.each(request.markers, lambda each: _marker(each, call, is_allowed))
    return call.new("WriteTxnMarkersResponse", markers=markers)


async def _marker(marker: Any, call: Call, is_allowed: bool) -> Any:
    marking = Marking(
        marker.producer_id,
        marker.producer_epoch,
        marker.coordinator_epoch,
        marker.transaction_result,
        getattr(marker, "transaction_version", 0) >= RAISES,
    )

    async def partition(name: str, index: int) -> Any:
        error = ErrorCode.cluster_authorization_failed
        if is_allowed:
            error = await call.broker.markers.write_here((name, index), marking)
        return call.new("WritableTxnMarkerPartitionResult", partition_index=index, error_code=error)

    async def topic(each: Any) -> Any:
        partitions = await call.each(each.partition_indexes, lambda index: partition(each.name, index))
        return call.new("WritableTxnMarkerTopicResult", name=each.name, partitions=partitions)

    topics = await call.each(marker.topics, topic)
    return call.new("WritableTxnMarkerResult", producer_id=marker.producer_id, topics=topics)


API = Api(key=27, name="write_txn_markers", versions=(1, 2), handle=handle)
