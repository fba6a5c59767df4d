"""The Python that Spark is given where its workers may be forked from a process that has imported already.

Only where that is the same as starting one: a local session on Linux, run by this very interpreter, whose user has not
said which Python its workers are. `forking.py` decides for each worker whether it may be forked; this program starts
those that may not as if it were not there.
"""

import atexit
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from oncelog.spark.conf import is_local
from oncelog.spark.forking import AT_START, FORKED, SIZE_BYTES, TAKEN

# Python itself reads neither its environment nor site-packages for this: it is started anew for each worker.
# Spark asks for its version, by a program of one line, whenever it makes a Python function: that needs no Python.
# Both are kept in memory: temporary folders are swept while sessions live, and Spark starts nothing without them.
_STARTER: Final = """#!/bin/sh
case "$*" in "-c import sys; "?????"('%d.%d' % sys.version_info[:2])") echo {version}; exit;; esac
exec {python} -I -S {asking} "$@"
"""

_ASKING: Final = '''"""Taken for Python by Spark: asks the process that has imported already for a copy of itself."""

import marshal, os, sys
import _signal, _socket

def start():
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])

caller = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
caller.settimeout({wait_s!r})
try:
    caller.connect({listen_at!r})
    data = marshal.dumps((sys.argv[1:], dict(os.environ), os.getcwd()))
    streams = b"".join(each.to_bytes(4, sys.byteorder) for each in (0, 1, 2))
    caller.sendmsg([len(data).to_bytes({size_bytes}, "big")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
    while data:
        data = data[caller.send(data):]
    answer = caller.recv(1)
    pid = int.from_bytes(caller.recv({size_bytes}), "big") if answer == {forked!r} else 0
    if pid:
        caller.send({taken!r})
except OSError:
    pid = 0
if not pid:
    caller.close()
    start()
caller.settimeout(None)
for number in (_signal.SIGTERM, _signal.SIGHUP):
    _signal.signal(number, lambda number, frame: os.kill(pid, number))
for at in (0, 1):
    os.close(at)
while caller.recv(1):
    pass
'''

_LISTEN_AT: Final = "fork.sock"
_BACKLOG: Final = 64
_WAIT_S: Final = 5.0  # for an answer: Spark gives some workers ten seconds in all

# Where a user says which Python the workers are; to name this very interpreter asks for no other.
VARIABLES: Final = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
_SETTINGS: Final = ("spark.pyspark.python", "spark.pyspark.driver.python")

_started: list[Path] = []


def may_be_warm(environ: Mapping[str, str], known: Mapping[str, str]) -> bool:
    """Whether it is for us to say which Python the workers of a session are that this process starts."""
    is_other = any(environ.get(name) not in (None, "", sys.executable) for name in VARIABLES)
    is_said = is_other or any(name in known for name in _SETTINGS)
    return sys.platform == "linux" and is_local(known) and not is_said


def warm_python() -> Path | None:
    """The program, once for this process; it and the process behind it end with this one. None where the temporary
    folder does not allow it: its name is too long for a socket, or nothing in it may be run."""
    if not _started:
        folder = Path(tempfile.mkdtemp(prefix="oncelog-python-"))
        try:
            program = _written(folder / _LISTEN_AT, sys.executable)
            if not os.access(program, os.X_OK):
                raise PermissionError
            _start_forking(folder)
        except OSError:
            shutil.rmtree(folder, ignore_errors=True)
            return None
        _started.append(program)
    return _started[0]


def _written(listen_at: Path, python: str) -> Path:
    asking = _in_memory(
        _ASKING.format(
            python=python,
            listen_at=str(listen_at),
            size_bytes=SIZE_BYTES,
            forked=FORKED,
            taken=TAKEN,
            wait_s=_WAIT_S,
        )
    )
    version = "{}.{}".format(*sys.version_info)
    return _in_memory(_STARTER.format(version=version, python=shlex.quote(python), asking=asking))


def _in_memory(text: str) -> Path:
    """A program without a folder; it is there for as long as this process is."""
    descriptor = os.memfd_create("oncelog-python")
    os.fchmod(descriptor, 0o700)
    os.write(descriptor, text.encode())
    return Path(f"/proc/{os.getpid()}/fd/{descriptor}")


def _start_forking(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(folder / _LISTEN_AT))
        listener.listen(_BACKLOG)
        process: subprocess.Popen[Any] = subprocess.Popen(
            [sys.executable, "-m", "oncelog.spark.forking", str(listener.fileno()), str(folder)],
            stdin=subprocess.PIPE,  # its end is ours
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **AT_START, "PYTHONUNBUFFERED": "YES"},  # as Spark starts its workers
            pass_fds=[listener.fileno()],
            process_group=0,
        )
    atexit.register(_end, process, folder, os.getpid())


def _end(process: "subprocess.Popen[Any]", folder: Path, owner: int) -> None:
    """It may be in the middle of an import, and has nothing to lose. A copy of the driver by fork() leaves it alone."""
    if os.getpid() == owner:
        process.kill()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)
