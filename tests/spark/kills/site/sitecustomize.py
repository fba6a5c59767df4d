"""Python imports this when it starts, in every process whose path leads here: drivers, Spark's workers and their
daemons."""

import os
import sys
from typing import Any

EVENT = "oncelog.spark"  # as in spark/sink/milestones.py, which is not to be imported where nobody else does
CONNECTS_TO = "PYTHON_WORKER_FACTORY_PORT"  # set for a process that Spark starts by itself, without a daemon
SECRET = "PYTHON_WORKER_FACTORY_SECRET"


def hook(event: str, arguments: tuple[Any, ...]) -> None:
    if event == EVENT:
        from tests.spark.kills.hooks import reached

        reached(*arguments)


def connect_early(port: int) -> None:
    """Spark gives such a process ten seconds from its start to its connection, and as many to say its secret, whatever
    its settings are. Beside forty busy processes PySpark's imports alone take longer, so both are done before them.
    Where PySpark then connects, it is given this connection, and has no more to say."""
    import socket

    address = ("127.0.0.1", port)
    early = socket.create_connection(address)
    secret = os.environ[SECRET].encode()
    early.sendall(len(secret).to_bytes(4, "big") + secret)
    early.recv(len(b"\0\0\0\2ok"), socket.MSG_WAITALL)

    class Connected(socket.socket):
        def connect(self, to: Any) -> None:
            if to == address:
                os.dup2(early.fileno(), self.fileno(), inheritable=False)
                early.close()
                vars(sys.modules["pyspark.util"])["_do_server_auth"] = lambda *_: None
            else:
                super().connect(to)

    socket.socket = Connected  # type: ignore[misc]


if "ONCELOG_TEST_CONTROLLER" in os.environ:
    sys.addaudithook(hook)
if CONNECTS_TO in os.environ:
    connect_early(int(os.environ[CONNECTS_TO]))
