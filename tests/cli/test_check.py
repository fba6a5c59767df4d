"""`oncelog check`: what it says about a data folder, and by which exit code."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncelog.embedded import Server
from tests.raw import RawConnection, batch

WHOLE, DAMAGED, NOT_CHECKED = 0, 1, 2


def check(folder: Path | str, *options: str) -> tuple[int, list[str]]:
    command = [sys.executable, "-m", "oncelog", "check", "--data", str(folder), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert "Traceback" not in done.stderr
    return done.returncode, (done.stdout + done.stderr).splitlines()


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    data = tmp_path / "data"
    with Server(data_dir=str(data)) as server, RawConnection(server.bootstrap_servers) as raw:
        raw.create_topic("orders", 2)
        for number in range(3):
            assert raw.produce("orders", 0, batch([b"%d" % number] * 5)).error_code == 0
    yield data


def flip(path: Path, position: int) -> None:
    found = bytearray(path.read_bytes())
    found[position] ^= 1
    path.write_bytes(found)


def test_a_whole_folder_is_told_place_by_place_and_not_changed(folder: Path) -> None:
    before = contents(folder)
    code, said = check(folder)
    assert code == WHOLE
    assert said == [
        "server.meta: whole",
        "__oncelog_metadata-0: whole, 1 records, offsets 0 to 1",
        "orders-0: whole, 15 records, offsets 0 to 15",
        "orders-1: whole, 0 records, offsets 0 to 0",
        said[-1],
    ]
    assert said[-1].startswith("16 records in ") and said[-1].endswith(": everything is whole")
    assert contents(folder) == before
    assert len(check(folder, "--quiet")[1]) == 1


def test_damage_is_told_where_it_is(folder: Path) -> None:
    flip(folder / "orders-0" / f"{0:020d}.log", 70)
    flip(folder / "server.meta", 5)
    before = contents(folder)
    code, said = check(folder, "--quiet")
    assert code == DAMAGED
    assert "server.meta: DAMAGED: " in said[0]
    assert said[1] == f"orders-0: DAMAGED: {0:020d}.log at byte 0: the CRC of the batch of offset 0 is wrong"
    assert said[-1].endswith("2 of 4 places DAMAGED")
    assert contents(folder) == before


def killed(folder: Path) -> Path:
    """As a server leaves it that is killed: three batches behind the recovery point. Its log."""
    for name in (folder / "orders-0").glob("*.producers"):
        name.unlink()
    return folder / "orders-0" / f"{0:020d}.log"


def test_a_start_and_a_check_agree_and_a_person_decides_what_is_cut(folder: Path) -> None:
    flip(killed(folder), 150)
    log = killed(folder).read_bytes()
    code, said = check(folder, "--quiet")
    assert code == DAMAGED and said[0].startswith("orders-0: DAMAGED: ")
    with Server(data_dir=str(folder)) as server:
        partition = server.broker.topics.partition("orders", 0)
        assert partition is not None and partition.log.offline is not None
        offline = partition.log.offline
    assert killed(folder).read_bytes() == log
    assert f"`oncelog check --data {folder} --cut orders-0:5`" in offline
    assert check(folder, "--cut", "orders-0:5") == (
        WHOLE,
        [f"orders-0: cut back to offset 5, {len(log) * 2 // 3} bytes are gone"],
    )
    assert check(folder)[0] == WHOLE
    with Server(data_dir=str(folder)) as server:
        partition = server.broker.topics.partition("orders", 0)
        assert partition is not None and (partition.log.offline, partition.log.next_offset) == (None, 5)


@pytest.mark.parametrize("given", ["orders-0", "orders-0:x", "orders-9:5", "../orders-0:5", ":5", "orders-0:3"])
def test_a_cut_that_makes_no_sense_is_refused(folder: Path, given: str) -> None:
    before = contents(folder)
    code, said = check(folder, "--cut", given)
    assert code != WHOLE and any("Error" in line for line in said)
    assert contents(folder) == before


def test_a_folder_that_is_missing_or_that_nobody_knows_is_told(folder: Path) -> None:
    (folder / "orders-1").rename(folder / "orders-7")
    code, said = check(folder)
    assert code == DAMAGED
    assert "orders-1: DAMAGED: the folder is missing" in said
    assert any(line.startswith("orders-7: note: no topic knows it") for line in said)


def test_damage_of_the_log_of_topics_is_told(folder: Path) -> None:
    flip(folder / "__oncelog_metadata-0" / f"{0:020d}.log", 80)
    code, said = check(folder)
    assert code == DAMAGED
    assert any(line.startswith("__oncelog_metadata-0: DAMAGED: ") for line in said)


def test_the_folder_of_a_server_that_runs_is_not_checked(tmp_path: Path) -> None:
    with Server(data_dir=str(tmp_path / "data")):
        code, said = check(tmp_path / "data")
    assert code == NOT_CHECKED
    assert "in use by process" in said[-1]


def test_what_is_no_folder_is_not_checked(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for given in (tmp_path / "file", tmp_path / "nowhere"):
        assert check(given)[0] == NOT_CHECKED


def test_a_copy_without_the_lock_is_checked(folder: Path) -> None:
    (folder / ".lock").unlink()
    assert check(folder)[0] == WHOLE
    assert not (folder / ".lock").exists()


def test_a_folder_in_which_no_server_was_is_not_checked(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    assert check(tmp_path) == (NOT_CHECKED, [f"Error: {tmp_path} is no data folder: it has no server.meta"])
    (tmp_path / "tree").mkdir()
    code, said = check(tmp_path)
    assert code == NOT_CHECKED and "no broker has a folder in it" in said[-1]


def test_partitions_without_the_servers_own_file_are_damage(folder: Path) -> None:
    (folder / "server.meta").unlink()
    code, said = check(folder, "--quiet")
    assert code == DAMAGED and said[0].startswith("server.meta: DAMAGED: ")


def backup(*arguments: Path | str) -> tuple[int, list[str]]:
    command = [sys.executable, "-m", "oncelog", "backup", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert "Traceback" not in done.stderr
    return done.returncode, (done.stdout + done.stderr).splitlines()


def test_a_backup_is_checked_and_served(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    with Server(data_dir=str(folder)):
        code, said = backup("--data", folder, copy)
    assert code == WHOLE and said[-1].endswith(f" bytes in 4 places of {folder} copied to {copy}")
    with Server(data_dir=str(copy)) as server, RawConnection(server.bootstrap_servers) as raw:
        assert raw.fetch("orders", 0, 0).high_watermark == 15
    assert backup("--data", folder, copy)[0] == NOT_CHECKED
    (folder / "secure").mkdir()
    code, said = backup("--data", folder, tmp_path / "secured")
    assert code == WHOLE and said[-1].startswith(f"Not copied: {folder / 'secure'}, ")
    (folder / "secure").rmdir()
    assert backup("--data", folder, folder / "inside")[0] == NOT_CHECKED
    flip(folder / "orders-0" / f"{0:020d}.log", 70)
    code, said = backup("--data", folder, tmp_path / "another")
    assert code == DAMAGED and "orders-0: DAMAGED: " in said[-1]
