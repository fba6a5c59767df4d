"""DescribeCluster, versions 0 to 2 (KIP-700, KIP-919 controllers, KIP-1073 fenced brokers)."""

from typing import Any

from oncelog.server.api import Api
from oncelog.server.api_rights import cluster_operations
from oncelog.server.call import Call
from oncelog.server.errors import ErrorCode
from oncelog.server.operations import NOT_ASKED
from oncelog.server.ports import NO_MEMBERS

BROKERS = 1


def handle(request: Any, call: Call) -> Any:
    broker = call.broker
    endpoint_type = getattr(request, "endpoint_type", BROKERS)
    if endpoint_type != BROKERS:
        return call.new(
            "DescribeClusterResponse",
            error_code=ErrorCode.mismatched_endpoint_type
            if endpoint_type == 2
            else ErrorCode.unsupported_endpoint_type,
            error_message="This is a broker; there is no controller to ask.",
            endpoint_type=endpoint_type,
            cluster_id=broker.cluster_id,
            controller_id=-1,
            brokers=(),
            cluster_authorized_operations=NOT_ASKED,
        )
    return call.new(
        "DescribeClusterResponse",
        error_code=ErrorCode.none,
        error_message=None,
        endpoint_type=BROKERS,
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        brokers=tuple(
            call.new(
                "DescribeClusterBroker",
                broker_id=node_id,
                host=host,
                port=port,
                rack=rack,
                is_fenced=node_id in broker.cluster.away,
            )
            for node_id, host, port, rack in broker.brokers(
                call.listener,
                call.local_host,
                also=broker.cluster.away if getattr(request, "include_fenced_brokers", False) else NO_MEMBERS,
            )
        ),
        cluster_authorized_operations=cluster_operations(
            call.rights, is_asked=request.include_cluster_authorized_operations
        ),
    )


API = Api(key=60, name="describe_cluster", versions=(0, 2), handle=handle)
