"""A Spark driver in a process of its own, told by JSON lines what to do.

  python -m tests.spark.kills.driver_main FD CONF

Each request is served in a thread of its own, because most of them wait: for a query to end, to fail, to be killed.
"""

import json
import socket
import sys
import threading
from importlib import import_module
from typing import Any

from tests.spark.kills import queries
from tests.spark.kills.queries import Query


class DriverMain:
    def __init__(self, channel: socket.socket, conf: dict[str, str]) -> None:
        self._channel = channel
        self._lock = threading.Lock()
        self._running: dict[str, Any] = {}
        self._spark = _session(conf)

    def serve(self) -> None:
        self._tell({"id": 0, "error": None})
        with self._channel.makefile("rb") as lines:
            for line in lines:
                request = json.loads(line)
                if request["do"] == "end":
                    break
                threading.Thread(target=self._serve_one, args=(request,), daemon=True).start()
        for query in list(self._running.values()):
            query.stop()
        self._spark.stop()
        self._tell({"id": 0, "error": None})

    def _serve_one(self, request: dict[str, Any]) -> None:
        error = None
        answer: dict[str, Any] = {}
        try:
            # Spark looks for Python's formats in the session of the thread, and this one has none yet.
            self._spark._jvm.SparkSession.setActiveSession(self._spark._jsparkSession)
            answer = getattr(self, f"do_{request['do']}")(**request["with"])
        except Exception as failed:
            error = f"{type(failed).__name__}: {failed}"
        self._tell({"id": request["id"], "error": error, **answer})

    def _tell(self, what: dict[str, Any]) -> None:
        with self._lock:
            self._channel.sendall(json.dumps(what).encode() + b"\n")

    # --- requests -----------------------------------------------------------------------------------------------------

    def do_run(self, query: dict[str, Any]) -> dict[str, Any]:
        """To the end of what is there, or to the error that stops it."""
        running = queries.start(self._spark, Query.from_json(query))
        running.awaitTermination()
        return {"batches": [progress.batchId for progress in running.recentProgress if progress.numInputRows]}

    def do_start(self, name: str, query: dict[str, Any]) -> dict[str, Any]:
        self._running[name] = queries.start(self._spark, Query.from_json(query), once=False)
        return {}

    def do_process(self, names: list[str]) -> dict[str, Any]:
        """Until all that is there now is read and written; in this order, as each may read what the last one wrote."""
        for name in names:
            self._running[name].processAllAvailable()
        return {}

    def do_call(self, what: str, **values: Any) -> dict[str, Any]:
        """A function of the tests, `module:name`, which gets the session and these."""
        module, _, name = what.partition(":")
        getattr(import_module(module), name)(self._spark, **values)
        return {}

    def do_stop(self, name: str) -> dict[str, Any]:
        self._running.pop(name).stop()
        return {}


def _session(conf: dict[str, str]) -> Any:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("kills")
    for key, value in conf.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


if __name__ == "__main__":
    DriverMain(socket.socket(fileno=int(sys.argv[1])), json.loads(sys.argv[2])).serve()
