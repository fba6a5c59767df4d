"""LeaveGroup: members go, by themselves or sent away by an administrator.

Versions 0 to 5. KIP-345 (v3: many at once, static members by their instance id), KIP-800 (v5: reason).
"""

from typing import Any

from oncelog.server.api import Api
from oncelog.server.call import Call
from oncelog.server.errors import ErrorCode
from oncelog.server.groups.messages import Leaving
from oncelog.server.packing import packed_aside

MANY_MEMBERS = 3


@packed_aside
async def handle(request: Any, call: Call) -> Any:
    if call.version >= MANY_MEMBERS:
        leavings = [Leaving(member_id=each.member_id, instance_id=each.group_instance_id) for each in request.members]
    else:
        leavings = [Leaving(member_id=request.member_id)]
    error, left = call.broker.groups.leave(request.group_id, leavings, call.now)
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


API = Api(key=13, name="leave_group", versions=(0, 5), handle=handle)
