"""The interpreter, shared and cleaned as suits a process that is a server and nothing else.

Threads that work beside the loop hand the interpreter back after half a millisecond: the loop gives it away at each
read and write, and Python's own 5 ms, a few times for each request, would be the pace of all clients. And the garbage
collector never looks through everything, which takes a second where there are 100,000 groups: reference counts free
what the server drops, as nothing of a connection points back at itself. It looks through what came since it last did,
each second, and where much comes, as often as that takes a few milliseconds.
"""

import asyncio
import gc
import sys

GIVE_WAY_S = 0.0005
COLLECT_S = 1.0
YOUNG, MIDDLE, NEVER = 2_000, 2, 2**31 - 1  # 6,000 objects at a time: a few ms


async def keep_pauses_short() -> None:
    """Keep the pauses short until this is cancelled."""
    before = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(GIVE_WAY_S)
    gc.set_threshold(YOUNG, MIDDLE, NEVER)
    gc.callbacks.append(_collected)
    try:
        while True:
            gc.collect()
            gc.freeze()
            await asyncio.sleep(COLLECT_S)
    finally:
        gc.callbacks.remove(_collected)
        gc.unfreeze()
        gc.set_threshold(*before[1])
        sys.setswitchinterval(before[0])


def _collected(phase: str, about: dict[str, int]) -> None:
    """Objects that were looked through twice stay out of the next look."""
    if phase == "stop" and about["generation"]:
        gc.freeze()
