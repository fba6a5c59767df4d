"""Large answers are put into bytes by a thread: the writer of a schema takes a second for 5 MB, and all would wait.

Handlers that may have very much to say are marked with `packed_aside`. What they answer is made on the loop, because it
is read from what belongs to the loop; once made, nobody changes it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import wraps
from inspect import isawaitable, iscoroutinefunction
from typing import Any

from oncelog.server.call import Call, Encoded
from oncelog.wire.frames import SIZE

LOOKS_IN_A_TURN = 64  # so many things a request may have looked up before other connections go on
LARGE_BYTES = 256 * 1024  # by the estimate of `Call.new`


def packed_aside(handle: Callable[[Any, Call], Any]) -> Callable[[Any, Call], Any]:
    if iscoroutinefunction(handle):

        @wraps(handle)
        async def handle_later(request: Any, call: Call) -> Any:
            answer = await handle(request, call)
            return await _packed(answer, call) if call.answer_bytes >= LARGE_BYTES else answer

        return handle_later

    @wraps(handle)
    def handle_now(request: Any, call: Call) -> Any | Awaitable[Any]:
        answer = handle(request, call)
        is_small = call.answer_bytes < LARGE_BYTES
        return answer if is_small or isawaitable(answer) else _packed(answer, call)

    return handle_now


async def _packed(answer: Any, call: Call) -> Encoded:
    body = await asyncio.to_thread(call.schema.encode, answer, call.correlation_id)
    return Encoded((SIZE.pack(len(body)), body))
