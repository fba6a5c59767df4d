"""A broker's process, as far as the tree sees one: `python -m tests.cluster.tree_client SOCKET PATH`.

It makes the node, says so, and says so when its session is over. It ends with its input.
"""

import asyncio
import sys

from oncelog.clock import SystemClock
from oncelog.cluster.tree import PutEphemeral
from oncelog.cluster.tree_socket import SocketTree


def say(what: str) -> None:
    sys.stdout.write(what + "\n")
    sys.stdout.flush()


async def main(socket: str, path: str) -> None:
    loop = asyncio.get_running_loop()
    tree = SocketTree(socket, SystemClock())
    tree.on_lost(lambda: say("lost"))
    await tree.begin_session()
    await tree.change(PutEphemeral(path, b""), within_s=30)
    say("made")
    await loop.run_in_executor(None, sys.stdin.read)


asyncio.run(main(*sys.argv[1:]))
