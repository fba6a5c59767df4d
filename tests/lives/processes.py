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
    """A host of Spark's that comes back may take a minute to hear that its work has been given to others."""
    until(lambda: not lives(pid), f"process {pid} to end", give_up_seconds=120.0)


def children(pid: int) -> list[int]:
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except OSError:
        return []


def jvm_above(pid: int) -> int | None:
    """The JVM that this process works for; None once it is gone. It started the process, directly or by its daemon; or
    the driver did, which has the JVM and the process that forks workers beside each other."""
    while pid > 1:
        child, pid = pid, parent_of(pid)
        if pid > 1 and _is_jvm(pid):
            return pid
        if _forks(child) and not _forks(pid):
            return next((each for each in children(pid) if _is_jvm(each)), None)
    return None


def _is_jvm(pid: int) -> bool:
    return b"java" in command_of(pid).split(b"\0")[0]


def _forks(pid: int) -> bool:
    return b"\0oncelog.spark.forking\0" in command_of(pid)
