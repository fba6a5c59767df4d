"""A server whose data folder lies on a small tmpfs of its own, mounted in a namespace that goes with the process."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.peers.jars import in_ci
from tests.peers.oncelog_process import OncelogProcess

_MOUNT = 'mkdir -p "$1" && mount -t tmpfs -o size=$2 tmpfs "$1" && shift 2 && exec "$@"'


def small_disk_server(folder: Path, size: str, **settings: str) -> OncelogProcess:
    data = folder / "log"
    prefix = ("unshare", "--map-root-user", "--mount", "sh", "-c", _MOUNT, "sh", str(data), size)
    given = {key.replace("_", "."): value for key, value in settings.items()}
    return OncelogProcess(folder, settings=given, prefix=prefix)


def seen_by(server: OncelogProcess) -> Path:
    """The data folder as the server sees it: its mount is not ours."""
    return Path(f"/proc/{server.pid}/root{server.data}")


def need_namespaces() -> None:
    order = ["unshare", "--map-root-user", "--mount", "true"]
    if shutil.which("unshare") and subprocess.run(order, capture_output=True, check=False).returncode == 0:
        return
    reason = "NOT RUN: a small file system needs `unshare` with user namespaces (kernel.unprivileged_userns_clone=1)"
    if in_ci():
        pytest.fail(f"CI must not skip this. {reason}", pytrace=False)
    pytest.skip(reason)
