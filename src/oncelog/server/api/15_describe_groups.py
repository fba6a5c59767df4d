"""DescribeGroups: state and members of some groups.

Versions 0 to 6. KIP-430 (v3: what the client may do), KIP-345 (v4: static members), KIP-1043 (v6: an unknown group is
an error; before that it is a group that is dead).
"""

from typing import Any

from oncelog.security.operations import Operation, Resource
from oncelog.server.api import Api
from oncelog.server.call import Call
from oncelog.server.errors import ErrorCode
from oncelog.server.groups.consumer.group import ConsumerGroup
from oncelog.server.groups.group import Group
from oncelog.server.groups.member import Member
from oncelog.server.groups.state import State
from oncelog.server.operations import NOT_ASKED
from oncelog.server.packing import packed_aside

NOT_FOUND = 6


@packed_aside
async def handle(request: Any, call: Call) -> Any:
    tells = getattr(request, "include_authorized_operations", False)
    groups = await call.each(dict.fromkeys(request.groups), lambda group_id: _described(group_id, tells, call))
    return call.new("DescribeGroupsResponse", groups=groups)


async def _described(group_id: str, tells: bool, call: Call) -> Any:
    allowed = call.rights.operations(Resource.GROUP, group_id) if tells else NOT_ASKED
    groups = call.broker.groups
    group, error, message = groups.groups.get(group_id), groups.check_name(group_id), None
    if not call.rights.may(Operation.DESCRIBE, Resource.GROUP, group_id):
        return _unknown(group_id, "", NOT_ASKED, ErrorCode.group_authorization_failed, None, call)
    if error is ErrorCode.none and group is None and call.version >= NOT_FOUND:
        error, message = ErrorCode.group_id_not_found, f"Group {group_id} not found."
    if isinstance(group, ConsumerGroup):
        message = f"Group {group_id} is not a classic group." if error is ErrorCode.none else None
        if error is ErrorCode.none and call.version >= NOT_FOUND:
            error = ErrorCode.group_id_not_found
        return _unknown(group_id, State.DEAD.value, allowed, error, message, call)
    if group is None or error is not ErrorCode.none:
        return _unknown(group_id, State.DEAD.value, allowed, error, message, call)
    is_stable = group.state is State.STABLE
    return call.new(
        "DescribedGroup",
        error_code=ErrorCode.none,
        error_message=None,
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if is_stable else "",
        members=await call.each(group.members, lambda member: _member(member, group, is_stable, call)),
        authorized_operations=allowed,
    )


def _unknown(group_id: str, state: str, allowed: int, error: ErrorCode, message: str | None, call: Call) -> Any:
    return call.new(
        "DescribedGroup",
        error_code=error,
        error_message=message,
        group_id=group_id,
        group_state=state,
        protocol_type="",
        protocol_data="",
        members=(),
        authorized_operations=allowed,
    )


def _member(member: Member, group: Group, is_stable: bool, call: Call) -> Any:
    return call.new(
        "DescribedGroupMember",
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.protocols.get(group.protocol_name or "", b"") if is_stable else b"",
        member_assignment=member.assignment,
    )


API = Api(key=15, name="describe_groups", versions=(0, 6), handle=handle)
