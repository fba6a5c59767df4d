"""A data folder is a broker's among others, or a server's that stands alone, and each refuses what is the other's."""

from pathlib import Path

import pytest

from oncelog.clock import ManualClock
from oncelog.cluster import FileCluster, UnfitFolder
from oncelog.cluster.folder_checking import check_folder
from oncelog.cluster.tree_cluster import TreeCluster
from oncelog.log.disk import RealDisk
from tests.cluster.tree_memory import MemoryTree

LIFETIME_MS = 86_400_000


def opened(folder: Path, *, is_member: bool) -> FileCluster:
    return FileCluster(
        RealDisk(), str(folder), ManualClock(), node_id=1, lease_lifetime_ms=LIFETIME_MS, is_member=is_member
    )


def used(folder: Path) -> None:
    opened(folder, is_member=True).close()
    (folder / "orders-0").mkdir()


@pytest.mark.parametrize(
    ("first", "said"), [(True, "a broker of a cluster"), (False, "a server that stands alone, and a broker")]
)
def test_a_folder_stays_what_it_was(tmp_path: Path, first: bool, said: str) -> None:
    opened(tmp_path, is_member=first).close()
    with pytest.raises(UnfitFolder, match=f"belongs to {said}"):
        opened(tmp_path, is_member=not first)
    opened(tmp_path, is_member=first).close()


def test_a_broker_that_was_killed_before_it_met_the_others_joins_them(tmp_path: Path) -> None:
    opened(tmp_path, is_member=True)
    again = opened(tmp_path, is_member=True)
    again.join("theirs")
    assert again.cluster_id == "theirs"


def test_records_of_another_cluster_do_not_join(tmp_path: Path) -> None:
    used(tmp_path)
    with pytest.raises(UnfitFolder, match="the brokers here are theirs"):
        opened(tmp_path, is_member=True).join("theirs")


async def test_what_was_agreed_on_is_not_begun_anew_over_records(tmp_path: Path) -> None:
    used(tmp_path)
    session = MemoryTree().session(ManualClock())
    await session.begin_session()
    cluster = TreeCluster(opened(tmp_path, is_member=True), session, ManualClock(), LIFETIME_MS)
    with pytest.raises(UnfitFolder, match="had agreed on is gone"):
        await cluster.agree()


def test_a_brokers_folder_needs_no_log_of_topics(tmp_path: Path) -> None:
    used(tmp_path)
    assert [(each.name, each.damage) for each in check_folder(RealDisk(), str(tmp_path))] == [
        ("server.meta", []),
        ("orders-0", []),
    ]
