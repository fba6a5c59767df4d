"""DeleteGroups: forget groups without members, and their offsets.

Versions 0 to 2. KIP-229.
"""

import asyncio
from typing import Any

from oncelog.security.operations import Operation, Resource
from oncelog.server.api import Api
from oncelog.server.call import Call
from oncelog.server.errors import ErrorCode
from oncelog.server.packing import packed_aside


@packed_aside
async def handle(request: Any, call: Call) -> Any:
    names = tuple(dict.fromkeys(request.groups_names))
    # In a task of its own: what has begun is done whole, also when the client hangs up half-way.
    return await asyncio.shield(asyncio.ensure_future(_delete_all(names, call)))


async def _delete_all(names: tuple[str, ...], call: Call) -> Any:
    run, groups = call.broker.turns.run, call.broker.groups
    may = call.rights.may

    async def delete(name: str) -> Any:
        if not may(Operation.DELETE, Resource.GROUP, name):
            return ErrorCode.group_authorization_failed
        return await run(groups.deleting_group(name, call.now))

    settled = await call.each(names, delete)
    errors = [each if isinstance(each, ErrorCode) else await each for each in settled]
    results = await call.each(
        zip(names, errors, strict=True),
        lambda each: call.new("DeletableGroupResult", group_id=each[0], error_code=each[1]),
    )
    return call.new("DeleteGroupsResponse", results=results)


API = Api(key=42, name="delete_groups", versions=(0, 2), handle=handle)
