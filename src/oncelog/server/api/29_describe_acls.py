"""DescribeAcls, versions 1 to 3 (KIP-140, KIP-290 patterns): the rules that match a filter, by what they are about.

Where no authorizer is set that is said in Kafka's words.
"""

from collections.abc import Iterable
from typing import Any

from oncelog.security.bindings import Binding, Pattern
from oncelog.security.operations import Operation, Resource
from oncelog.server.acl_requests import NO_AUTHORIZER, filter_of, looking
from oncelog.server.api import Api
from oncelog.server.api_rights import demand_cluster
from oncelog.server.call import Call
from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.packing import packed_aside

ResourcePattern = tuple[Resource, str, Pattern]


@packed_aside
async def handle(request: Any, call: Call) -> Any:
    demand_cluster(call.rights, Operation.DESCRIBE)
    if not call.broker.access.is_asked:
        raise KafkaError(ErrorCode.security_disabled, NO_AUTHORIZER)
    found = await call.broker.turns.run(looking(filter_of(request), call))
    by_pattern: dict[ResourcePattern, list[Binding]] = {}
    for each in found:
        by_pattern.setdefault((each.resource, each.name, each.pattern), []).append(each)
    return call.new(
        "DescribeAclsResponse",
        error_code=ErrorCode.none,
        error_message=None,
        resources=await call.each(by_pattern.items(), lambda each: _resource(*each, call)),
    )


async def _resource(about: ResourcePattern, bindings: Iterable[Binding], call: Call) -> Any:
    resource, name, pattern = about
    return call.new(
        "DescribeAclsResource",
        resource_type=resource,
        resource_name=name,
        pattern_type=pattern,
        acls=await call.each(
            bindings,
            lambda each: call.new(
                "AclDescription",
                principal=each.principal,
                host=each.host,
                operation=each.operation,
                permission_type=each.permission,
            ),
        ),
    )


API = Api(key=29, name="describe_acls", versions=(1, 3), handle=handle)
