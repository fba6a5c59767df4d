"""The parents and children among the processes of an experiment: as /proc tells it, which is where Linux keeps that."""

import os
import subprocess
from collections.abc import Iterator, Sequence
from typing import Any

from oncelog.chaos.guard import PROCESSES, end, pids

# In `stat`, behind the name. Four of the latter: in user and in system mode, its own and its children's.
_PARENT, _TICKS = 1, 11


def session_of(leader: int) -> list[int]:
    """All processes of this session, the leader among them."""
    return [pid for pid in pids() if _session(pid) == leader]


def end_session(leader: "subprocess.Popen[Any]") -> None:
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


def name_of(pid: int) -> bytes:
    """The name of a process, of which Linux keeps 15 bytes."""
    try:
        return (PROCESSES / str(pid) / "comm").read_bytes().rstrip(b"\n")
    except OSError:
        return b""


def parent_of(pid: int) -> int:
    """-1 where it has ended."""
    fields = _stat(pid)
    return int(fields[_PARENT]) if fields else -1


def ticks_of(pid: int, *, with_children: bool = False) -> int:
    """The processor time that it has used, or with the children that it has waited for."""
    return sum(map(int, _stat(pid)[_TICKS : _TICKS + (4 if with_children else 2)]))


def _stat(pid: int) -> Sequence[bytes]:
    """The fields behind the name, in which anything may stand."""
    try:
        return (PROCESSES / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return []


def below(pid: int, among: Sequence[int]) -> Iterator[int]:
    """Its children, and theirs."""
    for child in [each for each in among if parent_of(each) == pid]:
        yield child
        yield from below(child, among)
