"""The operating system's figures for this process, under the names that every Prometheus client uses."""

import logging
import os
import resource
from collections.abc import Callable

logger = logging.getLogger(__name__)

_PAGE_BYTES = resource.getpagesize()


def cpu_seconds() -> float:
    times = os.times()
    return times.user + times.system


def resident_bytes() -> float:
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE_BYTES
    except OSError:  # not Linux: the largest it ever was, in bytes on macOS
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def open_files() -> float:
    for folder in ("/proc/self/fd", "/dev/fd"):
        try:
            return len(os.listdir(folder))
        except OSError:
            continue
    return 0


def open_files_limit() -> int:
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 2**31 - 1 if soft == resource.RLIM_INFINITY else soft


def raise_open_files_limit() -> None:
    """Raise the limit as far as this process is allowed to: the lower one is there for programs that use select()."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError) as refusal:  # macOS says "unlimited" and allows less
            logger.info("the limit of open files stays %d: %s", soft, refusal)


PROCESS: tuple[tuple[str, bool, str, Callable[[], float]], ...] = (
    ("process_cpu_seconds_total", True, "Processor time of the server.", cpu_seconds),
    ("process_resident_memory_bytes", False, "Memory of the server.", resident_bytes),
    ("process_open_fds", False, "Open files and sockets.", open_files),
    ("process_max_fds", False, "Limit of open files and sockets.", open_files_limit),
)
