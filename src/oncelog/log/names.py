"""The names of the files in a partition's folder. Numbers have 20 digits, so that names sort as offsets do."""

from collections.abc import Iterable
from typing import NamedTuple

LOG = ".log"
INDEX = ".index"
SNAPSHOT = ".producers"
BEGINNING = ".begin"
TEMPORARY = ".tmp"
CLEANED = ".cleaned"
SWAP = ".swap"
EPOCH_FILE = "leader-epoch"
START_FILE = "log-start"
CLEANER_FILE = "cleaner"
FLUSHED_FILE = "flushed"
WRITTEN_FILE = "written"
ABORTED_FILE = "aborted"
LATEST_OFFSET = 2**62  # that is believed: what follows it must fit, too


def log_path(folder: str, base_offset: int) -> str:
    return f"{folder}/{base_offset:020d}{LOG}"


def index_path(folder: str, base_offset: int) -> str:
    return f"{folder}/{base_offset:020d}{INDEX}"


def snapshot_path(folder: str, offset: int) -> str:
    return f"{folder}/{offset:020d}{SNAPSHOT}"


def beginning_path(folder: str, offset: int) -> str:
    """The file that says what the log is to begin anew with."""
    return f"{folder}/{offset:020d}{BEGINNING}"


def cleaned_path(path: str, end_offset: int, ending: str) -> str:
    """The file in which compaction writes what will replace every segment from the one in `path` up to `end_offset`."""
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
    if not (_is_offset(base) and _is_offset(end) and kind in ("log", "index")):
        return None
    return Swap(name, target, int(base), int(end), kind == "log")


def offsets_of(names: Iterable[str], ending: str) -> list[int]:
    """The numbers of all files with this ending, in order."""
    stems = (name.removesuffix(ending) for name in names if name.endswith(ending))
    return sorted(int(stem) for stem in stems if _is_offset(stem))


def _is_offset(stem: str) -> bool:
    """Whether an offset is written as it is here: what else stands in the folder is nobody's file."""
    return len(stem) == 20 and stem.isascii() and stem.isdigit() and int(stem) <= LATEST_OFFSET
