"""Access rules, told, made and taken away. Any broker can be asked."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from oncelog.client.admin.acl_values import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
)
from oncelog.client.admin.timeouts import Timeouts, refusal
from oncelog.client.admin.values import ResourceType
from oncelog.client.net.retry import Outcomes

if TYPE_CHECKING:
    from oncelog.client.net.brokers import Brokers


async def describe_acls(brokers: "Brokers", wanted: AclBindingFilter, timeouts: Timeouts) -> list[AclBinding]:
    def build(spoken: Any) -> Any:
        return spoken.new("DescribeAclsRequest", **_filter(wanted))

    answer = await brokers.request(None, "describe_acls", build, timeout_ms=timeouts.request_timeout_ms)
    failure = refusal(answer.error_code, answer.error_message)
    if failure is not None:
        raise failure
    found = [
        _binding(place.resource_type, place.resource_name, place.pattern_type, each)
        for place in answer.resources
        for each in place.acls
    ]
    return [each for each in found if each is not None]


async def create_acls(brokers: "Brokers", wanted: Sequence[AclBinding], timeouts: Timeouts) -> Outcomes[AclBinding]:
    """Make rules. One that is there already is no failure, so asking again is safe."""

    async def once(left: list[AclBinding]) -> Outcomes[AclBinding]:
        def build(spoken: Any) -> Any:
            return spoken.new("CreateAclsRequest", creations=tuple(_creation(spoken, each) for each in left))

        answer = await brokers.request(None, "create_acls", build, timeout_ms=timeouts.request_timeout_ms)
        said = [refusal(each.error_code, each.error_message) for each in answer.results]
        return dict(zip(left, said, strict=False))

    return await timeouts.ask(wanted, once)


async def delete_acls(
    brokers: "Brokers", wanted: Sequence[AclBindingFilter], timeouts: Timeouts
) -> Outcomes[AclBindingFilter]:
    """Delete the rules that these filters match; returns what each took away. Asked once: a second answer would not
    tell it again."""

    def build(spoken: Any) -> Any:
        filters = tuple(spoken.new("DeleteAclsFilter", **_filter(each)) for each in wanted)
        return spoken.new("DeleteAclsRequest", filters=filters)

    answer = await brokers.request(None, "delete_acls", build, timeout_ms=timeouts.request_timeout_ms)
    return dict(zip(wanted, map(_taken, answer.filter_results), strict=False))


def _taken(result: Any) -> object:
    failure = refusal(result.error_code, result.error_message)
    if failure is not None:
        return failure
    found = []
    for each in result.matching_acls:
        failure = refusal(each.error_code, each.error_message)
        if failure is not None:
            return failure
        found.append(_binding(each.resource_type, each.resource_name, each.pattern_type, each))
    return [each for each in found if each is not None]


def _filter(wanted: AclBindingFilter) -> dict[str, Any]:
    return {
        "resource_type_filter": int(wanted.restype),
        "resource_name_filter": wanted.name,
        "pattern_type_filter": int(wanted.resource_pattern_type),
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": int(wanted.operation),
        "permission_type": int(wanted.permission_type),
    }


def _creation(spoken: Any, wanted: AclBinding) -> Any:
    return spoken.new(
        "AclCreation",
        resource_type=int(wanted.restype),
        resource_name=wanted.name,
        resource_pattern_type=int(wanted.resource_pattern_type),
        principal=wanted.principal,
        host=wanted.host,
        operation=int(wanted.operation),
        permission_type=int(wanted.permission_type),
    )


def _binding(resource_type: int, name: str, pattern: int, said: Any) -> AclBinding | None:
    """None for one about what this client has no name for, such as delegation tokens."""
    try:
        return AclBinding(
            ResourceType(int(resource_type)),
            str(name),
            ResourcePatternType(int(pattern)),
            str(said.principal),
            str(said.host),
            AclOperation(int(said.operation)),
            AclPermissionType(int(said.permission_type)),
        )
    except ValueError:
        return None
