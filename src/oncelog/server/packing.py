"""Large answers are put into bytes by a thread: the writer of a schema takes a second for 5 MB, and all would wait.

Handlers that may have very much to say are marked with `packed_aside`. What they answer is made on the loop, in turns,
because it is read from what belongs to the loop; once made, nobody changes it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any

from oncelog.server.call import Call, Encoded
from oncelog.wire.frames import SIZE

LARGE_BYTES = 16 * 1024  # by the estimate of `Call.new`


def packed_aside(handle: Callable[[Any, Call], Awaitable[Any]]) -> Callable[[Any, Call], Awaitable[Any]]:
    @wraps(handle)
    async def packed(request: Any, call: Call) -> Any:
        try:
            answer = await handle(request, call)
        except BaseException:
            call.let_go()
            raise
        if call.answer_bytes < LARGE_BYTES:
            return answer
        call.made.insert(0, [answer])
        del answer  # from here on only the call has it, which lets it go in turns
        packing = asyncio.ensure_future(call.broker.aside.run(_pack, call))
        packing.add_done_callback(lambda done: call.let_go())
        try:
            body = await asyncio.shield(packing)  # a thread that has begun reads it to its end
        except asyncio.CancelledError:
            call.is_dropped = True
            raise
        call.broker.memory.unsent.hold(len(body))  # until the connection has it
        return Encoded((SIZE.pack(len(body)), body), held_bytes=len(body))

    return packed


def _pack(call: Call) -> bytes:
    return b"" if call.is_dropped else call.schema.encode(call.made[0][0], call.correlation_id)
