"""What the processes under test do at each named step: they ask the controller whether they may go on.

Runs in Spark's Python workers and in the driver's, called by `site/sitecustomize.py`. The controller answers at once
unless a test wants the process to stand at this step; then no answer comes until the test says so, or kills it.
"""

import json
import os
import socket
from typing import Any

from tests.lives.processes import jvm_above

CONTROLLER = "ONCELOG_TEST_CONTROLLER"  # host:port of the controller
GO = b"go\n"


def reached(step: str, facts: dict[str, Any]) -> None:
    """Tells where this process is, and stays there until it is let go. Without a controller nothing holds it."""
    address = os.environ.get(CONTROLLER)
    if address is None:
        return
    host, _, port = address.rpartition(":")
    told = {"step": step, "pid": os.getpid(), "jvm": jvm_above(os.getpid()), **task_facts(), **facts}
    try:
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(json.dumps(told, default=str).encode() + b"\n")
            connection.recv(len(GO))
    except OSError:
        return  # the test is over; a process that outlives it must not fail because of that


def task_facts() -> dict[str, Any]:
    """What Spark knows of the task that runs here; nothing in a process that runs none."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return {}
    batch = context.getLocalProperty("streaming.sql.batchId")
    return {
        "batch": None if batch is None else int(batch),
        "lane": context.partitionId(),
        "attempt": context.attemptNumber(),
        "stage_attempt": context.stageAttemptNumber() if hasattr(context, "stageAttemptNumber") else 0,
        "task": context.taskAttemptId(),
    }
