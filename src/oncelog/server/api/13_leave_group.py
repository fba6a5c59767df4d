"""LeaveGroup: members go, by themselves or sent away by an administrator.

Versions 0 to 5. KIP-345 (v3: many at once, static members by their instance id), KIP-800 (v5: reason).
"""

from typing import Any

from oncelog.security.operations import Operation, Resource
from oncelog.server.api import Api
from oncelog.server.api_rights import demand
from oncelog.server.call import Call
from oncelog.server.errors import ErrorCode
from oncelog.server.groups.messages import Leaving, Left
from oncelog.server.packing import packed_aside

MANY_MEMBERS = 3
LEAVE_AT_A_TIME = 250


@packed_aside
async def handle(request: Any, call: Call) -> Any:
    demand(call.rights, Operation.READ, Resource.GROUP, request.group_id)
    if call.version >= MANY_MEMBERS:
        leavings = [Leaving(member_id=each.member_id, instance_id=each.group_instance_id) for each in request.members]
    else:
        leavings = [Leaving(member_id=request.member_id)]
    error, left = await _leave(request.group_id, leavings, call)
    if call.version < MANY_MEMBERS:
        return call.new("LeaveGroupResponse", error_code=left[0].error if error is ErrorCode.none else error)
    return call.new(
        "LeaveGroupResponse",
        error_code=error,
        members=await call.each(
            left,
            lambda each: call.new(
                "MemberResponse",
                member_id=each.leaving.member_id,
                group_instance_id=each.leaving.instance_id,
                error_code=each.error,
            ),
        ),
    )


async def _leave(group_id: str, leavings: list[Leaving], call: Call) -> tuple[ErrorCode, list[Left]]:
    groups, turns = call.broker.groups, call.broker.turns
    error, left = ErrorCode.none, []
    for start in range(0, max(len(leavings), 1), LEAVE_AT_A_TIME):
        if start and turns.is_over():
            await turns.next()
        if error is ErrorCode.none:
            settled, more = groups.leave(group_id, leavings[start : start + LEAVE_AT_A_TIME], call.now)
            error = settled if isinstance(settled, ErrorCode) else await call.later(settled)
            left += more
    return error, left


API = Api(key=13, name="leave_group", versions=(0, 5), handle=handle)
