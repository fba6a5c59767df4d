"""A folder of this machine, or what pyarrow or fsspec reach by a URL.

A file is seen whole or not at all. It is written under a hidden name on this machine; a local folder then gives it its
name, HDFS renames what was copied, and an object store takes it at once. Who comes second finds a file there.
"""

import os
import shutil
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from tempfile import gettempdir
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

UNFINISHED: Final = ".unfinished"
PIECE_BYTES: Final = 8 << 20
_RENAMES: Final = "hdfs"


class Unreachable(Exception):
    """A place that cannot be read or written, now or as it is written down; the text says why."""


class FilePlace:
    def __init__(self, url: str) -> None:
        self.url = url
        self._fsspec: Any = None
        try:
            self._files, self.root = self._found(url)
        except (OSError, ValueError, ImportError, pa.ArrowException) as error:
            raise Unreachable(f"{url} is no place for files: {error}") from error
        self._is_local = isinstance(self._files, fs.LocalFileSystem)
        self.scratch = self.root if self._is_local else gettempdir()

    def _found(self, url: str) -> tuple[Any, str]:
        if "://" not in url:
            return fs.LocalFileSystem(), os.path.abspath(url)
        try:
            found, root = fs.FileSystem.from_uri(url)
        except (ValueError, pa.ArrowException) as unknown:
            try:
                url_to_fs = import_module("fsspec.core").url_to_fs
            except ImportError:
                raise ValueError(f"{unknown}. What pyarrow does not know fsspec may: pip install fsspec") from unknown
            self._fsspec, root = url_to_fs(url)
            found = fs.PyFileSystem(fs.FSSpecHandler(self._fsspec))
        return found, root.rstrip("/")

    def where(self, name: str) -> str:
        return f"{self.url.rstrip('/')}/{name}"

    # --- on this machine

    def unfinished(self, owner: str) -> str:
        """Where a file may be written before it is finished. Leftovers are known by their owner."""
        os.makedirs(self.scratch, exist_ok=True)
        return os.path.join(self.scratch, f".{owner}.{uuid4().hex}{UNFINISHED}")

    def sweep(self, owner: str) -> None:
        """What a killed writer has left."""
        if self._is_local:
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
            self._upload(unfinished, path)
            return True
        finally:
            Path(unfinished).unlink(missing_ok=True)

    def _upload(self, unfinished: str, path: str) -> None:
        if self._fsspec is not None:
            self._fsspec.makedirs(os.path.dirname(path), exist_ok=True)
            self._fsspec.pipe_file(path, Path(unfinished).read_bytes())
            return
        self._files.create_dir(os.path.dirname(path))
        hidden = os.path.join(os.path.dirname(path), f".{uuid4().hex}{UNFINISHED}")
        target = hidden if self._files.type_name == _RENAMES else path
        with open(unfinished, "rb") as source, self._files.open_output_stream(target) as sink:
            shutil.copyfileobj(source, sink, PIECE_BYTES)
        if target != path:
            self._files.move(target, path)

    def mark(self, name: str) -> None:
        """An empty file."""
        unfinished = self.unfinished("mark")
        Path(unfinished).touch()
        self.publish(unfinished, name)

    def exists(self, names: list[str]) -> list[bool]:
        found = self._files.get_file_info([f"{self.root}/{name}" for name in names])
        return [each.type != fs.FileType.NotFound for each in found]

    def folders(self) -> list[str]:
        """Names of those at the root."""
        selected = fs.FileSelector(self.root, allow_not_found=True)
        return [each.base_name for each in self._files.get_file_info(selected) if each.type == fs.FileType.Directory]

    def rows(self, names: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
        """Of those files that are there."""
        found = {}
        for name, is_there in zip(names, self.exists([*names]), strict=True):
            if is_there:
                with self.open(name) as file:
                    found[name] = pq.ParquetFile(file).read().to_pylist()
        return found

    def open(self, name: str) -> Any:
        return self._files.open_input_file(f"{self.root}/{name}")


def put_in_place(unfinished: str, path: str) -> bool:
    """A link, not a rename: a rename puts itself in the place of what another process has just put there."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(unfinished, "rb") as file:
        os.fsync(file.fileno())
    try:
        os.link(unfinished, path)
    except FileExistsError:
        return False
    return True
