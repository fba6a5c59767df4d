"""A folder of this machine as the place of sealed batches, and Arrow files in it."""

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pytest

from oncelog.spark.sealed import tasks
from oncelog.spark.sealed.arrow_files import FEW_BYTES, ArrowFiles, joined
from oncelog.spark.sealed.local import LocalStorage
from oncelog.spark.sealed.manifest import Manifest, SealedError, SealedFile, folder_name

UNIQUE = "0" * 32


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(str(tmp_path / "sealed"))


def test_a_file_is_created_by_whoever_comes_first(storage: LocalStorage) -> None:
    assert storage.names() == [] and storage.read("0.json") is None
    assert storage.create("0.json", b"first")
    assert not storage.create("0.json", b"second")
    assert storage.read("0.json") == b"first"
    assert storage.names() == ["0.json"], "nothing unfinished is left"


def test_of_many_that_create_at_once_one_comes_first(storage: LocalStorage) -> None:
    barrier = threading.Barrier(8)
    won: list[int] = []

    def create(number: int) -> None:
        barrier.wait()
        if storage.create("0.json", b"%d" % number * 5000):
            won.append(number)

    threads = [threading.Thread(target=create, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert storage.read("0.json") == b"%d" % won[0] * 5000


KILLED_BEFORE_THE_LINK = """
import os, signal, sys
from oncelog.spark.sealed.local import LocalStorage
os.link = lambda *paths: os.kill(os.getpid(), signal.SIGKILL)
LocalStorage(sys.argv[1]).create("0.json", b"half")
"""


def test_a_file_whose_creator_is_killed_is_not_there(storage: LocalStorage) -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED_BEFORE_THE_LINK, storage.folder], check=False)
    assert killed.returncode == -9
    assert storage.read("0.json") is None
    (left,) = storage.names()
    assert left.startswith(".0.json.")
    assert storage.create("0.json", b"whole")


