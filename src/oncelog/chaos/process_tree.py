"""Who is whose child among the processes of an experiment: as /proc tells it, which is where Linux keeps that."""

import os
import subprocess
from collections.abc import Iterator, Sequence

from oncelog.chaos.guard import PROCESSES, end, pids

_PARENT, _USER_TICKS, _SYSTEM_TICKS = 1, 11, 12  # in `stat`, behind the name


def session_of(leader: int) -> list[int]:
    """All processes of this session, the leader among them."""
    return [pid for pid in pids() if _session(pid) == leader]


def end_session(leader: "subprocess.Popen[bytes]") -> None:
    """kill -9 of a process that leads a session, and of all that it has started."""
    for pid in session_of(leader.pid):
        end(pid)
    leader.wait()


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return -1


def command_of(pid: int) -> bytes:
    try:
        return (PROCESSES / str(pid) / "cmdline").read_bytes()
    except OSError:
        return b""


def parent_of(pid: int) -> int:
    """-1 where it has ended."""
    fields = _stat(pid)
    return int(fields[_PARENT]) if fields else -1


def ticks_of(pid: int) -> int:
    """How much of a processor's time it has used."""
    fields = _stat(pid)
    return int(fields[_USER_TICKS]) + int(fields[_SYSTEM_TICKS]) if fields else 0


def _stat(pid: int) -> Sequence[bytes]:
    """Behind the name, in which anything may stand."""
    try:
        return (PROCESSES / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return []


def below(pid: int, among: Sequence[int]) -> Iterator[int]:
    """Its children, and theirs."""
    for child in [each for each in among if parent_of(each) == pid]:
        yield child
        yield from below(child, among)
