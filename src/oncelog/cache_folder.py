"""The folder in which this user keeps what can be made anew: compiled loops, an archive of Spark's classes."""

import os
from pathlib import Path


class NoCacheFolder(OSError):
    """There is no cache folder; the text says why."""


def cache_folder(said: str | None = None) -> Path:
    """Absolute: what is loaded from it must not come from whatever folder a program happens to run in. Where there is
    neither HOME nor an account, `~` stays as it is."""
    own = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "oncelog")
    folder = Path(said or own)
    if not folder.is_absolute():
        raise NoCacheFolder(f"the cache folder {folder} is not absolute: set XDG_CACHE_HOME to one that is")
    return folder


def make_cache_folder(folder: Path) -> None:
    """Make the folder. Whatever the umask is, nobody else may write into it."""
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
