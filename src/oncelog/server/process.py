"""What the operating system says about this process, under the names that every Prometheus client uses."""

import os
import resource
from collections.abc import Callable

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


def max_open_files() -> float:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


PROCESS: tuple[tuple[str, bool, str, Callable[[], float]], ...] = (
    ("process_cpu_seconds_total", True, "Processor time of the server.", cpu_seconds),
    ("process_resident_memory_bytes", False, "Memory of the server.", resident_bytes),
    ("process_open_fds", False, "Open files and sockets.", open_files),
    ("process_max_fds", False, "Limit of open files and sockets.", max_open_files),
)
