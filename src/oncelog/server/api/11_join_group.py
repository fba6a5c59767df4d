"""JoinGroup: become a member, or say again that one is. The answer comes when the generation begins.

Versions 0 to 9. KIP-62 (v1: rebalance timeout), KIP-394 (v4: a member must know its id), KIP-345 (v5: static members),
KIP-559 (v7: protocol type), KIP-800 (v8: reason), KIP-814 (v9: a static leader may skip the assignment).
"""

from datetime import timedelta
from typing import Any
from uuid import uuid4

from oncelog.security.operations import Operation, Resource
from oncelog.server.api import Api
from oncelog.server.api_rights import demand
from oncelog.server.call import Call
from oncelog.server.groups.messages import JoinAnswer, JoinRequest
from oncelog.server.packing import packed_aside

KNOWN_ID = 4
NULLABLE_PROTOCOL = 7
SKIP_ASSIGNMENT = 9
MS = timedelta(milliseconds=1)


@packed_aside
async def handle(request: Any, call: Call) -> Any:
    demand(call.rights, Operation.READ, Resource.GROUP, request.group_id)
    answer = call.broker.groups.join(request.group_id, _join_request(request, call), call.now)
    return await _answer(answer if isinstance(answer, JoinAnswer) else await call.later(answer), call)


def _join_request(request: Any, call: Call) -> JoinRequest:
    instance_id = getattr(request, "group_instance_id", None)
    client_id = call.client_id or ""

    def may_know(topic: str) -> bool:
        return call.rights.may(Operation.DESCRIBE, Resource.TOPIC, topic)

    return JoinRequest(
        member_id=request.member_id,
        fresh_id=f"{client_id if instance_id is None else instance_id}-{uuid4()}",
        instance_id=instance_id,
        client_id=client_id,
        client_host=f"/{call.client_host}",
        protocol_type=request.protocol_type,
        protocols=tuple({each.name: each.metadata for each in request.protocols}.items()),
        session_timeout_ms=request.session_timeout // MS,
        rebalance_timeout_ms=getattr(request, "rebalance_timeout", request.session_timeout) // MS,
        needs_known_id=call.version >= KNOWN_ID,
        may_skip_assignment=call.version >= SKIP_ASSIGNMENT,
        may_know=may_know,
    )


async def _answer(answer: JoinAnswer, call: Call) -> Any:
    protocol_name = answer.protocol_name
    if protocol_name is None and call.version < NULLABLE_PROTOCOL:
        protocol_name = ""
    return call.new(
        "JoinGroupResponse",
        error_code=answer.error,
        generation_id=answer.generation,
        protocol_type=answer.protocol_type,
        protocol_name=protocol_name,
        leader=answer.leader,
        skip_assignment=answer.skip_assignment,
        member_id=answer.member_id,
        members=await call.each(
            answer.members,
            lambda member: call.new(
                "JoinGroupResponseMember",
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.metadata,
            ),
        ),
    )


API = Api(key=11, name="join_group", versions=(0, 9), handle=handle)
