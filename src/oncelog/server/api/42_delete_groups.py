"""DeleteGroups: forget groups without members, and their offsets.

Versions 0 to 2. KIP-229.
"""

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any

from oncelog.server.api import Api
from oncelog.server.call import Call
from oncelog.server.errors import ErrorCode
from oncelog.server.groups.store import Settled
from oncelog.server.packing import packed_aside


@packed_aside
def handle(request: Any, call: Call) -> Any | Awaitable[Any]:
    names = tuple(dict.fromkeys(request.groups_names))
    settled = [call.broker.groups.delete_group(name, call.now) for name in names]
    if all(isinstance(each, ErrorCode) for each in settled):
        return _answer(names, settled, call)
    return _answer_later(names, settled, call)


async def _answer_later(names: Sequence[str], settled: list[Settled], call: Call) -> Any:
    errors = [each if isinstance(each, ErrorCode) else await asyncio.shield(each) for each in settled]
    return _answer(names, errors, call)


def _answer(names: Sequence[str], errors: Sequence[Any], call: Call) -> Any:
    return call.new(
        "DeleteGroupsResponse",
        results=tuple(
            call.new("DeletableGroupResult", group_id=name, error_code=error)
            for name, error in zip(names, errors, strict=True)
        ),
    )


API = Api(key=42, name="delete_groups", versions=(0, 2), handle=handle)
