"""ListConfigResources, versions 0 to 1 (KIP-1142; version 0 is ListClientMetricsResources of KIP-714).

Groups are listed that have configs of their own. Nothing is set for clients' metrics (`client_metrics.py`), so none of
them is listed; neither are loggers, which cannot be described.
"""

from collections.abc import Iterable
from typing import Any

from oncelog.security.documents import Kind
from oncelog.security.operations import Operation
from oncelog.server.api import Api
from oncelog.server.api_rights import demand_cluster
from oncelog.server.call import Call
from oncelog.server.config_resources import Resource
from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.packing import packed_aside

BROKER_LOGGER = 8
KINDS = frozenset(Resource) | {BROKER_LOGGER}


@packed_aside
async def handle(request: Any, call: Call) -> Any:
    demand_cluster(call.rights, Operation.DESCRIBE_CONFIGS)
    wanted = frozenset(getattr(request, "resource_types", (Resource.CLIENT_METRICS,))) or KINDS
    if not wanted <= KINDS:
        raise KafkaError(ErrorCode.unsupported_version)
    brokers: Iterable[str] = ()
    if Resource.BROKER in wanted:
        brokers = (str(each[0]) for each in call.broker.brokers(call.listener, call.local_host))
    topics = call.broker.topics.all() if Resource.TOPIC in wanted else ()
    groups = list(call.broker.topics.document(Kind.GROUP_CONFIGS)) if Resource.GROUP in wanted else ()
    return call.new(
        "ListConfigResourcesResponse",
        error_code=ErrorCode.none,
        config_resources=(
            *await call.each(brokers, lambda name: _resource(Resource.BROKER, name, call)),
            *await call.each(topics, lambda topic: _resource(Resource.TOPIC, topic.name, call)),
            *await call.each(groups, lambda name: _resource(Resource.GROUP, name, call)),
        ),
    )


def _resource(kind: Resource, name: str, call: Call) -> Any:
    return call.new("ConfigResource", resource_name=name, resource_type=kind)


API = Api(key=74, name="list_config_resources", versions=(0, 1), handle=handle)
