"""WriteTxnMarkers, versions 1 and 2 (KIP-98, KIP-1228 version of the transaction): the end of transactions, by their
coordinator or by an administrator who ends one that nobody coordinates (KIP-664)."""

import asyncio
from collections.abc import Sequence
from typing import Any

from oncelog.security.operations import CLUSTER_NAME, Operation, Resource
from oncelog.server.api import Api
from oncelog.server.call import Call
from oncelog.server.errors import ErrorCode
from oncelog.server.packing import packed_aside
from oncelog.server.transactions.markers import Marking
from oncelog.transactions.machine import RAISES, TopicPartition

Settling = asyncio.Future[ErrorCode]


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

    markers = call.broker.markers

    def append(at: TopicPartition) -> Settling:
        refused = ErrorCode.cluster_authorization_failed
        return markers.settling(markers.append(at, marking) if is_allowed else refused)

    async def partition(at: TopicPartition, settling: Settling) -> Any:
        return call.new("WritableTxnMarkerPartitionResult", partition_index=at[1], error_code=await settling)

    async def topic(name: str, places: Sequence[TopicPartition], settling: Sequence[Settling]) -> Any:
        each = zip(places, settling, strict=True)
        partitions = await call.each(each, lambda one: partition(*one))
        return call.new("WritableTxnMarkerTopicResult", name=name, partitions=partitions)

    waiting = []
    for each in marker.topics:
        places = [(each.name, index) for index in each.partition_indexes]
        # All are appended before one of them is waited for: they become safe together.
        waiting.append((each.name, places, await call.each(places, append)))
    topics = await call.each(waiting, lambda each: topic(*each))
    return call.new("WritableTxnMarkerResult", producer_id=marker.producer_id, topics=topics)


API = Api(key=27, name="write_txn_markers", versions=(1, 2), handle=handle)
