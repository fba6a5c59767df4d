"""`oncelog check` in the folder of a cluster: what brokers know to be safe is the same at each of them."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from oncelog.cli import main
from oncelog.clock import ManualClock
from oncelog.cluster.file import FileCluster
from oncelog.cluster.folder_lock import FolderLock
from oncelog.cluster.replica_comparing import check_cluster
from oncelog.log.disk import RealDisk
from tests.log.support import SMALL, open_log, put


def fill(folder: Path, broker: int, values: list[bytes], *, safe: int, cluster_id: str = "ours") -> None:
    below = folder / str(broker)
    file = FileCluster(RealDisk(), str(below), ManualClock(), node_id=broker, lease_lifetime_ms=60_000, is_member=True)
    file.join(cluster_id)
    file.close()
    log = open_log(RealDisk(), SMALL, replicated=True, folder=str(below / "orders-0"))
    log.begin_epoch(0)
    for value in values:
        put(log, value)
    log.advance_high_watermark(safe)
    log.close()


def damage(folder: Path) -> dict[str, list[str]]:
    return {checked.name: checked.damage for checked in check_cluster(RealDisk(), str(folder)) if checked.damage}


@pytest.mark.parametrize("safe", [2, 3])
def test_brokers_that_differ_below_what_is_safe_are_told(tmp_path: Path, safe: int) -> None:
    """Above it they may: it is mended when they meet."""
    fill(tmp_path, 1, [b"a", b"b", b"c", b"d"], safe=safe)
    fill(tmp_path, 2, [b"a", b"b", b"x"], safe=3)
    told = {"orders-0 of brokers 1, 2": ["brokers 1 and 2 have other records from offset 2 on"]}
    assert damage(tmp_path) == (told if safe == 3 else {})


def test_what_one_of_them_does_not_know_to_be_safe_is_not_compared(tmp_path: Path) -> None:
    fill(tmp_path, 1, [b"a", b"b"], safe=2)
    fill(tmp_path, 2, [b"a", b"b"], safe=2)
    fill(tmp_path, 3, [b"a"], safe=1)
    assert damage(tmp_path) == {}


@pytest.mark.parametrize("has_tree", [True, False], ids=["own tree", "ZooKeeper"])
def test_the_command_compares_the_brokers_of_a_whole_cluster(tmp_path: Path, has_tree: bool) -> None:
    fill(tmp_path, 1, [b"a"], safe=1)
    fill(tmp_path, 2, [b"x"], safe=1)
    if has_tree:
        (tmp_path / "tree").mkdir()
    result = CliRunner().invoke(main, ["check", "--data", str(tmp_path)])
    assert result.exit_code == 1
    assert "brokers 1 and 2 have other records from offset 0 on" in result.output


def test_servers_that_have_nothing_to_do_with_each_other_are_not_compared(tmp_path: Path) -> None:
    fill(tmp_path, 1, [b"a"], safe=1)
    fill(tmp_path, 2, [b"x"], safe=1, cluster_id="another")
    result = CliRunner().invoke(main, ["check", "--data", str(tmp_path)])
    assert result.exit_code == 2 and "is no data folder" in result.output


@pytest.mark.parametrize("has_tree", [True, False], ids=["own tree", "ZooKeeper"])
def test_no_broker_may_run_meanwhile(tmp_path: Path, has_tree: bool) -> None:
    for broker in (1, 2):
        fill(tmp_path, broker, [b"a"], safe=1)
    if has_tree:
        (tmp_path / "tree").mkdir()
    running = FolderLock(str(tmp_path / "2"))
    try:
        result = CliRunner().invoke(main, ["check", "--data", str(tmp_path)])
    finally:
        running.release()
    assert result.exit_code == 2 and "2 is in use by process" in result.output
