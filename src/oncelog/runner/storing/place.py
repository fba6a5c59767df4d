"""A folder of this machine, or what pyarrow or fsspec reach by a URL.

A file is seen whole or not at all. It is written under a hidden name on this machine; a local folder then gives it its
name, an object store takes it at once, and what can rename (HDFS, SFTP) renames what was copied. Who comes second finds
a file there. What others have done there since the last look is never taken from a cache.
"""

import errno
import os
import shutil
from collections.abc import Sequence
from importlib import import_module
from inspect import signature
from pathlib import Path
from tempfile import gettempdir
from typing import Any, Final
from uuid import uuid4
from zlib import crc32

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from oncelog.runner.layout import without_secrets

UNFINISHED: Final = ".unfinished"
PIECE_BYTES: Final = 8 << 20
_REMEDIES: Final = {
    errno.ENOSPC: "Make room there",
    errno.EDQUOT: "Make room there",
    errno.EACCES: "Let this process write there",
    errno.EPERM: "Let this process write there",
    errno.EROFS: "Let this process write there",
}
_RENAMES: Final = "hdfs"  # of those that pyarrow knows, and are not of this machine
_WITH_FOLDERS: Final = "gcs"  # an object store whose folders pyarrow lists only where they were made
_EARLY: Final = ("abfs:", "abfss:")  # where pyarrow shows an empty file while it is written
_NO_LIBHDFS: Final = ". Where Java or Hadoop's libhdfs is not installed, write webhdfs://USER@HOST:PORT/..."


class Unreachable(OSError):
    """A place that cannot be read or written, now or as it is written down; the text says why."""


def told(error: Exception) -> str:
    """The error in words, and what to do where that is known. Of many lines the first one: the others say where it was
    looked."""
    remedy = _REMEDIES.get(getattr(error, "errno", None) or 0)
    words = f"{error}".partition("\n")[0] or type(error).__name__
    return words if remedy is None else f"{words}. {remedy}"


