"""Files of flows in stores that are not of this machine: what each of them does otherwise, and what is asked of it."""

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from pyarrow import fs

from oncelog.runner.storing.place import FilePlace, Unreachable
from oncelog.runner.storing.writing import Differs
from tests.runner.test_files import write

NAME = "hour=1/s-0-0-3.parquet"
MEMORY = "fsspec.implementations.memory.MemoryFileSystem"


def rename(files: Any, before: str, after: str) -> None:
    import_module("fsspec").AbstractFileSystem.mv(files, before, after)


def rename_as_webhdfs(files: Any, before: str, after: str) -> None:
    """Not over what is there, and without a word."""
    if not files.exists(after):
        rename(files, before, after)


def test_what_was_killed_before_its_rename_leaves_nothing_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(files: Any, before: str, after: str) -> None:
        raise OSError("killed")

    place = FilePlace(f"memory://{uuid4().hex}")
    monkeypatch.setattr(f"{MEMORY}.mv", killed)
    with pytest.raises(Unreachable, match="killed"):
        write(place, NAME, [3]).finish({}, 1)
    (left,) = place.files("hour=1")
    assert left.startswith(f"hour=1/.{NAME.removeprefix('hour=1/')}.")
    monkeypatch.setattr(f"{MEMORY}.mv", rename)
    write(place, NAME, [3]).finish({}, 1)
    assert place.files("hour=1") == [NAME]


def test_a_rename_that_is_refused_without_a_word_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    place = FilePlace(f"memory://{uuid4().hex}")
    monkeypatch.setattr(f"{MEMORY}.mv", rename_as_webhdfs)
    write(place, NAME, [3]).finish({"oncelog.flow": "f"}, 1)
    monkeypatch.setattr(place, "exists", lambda names: [False])  # the other one came behind this look
    with pytest.raises(Differs, match="is there already with 3 rows"):
        write(place, NAME, [4]).finish({"oncelog.flow": "f"}, 1)
    assert place.files("hour=1") == [NAME]


def test_a_copy_that_was_taken_away_is_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """By who writes the same file at the same time, and takes it for what was left by a killed one."""
    place = FilePlace(f"memory://{uuid4().hex}")
    monkeypatch.setattr(f"{MEMORY}.mv", lambda files, before, after: files.rm(before))
    with pytest.raises(Unreachable, match="taken away while it was written"):
        write(place, NAME, [3]).finish({}, 1)
    assert place.files("hour=1") == []


def test_what_says_overwrite_and_not_mode_does_not_write_over_either(monkeypatch: pytest.MonkeyPatch) -> None:
    """adlfs."""
    memory = import_module("fsspec.implementations.memory").MemoryFileSystem
    put = memory.put_file

    def put_file(files: Any, local: str, path: str, overwrite: bool = True, **how: object) -> None:
        if not overwrite and files.exists(path):
            raise FileExistsError(path)
        put(files, local, path)

    place = FilePlace(f"memory://{uuid4().hex}")
    monkeypatch.setattr(f"{MEMORY}.put_file", put_file)
    write(place, NAME, [3]).finish({"oncelog.flow": "f"}, 1)
    monkeypatch.setattr(place, "exists", lambda names: [False])
    with pytest.raises(Differs, match="is there already with 3 rows"):
        write(place, NAME, [4]).finish({"oncelog.flow": "f"}, 1)


def test_what_others_have_written_is_seen_though_fsspec_remembers_what_it_listed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    memory = import_module("fsspec.implementations.memory").MemoryFileSystem
    look, listed = memory.find, dict[str, Any]()

    def remembered(files: Any, path: str, **how: object) -> Any:
        if path not in listed:
            listed[path] = look(files, path, **how)
        return listed[path]

    monkeypatch.setattr(f"{MEMORY}.find", remembered)
    monkeypatch.setattr(f"{MEMORY}.invalidate_cache", lambda files, path=None: listed.clear())
    root = uuid4().hex
    place, other = FilePlace(f"memory://{root}"), memory()
    for count in (1, 2):
        remains = dict(listed)
        other.pipe_file(f"/{root}/hour={count}/x", b"")
        listed |= remains  # in a process of its own
        assert len(place.folders()) == count


class Store:
    """A folder of this machine in the place of what pyarrow reaches elsewhere."""

    def __init__(self, type_name: str) -> None:
        self.type_name = type_name
        self._files = fs.LocalFileSystem()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)


@pytest.fixture
def stands_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], FilePlace]:
    def place(type_name: str, folder: str) -> FilePlace:
        names = {name: getattr(fs, name) for name in ("LocalFileSystem", "FileSelector", "FileType")}
        found = SimpleNamespace(from_uri=lambda url: (Store(type_name), folder))
        monkeypatch.setattr("oncelog.runner.storing.place.fs", SimpleNamespace(FileSystem=found, **names))
        return FilePlace(f"{type_name}://lake")

    monkeypatch.chdir(tmp_path)
    return place


@pytest.mark.parametrize("type_name", ["gcs", "hdfs"])
def test_a_folder_is_made_where_else_it_would_not_be_there(
    stands_for: Callable[[str, str], FilePlace], type_name: str
) -> None:
    """In Google's store files would be there without it, but no hour would ever be complete."""
    place = stands_for(type_name, "lake")
    write(place, NAME, [3]).finish({"oncelog.flow": "f"}, 1)
    assert place.folders() == ["hour=1"] and place.files("hour=1") == [NAME]
    with pytest.raises(Differs, match="is there already with 3 rows"):
        write(place, NAME, [4]).finish({"oncelog.flow": "f"}, 1)


def test_a_bucket_is_not_made(stands_for: Callable[[str, str], FilePlace]) -> None:
    place = stands_for("gcs", "lake/orders")
    with pytest.raises(Unreachable, match=r"^gcs://lake is no place for files: .*there is no such bucket: 'lake'$"):
        place.begin()
    Path("lake").mkdir()
    assert place.begin() is place


def test_azure_is_not_written_by_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """It shows a file as soon as it is begun, empty."""
    with pytest.raises(Unreachable, match=r"^abfs://lake/orders is no place for files: .*adlfs"):
        FilePlace("abfs://lake/orders")
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(Unreachable, match=r"is seen before it is whole\. .*pip install adlfs$"):
        FilePlace("abfss://lake@account.dfs.core.windows.net/orders")


def test_hdfs_without_its_library_is_refused_in_one_line() -> None:
    with pytest.raises(Unreachable, match=r"^hdfs://127.0.0.1:1/lake is no place for files: .*write webhdfs://\S+$"):
        FilePlace("hdfs://127.0.0.1:1/lake")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("memory://me:secret@lake/a?endpoint_override=there", "memory://lake/a"),
        ("memory://account:ab/c+d/ef==@lake/a", "memory://lake/a"),  # a key of Azure's, as it is copied
        ("memory://lake@account.example/a", "memory://lake@account.example/a"),
        ("memory://me@host:9870/a@b", "memory://me@host:9870/a@b"),
    ],
)
def test_keys_in_a_url_are_not_shown(url: str, shown: str) -> None:
    assert FilePlace(url).where("x") == f"{shown}/x"
