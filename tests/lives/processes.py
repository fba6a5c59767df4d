"""Processes that are not ours to wait for: Spark's workers, executors, and whatever a killed one has left behind."""

from pathlib import Path

from oncelog.chaos.guard import end
from oncelog.chaos.process_tree import command_of, parent_of
from tests.waiting import until


def kill(pid: int) -> None:
    """kill -9; one that has ended meanwhile is as good."""
    assert pid > 1, pid
    end(pid)


def lives(pid: int) -> bool:
    """False also for one that has ended and was not yet waited for."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] not in "ZX"


def await_end(pid: int) -> None:
    until(lambda: not lives(pid), f"process {pid} to end")


def children(pid: int) -> list[int]:
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except OSError:
        return []


def jvm_above(pid: int) -> int | None:
    """The JVM that started this process, directly or by its daemon; None once it is gone."""
    while pid > 1:
        pid = parent_of(pid)
        if pid > 1 and b"java" in command_of(pid).split(b"\0")[0]:
            return pid
    return None
