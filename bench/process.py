"""What the kernel says about a process: processor time, memory; and how much of a folder lies in the page cache."""

import ctypes
import mmap
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from oncelog.chaos.process_tree import ticks_of

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = mmap.PAGESIZE
ROOT = Path(__file__).parents[1]


def cpu_seconds(pid: int) -> float:
    """User and system time of all threads, ended ones too."""
    return ticks_of(pid) / _TICKS_PER_S


def resident_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise ValueError(f"process {pid} tells no VmRSS")


def proportional_mb(pid: int) -> float:
    """Its memory; of what it shares with other processes, such as libraries, its part."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise ValueError(f"process {pid} tells no Pss")


def bytes_read(pid: int) -> int:
    """From sockets, pipes and files."""
    (line,) = (each for each in Path(f"/proc/{pid}/io").read_text().splitlines() if each.startswith("rchar:"))
    return int(line.split()[1])


def drop_from_cache(folder: Path) -> None:
    """Writes the files out and asks the kernel to forget their pages."""
    for path in _segments(folder):
        with open(path, "rb+") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def cached_share(folder: Path) -> float:
    """The part of the segment files' pages that is in memory."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    pages = resident = 0
    for path in _segments(folder):
        size = path.stat().st_size
        if not size:
            continue
        with open(path, "rb") as file:
            where = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(), 0)
        count = -(-size // _PAGE_BYTES)
        flags = ctypes.create_string_buffer(count)
        if libc.mincore(where, size, flags):
            raise OSError(ctypes.get_errno(), "mincore")
        libc.munmap(where, size)
        pages += count
        resident += sum(flag & 1 for flag in flags.raw)
    return resident / pages if pages else 0.0


def _segments(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.log"))


@contextmanager
def bare_program(kind: str, file: Path) -> Iterator[tuple[int, int]]:
    """(port, process id) of one of `bench.bare`'s programs."""
    command = [sys.executable, "-m", "bench.bare", kind, str(file)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline()), process.pid
    finally:
        process.kill()
        process.wait()


def machine() -> dict[str, object]:
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        "unknown",
    )
    pages = os.sysconf("SC_PHYS_PAGES") * _PAGE_BYTES
    return {
        "cores": len(os.sched_getaffinity(0)),
        "processor": model,
        "memory_gb": round(pages / 2**30),
        "python": sys.version.split()[0],
        "kernel": os.uname().release,
    }