class FilePlace:
    def __init__(self, url: str) -> None:
        self.shown = without_secrets(url)
        self._fsspec: Any = None
        self.failures: tuple[type[Exception], ...] = (OSError, pa.ArrowException)  # that may pass
        try:
            self._files, self.root = self._found(url)
            self._is_local = isinstance(self._files, fs.LocalFileSystem)
            self.scratch = self.root if self._is_local else _own_folder(url)
        except (*self.failures, ValueError, ImportError) as error:
            raise self._refused(error, _NO_LIBHDFS if url.startswith(f"{_RENAMES}:") else "") from error

    def _refused(self, error: Exception, remedy: str = "") -> "Unreachable":
        return Unreachable(f"{self.shown} is no place for files: {told(error)}{remedy}")

    def begin(self) -> "FilePlace":
        """Refused where it cannot be read now, or a folder of this machine cannot be written."""
        try:
            self._files.get_file_info(self.root)
            self._find_bucket()
            probe = Path(self.unfinished("begin"))
            probe.touch()
            probe.unlink()
        except self.failures as error:
            raise self._refused(error) from error
        return self

    def _find_bucket(self) -> None:
        """Look for the bucket first: with a folder, pyarrow would make one of Google's too, by whatever name was
        mistyped."""
        if not self._is_local and self._files.type_name == _WITH_FOLDERS:
            bucket = self.root.partition("/")[0]
            if not self._there([bucket])[0]:
                raise FileNotFoundError(errno.ENOENT, "there is no such bucket", bucket)

    def _found(self, url: str) -> tuple[Any, str]:
        if "://" not in url:
            return fs.LocalFileSystem(), os.path.abspath(url)
        is_early = url.startswith(_EARLY)
        try:
            if is_early:
                raise ValueError("what pyarrow writes there is seen before it is whole")
            found, root = fs.FileSystem.from_uri(url)
        except (ValueError, pa.ArrowException) as unknown:
            try:
                url_to_fs = import_module("fsspec.core").url_to_fs
            except ImportError:
                package = "adlfs" if is_early else "fsspec"
                raise ValueError(f"{unknown}. What pyarrow cannot do fsspec may: pip install {package}") from unknown
            self._fsspec, root = url_to_fs(url)
            self.failures = (Exception,)  # of whatever library it has found
            found = fs.PyFileSystem(fs.FSSpecHandler(self._fsspec))
        return found, root.rstrip("/")

    def where(self, name: str) -> str:
        return f"{self.shown.rstrip('/')}/{name}"

    # --- on this machine

    def unfinished(self, owner: str) -> str:
        """A place where a file may be written before it is finished. Leftovers are known by their owner."""
        os.makedirs(self.scratch, exist_ok=True)
        return os.path.join(self.scratch, f".{owner}.{uuid4().hex}{UNFINISHED}")

    def sweep(self, owner: str) -> None:
        """Remove the unfinished files that a killed writer has left."""
        for path in Path(self.scratch).glob(f".{owner}.*{UNFINISHED}"):
            path.unlink(missing_ok=True)

    # --- there

    def publish(self, unfinished: str, name: str) -> bool:
        """False where one of this name stands already. What was unfinished is gone then."""
        path = f"{self.root}/{name}"
        try:
            if self._is_local:
                return put_in_place(unfinished, path)
            if self.exists([name])[0]:
                return False
            if self._can_rename():
                return self._rename(unfinished, path)
            if self._fsspec is not None:
                return _put(self._fsspec, unfinished, path)
            if self._files.type_name == _WITH_FOLDERS:
                self._files.create_dir(os.path.dirname(path))
            self._copy(unfinished, path)
            return True
        finally:
            Path(unfinished).unlink(missing_ok=True)

    def _can_rename(self) -> bool:
        if self._fsspec is None:
            return bool(self._files.type_name == _RENAMES)
        return type(self._fsspec).mv is not import_module("fsspec.spec").AbstractFileSystem.mv

    def _copy(self, unfinished: str, path: str) -> None:
        with open(unfinished, "rb") as source, self._files.open_output_stream(path) as sink:
            shutil.copyfileobj(source, sink, PIECE_BYTES)

    def _rename(self, unfinished: str, path: str) -> bool:
        """Rename by copying. A writer killed between copy and rename leaves a copy: it goes with the next one of its
        name."""
        folder, name = os.path.split(path)
        hidden = f".{name}."
        self._files.create_dir(folder)
        for each in self._infos(folder):
            if each.base_name.startswith(hidden) and each.base_name.endswith(UNFINISHED):
                self._files.delete_file(each.path)
        copied = f"{folder}/{hidden}{uuid4().hex}{UNFINISHED}"
        self._copy(unfinished, copied)
        (self._fsspec.mv if self._fsspec is not None else self._files.move)(copied, path)
        # HDFS does not rename over what is there, nor what is not there any more, and WebHDFS does not say so.
        is_copied, is_there = self._there([copied, path])
        if is_copied:
            self._files.delete_file(copied)
        elif not is_there:
            raise FileNotFoundError(errno.ENOENT, "taken away while it was written", copied)
        return not is_copied

    def mark(self, name: str) -> None:
        """An empty file."""
        unfinished = self.unfinished("mark")
        Path(unfinished).touch()
        self.publish(unfinished, name)

    def exists(self, names: list[str]) -> list[bool]:
        return self._there([f"{self.root}/{name}" for name in names])

    def _there(self, paths: list[str]) -> list[bool]:
        return [each.type != fs.FileType.NotFound for each in self._now().get_file_info(paths)]

    def _now(self) -> Any:
        """The files as they are: fsspec remembers what it has listed, and others write there too."""
        if self._fsspec is not None:
            self._fsspec.invalidate_cache()
        return self._files

    def folders(self) -> list[str]:
        """Names of those at the root."""
        return [each.base_name for each in self._infos(self.root) if each.type == fs.FileType.Directory]

    def files(self, folder: str) -> list[str]:
        found = self._infos(f"{self.root}/{folder}")
        return [f"{folder}/{each.base_name}" for each in found if each.type == fs.FileType.File]

    def _infos(self, path: str) -> Any:
        return self._now().get_file_info(fs.FileSelector(path, allow_not_found=True))

    def rows(self, names: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
        """The rows of those files that are there."""
        found = {}
        for name, is_there in zip(names, self.exists([*names]), strict=True):
            if is_there:
                with self.open(name) as file:
                    found[name] = pq.ParquetFile(file).read().to_pylist()
        return found

    def open(self, name: str) -> Any:
        return self._now().open_input_file(f"{self.root}/{name}")


def _own_folder(url: str) -> str:
    """A folder of this machine for what goes elsewhere: others of the same place find it again."""
    user = os.getuid()
    folder = os.path.join(gettempdir(), f"oncelog-{user}-{crc32(url.encode()):08x}")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    if os.stat(folder, follow_symlinks=False).st_uid != user:
        raise PermissionError(errno.EACCES, "somebody else's", folder)
    return folder


def _put(files: Any, unfinished: str, path: str) -> bool:
    """Put a file into an object store: an object is there when all of it is."""
    known = signature(files.put_file).parameters
    how = {"mode": "create"} if "mode" in known else {"overwrite": False} if "overwrite" in known else {}
    try:
        files.put_file(unfinished, path, **how)
    except FileExistsError:
        return False
    return True


def put_in_place(unfinished: str, path: str) -> bool:
    """A link, not a rename: a rename puts itself in the place of what another process has just put there. Its name is
    on the disk before anything is committed that relies on it; who was first may have been killed before that."""
    folder, is_first = os.path.dirname(path), True
    os.makedirs(folder, exist_ok=True)
    _sync(unfinished)
    try:
        os.link(unfinished, path)
    except FileExistsError:
        is_first = False
    _sync(folder)
    _sync(os.path.dirname(folder))
    return is_first


def _sync(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
