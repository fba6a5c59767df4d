"""Heartbeat: a member is alive, and hears whether it must join again.

Versions 0 to 4. KIP-345 (v3: static members).
"""

from typing import Any

from oncelog.security.operations import Operation, Resource
from oncelog.server.api import Api
from oncelog.server.api_rights import demand
from oncelog.server.call import Call


def handle(request: Any, call: Call) -> Any:
    demand(call.rights, Operation.READ, Resource.GROUP, request.group_id)
    error = call.broker.groups.heartbeat(
        request.group_id,
        request.member_id,
        getattr(request, "group_instance_id", None),
        request.generation_id,
        call.now,
    )
    return call.new("HeartbeatResponse", error_code=error)


API = Api(key=12, name="heartbeat", versions=(0, 4), handle=handle)
