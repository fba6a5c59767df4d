"""DeleteAcls, versions 1 to 3 (KIP-140, KIP-290 patterns): each filter takes away what matches it, and is told what."""

import asyncio
from typing import Any, NamedTuple

from oncelog.security.bindings import Binding, Filter
from oncelog.security.operations import CLUSTER_NAME, Operation, Resource
from oncelog.server.acl_requests import CHANGED_AT_A_TIME, NO_AUTHORIZER, filter_of, looking, refreshing, removing
from oncelog.server.api import Api
from oncelog.server.api_rights import REFUSALS
from oncelog.server.call import Call
from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.packing import packed_aside


class Found(NamedTuple):
    bindings: list[Binding]
    refusal: KafkaError | None = None
    is_of_all: bool = False  # by a filter that asks nothing


@packed_aside
async def handle(request: Any, call: Call) -> Any:
    if not call.rights.may(Operation.ALTER, Resource.CLUSTER, CLUSTER_NAME):
        found = [Found([], KafkaError(*REFUSALS[Resource.CLUSTER]))] * len(request.filters)
    elif not call.broker.access.is_asked:
        found = [Found([], KafkaError(ErrorCode.security_disabled, NO_AUTHORIZER))] * len(request.filters)
    else:
        # In a task of its own: what has begun is done whole, also when the client hangs up half-way.
        found = await asyncio.shield(asyncio.ensure_future(_delete(request.filters, call)))
    return call.new("DeleteAclsResponse", filter_results=await call.each(found, lambda each: _result(each, call)))


async def _delete(filters: tuple[Any, ...], call: Call) -> list[Found]:
    """A rule that several filters find is in the answer of each, as in Kafka."""
    run = call.broker.turns.run
    await run(refreshing(call))
    found = list(await call.each(filters, lambda asked: _find(asked, call)))
    gone = list({binding.key: None for each in found for binding in each.bindings})
    if any(each.is_of_all for each in found):
        gone += call.broker.access.unread  # no other filter could find them
    try:
        for start in range(0, len(gone), CHANGED_AT_A_TIME):
            await run(removing(gone[start : start + CHANGED_AT_A_TIME], call))
    except KafkaError as refusal:
        return [Found([], each.refusal or refusal) for each in found]
    return found


async def _find(asked: Any, call: Call) -> Found:
    try:
        wanted = filter_of(asked)
        return Found(await call.broker.turns.run(looking(wanted, call)), is_of_all=wanted == Filter())
    except KafkaError as refusal:
        return Found([], refusal)


async def _result(found: Found, call: Call) -> Any:
    refusal = found.refusal
    return call.new(
        "DeleteAclsFilterResult",
        error_code=ErrorCode.none if refusal is None else refusal.code,
        error_message=None if refusal is None else refusal.message,
        matching_acls=await call.each(found.bindings, lambda each: _matching(each, call)),
    )


def _matching(binding: Binding, call: Call) -> Any:
    return call.new(
        "DeleteAclsMatchingAcl",
        error_code=ErrorCode.none,
        error_message=None,
        resource_type=binding.resource,
        resource_name=binding.name,
        pattern_type=binding.pattern,
        principal=binding.principal,
        host=binding.host,
        operation=binding.operation,
        permission_type=binding.permission,
    )


API = Api(key=31, name="delete_acls", versions=(1, 3), handle=handle)
