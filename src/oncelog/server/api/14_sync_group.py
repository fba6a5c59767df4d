"""SyncGroup: the leader says who gets what, the others ask for their share. The answer comes when it is stored.

Versions 0 to 5. KIP-345 (v3: static members), KIP-559 (v5: protocol type and name).
"""

from collections.abc import Awaitable
from typing import Any

from oncelog.security.operations import Operation, Resource
from oncelog.server.api import Api
from oncelog.server.api_rights import demand
from oncelog.server.call import Call
from oncelog.server.errors import ErrorCode
from oncelog.server.groups.messages import SyncAnswer, SyncRequest

PROTOCOL = 5


def handle(request: Any, call: Call) -> Any | Awaitable[Any]:
    demand(call.rights, Operation.READ, Resource.GROUP, request.group_id)
    if call.version >= PROTOCOL and (request.protocol_type is None or request.protocol_name is None):
        return _answer(SyncAnswer(error=ErrorCode.inconsistent_group_protocol), call)
    answer = call.broker.groups.sync(request.group_id, _sync_request(request), call.now)
    return _answer(answer, call) if isinstance(answer, SyncAnswer) else _answer_later(answer, call)


async def _answer_later(answer: Awaitable[SyncAnswer], call: Call) -> Any:
    return _answer(await call.later(answer), call)


def _sync_request(request: Any) -> SyncRequest:
    return SyncRequest(
        member_id=request.member_id,
        generation=request.generation_id,
        instance_id=getattr(request, "group_instance_id", None),
        protocol_type=getattr(request, "protocol_type", None),
        protocol_name=getattr(request, "protocol_name", None),
        assignments={each.member_id: each.assignment for each in request.assignments},
    )


def _answer(answer: SyncAnswer, call: Call) -> Any:
    return call.new(
        "SyncGroupResponse",
        error_code=answer.error,
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol_name,
        assignment=answer.assignment,
    )


API = Api(key=14, name="sync_group", versions=(0, 5), handle=handle)
