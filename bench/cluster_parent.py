"""Brokers of oncelog as one process that does what it is told:  python -m bench.cluster_parent FOLDER HOST:PORT ...

It is what `oncelog cluster start` is, but for one thing: a broker that was killed stays away until it is told to start.
Once all are up it prints their process ids. Then each line that it reads is an order, such as `kill 1`, and is answered
with that broker's process id, or 0 where it has none now. It ends with its input.
"""

import sys

from oncelog.cli import cluster  # noqa: F401  so that it weighs what the command weighs
from oncelog.cluster.parent import Parent, copies


def main(folder: str, *addresses: str) -> None:
    with Parent(folder, len(addresses), copies(len(addresses)), addresses=addresses) as parent:
        orders = {"start": parent.start, "stop": parent.stop, "kill": parent.kill}
        print(*map(parent.pid, parent.nodes), flush=True)
        for line in sys.stdin:
            order, node = line.split()
            orders[order](int(node))
            print(parent.pid(int(node)) if order == "start" else 0, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
