"""DeleteGroups: forget groups without members, and their offsets.

Versions 0 to 2. KIP-229.
"""

import asyncio
from typing import Any

from oncelog.server.api import Api
from oncelog.server.call import Call
from oncelog.server.errors import ErrorCode
from oncelog.server.packing import packed_aside


@packed_aside
async def handle(request: Any, call: Call) -> Any:
    names = tuple(dict.fromkeys(request.groups_names))
    settled = await call.each(names, lambda name: call.broker.groups.delete_group(name, call.now))
    errors = [each if isinstance(each, ErrorCode) else await asyncio.shield(each) for each in settled]
    results = await call.each(
        zip(names, errors, strict=True),
        lambda each: call.new("DeletableGroupResult", group_id=each[0], error_code=each[1]),
    )
    return call.new("DeleteGroupsResponse", results=results)


API = Api(key=42, name="delete_groups", versions=(0, 2), handle=handle)