def test_an_unfinished_file_that_another_driver_removed_is_one_that_came_second(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link

    def overtaken(source: str, target: str) -> None:
        monkeypatch.setattr(os, "link", link)
        assert storage.create("query.json", b"theirs")
        os.unlink(source)
        link(source, target)

    monkeypatch.setattr(os, "link", overtaken)
    assert not storage.create("query.json", b"ours")
    assert storage.read("query.json") == b"theirs"


def test_a_path_without_hard_links_is_refused(storage: LocalStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(source: str, target: str) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(SealedError, match="needs a path where hard links are possible"):
        storage.create("0.json", b"")
    assert storage.names() == []


def test_a_full_or_read_only_folder_is_told_as_that(storage: LocalStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(file: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(SealedError, match=r"0\.json cannot be written: .*No space left") as told:
        storage.create("0.json", b"")
    assert "links" not in str(told.value) and storage.names() == []


def test_a_path_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    below = LocalStorage(str(tmp_path / "file" / "sealed"))
    with pytest.raises(SealedError, match="is a file, or lies in one; a sealed sink needs a folder of its own"):
        below.read("query.json")
    with pytest.raises(SealedError, match=r"path='.*file/sealed' cannot be made"):
        below.create("query.json", b"")


def test_files_and_folders_are_removed_once_or_twice(storage: LocalStorage) -> None:
    folder = Path(storage.where("1-a"))
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "file").write_text("x")
    storage.create("1.json", b"x")
    for _ in range(2):
        storage.remove("1-a")
        storage.remove("1.json")
    assert storage.names() == []


def test_a_path_that_is_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(SealedError, match="is a file, or lies in one; a sealed sink needs a folder of its own"):
        LocalStorage(str(tmp_path / "file")).names()


# --- Arrow files


def batches(*counts: int) -> list[pa.RecordBatch]:
    first = 0
    made = []
    for count in counts:
        values = [f"{number}".encode() for number in range(first, first + count)]
        made.append(pa.record_batch({"value": pa.array(values, pa.binary())}))
        first += count
    return made


def test_rows_are_read_as_they_were_written(tmp_path: Path) -> None:
    written = batches(3, 0, 5)
    file = tasks.write_file(str(tmp_path), 7, iter(written))
    assert file is not None and file.rows == 8 and file.name.startswith("00007-")
    assert file.size_bytes == (tmp_path / file.name).stat().st_size
    found = list(tasks.read_file(str(tmp_path / file.name), 8))
    assert pa.Table.from_batches(found) == pa.Table.from_batches(written)


def test_a_partition_without_rows_is_no_file(tmp_path: Path) -> None:
    assert tasks.write_file(str(tmp_path), 0, iter(batches(0, 0))) is None
    assert list(tmp_path.iterdir()) == []


def test_each_attempt_writes_a_file_of_its_own(tmp_path: Path) -> None:
    for _ in range(2):
        tasks.write_file(str(tmp_path), 0, iter(batches(1)))
    assert len(list(tmp_path.iterdir())) == 2


def test_a_file_with_other_rows_than_its_manifest_says_is_not_sent(tmp_path: Path) -> None:
    file = tasks.write_file(str(tmp_path), 0, iter(batches(3)))
    assert file is not None
    with pytest.raises(SealedError, match="holds 3 rows, and its manifest says 4: nothing of it was sent"):
        next(tasks.read_file(str(tmp_path / file.name), 4))


def written(folder: Path, *counts: int) -> tuple[SealedFile, ...]:
    files = [tasks.write_file(str(folder), at, iter(batches(count))) for at, count in enumerate(counts)]
    return tuple(file for file in files if file is not None)


def test_a_damaged_file_is_named_and_not_sent(tmp_path: Path) -> None:
    """As long as it was, as a power failure may leave it."""
    file = tasks.write_file(str(tmp_path), 0, iter(batches(3)))
    assert file is not None
    path = tmp_path / file.name
    whole = path.read_bytes()
    for damaged in (bytes(len(whole)), whole[:-40] + bytes(40)):
        path.write_bytes(damaged)
        with pytest.raises(SealedError, match=rf"{file.name} is damaged: .*Nothing of it was sent"):
            next(tasks.read_file(str(path), 3))


def test_few_rows_become_one_file_in_the_order_of_the_partitions(tmp_path: Path) -> None:
    (one,) = joined(str(tmp_path), written(tmp_path, 2, 0, 3))
    assert one.rows == 5
    found = [value for batch in tasks.read_file(str(tmp_path / one.name), 5) for value in batch.column(0).to_pylist()]
    assert found == [b"0", b"1", b"0", b"1", b"2"]


def test_many_rows_stay_in_a_file_for_each_partition(tmp_path: Path) -> None:
    files = written(tmp_path, 70_000, 70_000)
    assert sum(file.size_bytes for file in files) > FEW_BYTES
    assert joined(str(tmp_path), files) == files


@pytest.mark.parametrize(
    ("harm", "words"), [("remove", "is not there: the path must be one that all machines"), ("cut", "bytes, and the")]
)
def test_files_that_are_gone_or_cut_are_found_before_they_are_sent(
    storage: LocalStorage, harm: str, words: str
) -> None:
    folder = folder_name(0, UNIQUE)
    place = Path(storage.where(folder))
    place.mkdir(parents=True)
    files = written(place, 3, 4)
    manifest = Manifest(query="q", batch=0, folder=folder, layout="arrow", files=files)
    rows = ArrowFiles(storage)
    rows.check(manifest)
    path = place / files[1].name
    if harm == "remove":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(SealedError, match=words):
        rows.check(manifest)


def test_a_commit_that_lacks_a_task_is_no_commit(tmp_path: Path) -> None:
    writer = tasks.FileWriter(str(tmp_path))
    with pytest.raises(SealedError, match="1 of 2 tasks did not say which file they wrote"):
        writer.commit([tasks.FileMessage(0, None), None])
    assert list(tmp_path.iterdir()) == []


def test_the_files_that_count_are_those_of_the_commit_in_the_order_of_partitions(tmp_path: Path) -> None:
    first, second = written(tmp_path, 1, 2)
    writer = tasks.FileWriter(str(tmp_path))
    writer.commit([tasks.FileMessage(5, second), tasks.FileMessage(3, None), tasks.FileMessage(2, first)])
    assert ArrowFiles(LocalStorage(str(tmp_path.parent))).listed(tmp_path.name) == (first, second)
