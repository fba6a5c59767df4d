"""The names of the files in a partition's folder. Numbers have 20 digits, so that names sort as offsets do."""

from collections.abc import Iterable
from typing import NamedTuple

LOG = ".log"
INDEX = ".index"
SNAPSHOT = ".producers"
TEMPORARY = ".tmp"
CLEANED = ".cleaned"
SWAP = ".swap"
EPOCH_FILE = "leader-epoch"
START_FILE = "log-start"
CLEANER_FILE = "cleaner"
FLUSHED_FILE = "flushed"


def log_path(folder: str, base_offset: int) -> str:
    return f"{folder}/{base_offset:020d}{LOG}"


def index_path(folder: str, base_offset: int) -> str:
    return f"{folder}/{base_offset:020d}{INDEX}"


def snapshot_path(folder: str, offset: int) -> str:
    return f"{folder}/{offset:020d}{SNAPSHOT}"


def cleaned_path(path: str, end_offset: int, ending: str) -> str:
    """Where compaction writes what will replace every segment from the one in `path` up to `end_offset`."""
    return f"{path}.{end_offset:020d}{ending}"


class Swap(NamedTuple):
    name: str
    target: str
    base_offset: int
    end_offset: int
    is_log: bool


def swap_of(name: str) -> Swap | None:
    if not name.endswith(SWAP):
        return None
    target, _, end = name.removesuffix(SWAP).rpartition(".")
    base, _, kind = target.partition(".")
    if not (base.isdigit() and end.isdigit() and kind in ("log", "index")):
        return None
    return Swap(name, target, int(base), int(end), kind == "log")


def offsets_of(names: Iterable[str], ending: str) -> list[int]:
    """The numbers of all files with this ending, in order."""
    return sorted(
        int(stem) for name in names if name.endswith(ending) and (stem := name.removesuffix(ending)).isdigit()
    )
