"""ListGroups: the groups that this server coordinates. While some are still being read back that is said, so that
clients ask again.

Versions 0 to 5. KIP-518 (v4: state, and a filter of states), KIP-848 (v5: type, and a filter of types).
"""

from typing import Any

from oncelog.security.operations import CLUSTER_NAME, Operation, Resource
from oncelog.server.api import Api
from oncelog.server.call import Call
from oncelog.server.errors import ErrorCode
from oncelog.server.groups.consumer.group import ConsumerGroup
from oncelog.server.groups.group import Group
from oncelog.server.packing import packed_aside

CLASSIC, CONSUMER = "classic", "consumer"


@packed_aside
async def handle(request: Any, call: Call) -> Any:
    states = {state.strip().lower() for state in getattr(request, "states_filter", ())}
    types = {each.strip().lower() for each in getattr(request, "types_filter", ())}
    groups = () if types and not types & {CLASSIC, CONSUMER} else call.broker.groups.listed()
    may = call.rights.may
    may_see_all = may(Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME)
    is_loading = call.broker.groups.is_loading

    def listed(group: Group | ConsumerGroup) -> Any:
        group_type = CONSUMER if isinstance(group, ConsumerGroup) else CLASSIC
        if types and group_type not in types:
            return None
        if states and group.state.value.lower() not in states:
            return None
        if not may_see_all and not may(Operation.DESCRIBE, Resource.GROUP, group.group_id):
            return None
        return call.new(
            "ListedGroup",
            group_id=group.group_id,
            protocol_type=group.protocol_type or "",
            group_state=group.state.value,
            group_type=group_type,
        )

    return call.new(
        "ListGroupsResponse",
        error_code=ErrorCode.coordinator_load_in_progress if is_loading else ErrorCode.none,
        groups=tuple(each for each in await call.each(groups, listed) if each is not None),
    )


API = Api(key=16, name="list_groups", versions=(0, 5), handle=handle)
