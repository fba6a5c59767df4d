"""The cluster of one server: what it writes down survives, and no number is handed out twice."""

import json
from base64 import urlsafe_b64decode
from pathlib import Path
from typing import Any

import pytest

from oncelog.clock import ManualClock
from oncelog.cluster import DamagedFolder, FileCluster, UnfitFolder
from oncelog.log.disk import RealDisk
from oncelog.server.ports import Cluster, PidKind

DAY_MS = 86_400_000


def start(folder: Path, clock: ManualClock | None = None) -> FileCluster:
    return FileCluster(RealDisk(), str(folder), clock or ManualClock(), node_id=1, lease_lifetime_ms=DAY_MS)


def granted(cluster: FileCluster) -> int:
    return cluster.take_pids(PidKind.LEASED, 1).first_pid


def meta_of(folder: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((folder / "server.meta").read_text())
    return read


def change_meta(folder: Path, **values: object) -> None:
    """As a person does it, who takes the check sum out."""
    changed = meta_of(folder) | values
    del changed["crc32c"]
    (folder / "server.meta").write_text(json.dumps(changed))


def test_it_is_a_cluster_as_the_server_wants_one(tmp_path: Path) -> None:
    cluster: Cluster = start(tmp_path)
    assert cluster.node_id == 1


def test_the_cluster_id_is_a_uuid_as_kafka_writes_it_and_stays(tmp_path: Path) -> None:
    cluster_id = start(tmp_path).cluster_id
    assert len(cluster_id) == 22
    assert len(urlsafe_b64decode(cluster_id + "==")) == 16
    assert start(tmp_path).cluster_id == cluster_id
    assert start(tmp_path / "another").cluster_id != cluster_id


@pytest.mark.parametrize("name", ["server.meta", "server.meta.tmp"])
def test_what_it_writes_is_for_its_owner_alone_also_where_it_was_not(tmp_path: Path, name: str) -> None:
    """It holds the secret of bound pids, and the folder may be shown to a group."""
    start(tmp_path)
    meta = tmp_path / "server.meta"
    assert meta.stat().st_mode & 0o777 == 0o600
    (tmp_path / name).write_bytes(meta.read_bytes())  # and the other one is what a start that was killed has left
    (tmp_path / name).chmod(0o644)
    start(tmp_path)
    assert meta.stat().st_mode & 0o777 == 0o600


def test_every_start_opens_a_new_epoch(tmp_path: Path) -> None:
    assert [start(tmp_path).start_epoch for _ in range(5)] == [1, 2, 3, 4, 5]


def test_pids_go_on_where_they_were_whether_it_was_closed_or_killed(tmp_path: Path) -> None:
    killed = start(tmp_path)
    assert [killed.take_pids(PidKind.LEASED, 100).first_pid for _ in range(3)] == [1, 101, 201]
    assert [killed.take_pids(PidKind.KAFKA, 100).first_pid for _ in range(2)] == [2**32, 2**32 + 100]
    closed = start(tmp_path)
    assert closed.take_pids(PidKind.LEASED, 100).first_pid == 301
    closed.close()
    again = start(tmp_path)
    assert again.take_pids(PidKind.LEASED, 7).first_pid == 401
    assert again.take_pids(PidKind.LEASED, 1).first_pid == 408
    assert again.take_pids(PidKind.KAFKA, 1).first_pid == 2**32 + 200


def test_leased_pids_start_again_at_one_after_the_last_that_fits(tmp_path: Path) -> None:
    start(tmp_path).close()
    change_meta(tmp_path, next_pids={"leased": 2**32 - 150, "kafka": 2**32})
    cluster = start(tmp_path)
    assert cluster.take_pids(PidKind.LEASED, 100).first_pid == 2**32 - 150
    assert cluster.take_pids(PidKind.LEASED, 100).first_pid == 1
    assert cluster.take_pids(PidKind.LEASED, 100).first_pid == 101


def test_the_file_can_be_read_by_a_person(tmp_path: Path) -> None:
    cluster = start(tmp_path)
    cluster.take_pids(PidKind.LEASED, 100)
    text = (tmp_path / "server.meta").read_text()
    assert f'"cluster_id": "{cluster.cluster_id}"' in text
    assert '"leased": 101' in text
    assert meta_of(tmp_path)["version"] == 2


# What the folder says of itself


def test_a_folder_of_a_newer_oncelog_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    start(tmp_path).close()
    change_meta(tmp_path, version=3, something={"new": 1})
    before = (tmp_path / "server.meta").read_bytes()
    with pytest.raises(UnfitFolder, match=r"newer oncelog: its format is 3, and this one knows none above 2"):
        start(tmp_path)
    assert (tmp_path / "server.meta").read_bytes() == before


def test_a_folder_of_the_first_format_is_brought_up_to_date(tmp_path: Path) -> None:
    first = start(tmp_path)
    first.take_pids(PidKind.LEASED, 100)
    first.close()
    old = meta_of(tmp_path) | {"version": 1}
    del old["boot_id"], old["crc32c"]
    (tmp_path / "server.meta").write_text(json.dumps(old))
    again = start(tmp_path)
    assert (again.cluster_id, again.stayed_up) == (first.cluster_id, False)
    assert again.take_pids(PidKind.LEASED, 1).first_pid == 101
    assert meta_of(tmp_path)["version"] == 2


def test_a_folder_of_another_node_is_refused(tmp_path: Path) -> None:
    start(tmp_path).close()
    change_meta(tmp_path, node_id=5)
    with pytest.raises(UnfitFolder, match=r"belongs to node 5, and node\.id is 1\. Set node\.id=5"):
        start(tmp_path)


def booted(folder: Path, boot_id: str) -> FileCluster:
    return FileCluster(RealDisk(), str(folder), ManualClock(), node_id=1, lease_lifetime_ms=DAY_MS, boot_id=boot_id)


def test_it_knows_whether_the_machine_has_run_on_until_every_log_was_opened_once(tmp_path: Path) -> None:
    assert booted(tmp_path, "one").stayed_up
    assert booted(tmp_path, "one").stayed_up
    assert not booted(tmp_path, "two").stayed_up
    killed_while_it_opened_logs = booted(tmp_path, "two")
    assert not killed_while_it_opened_logs.stayed_up
    killed_while_it_opened_logs.recovered()
    assert booted(tmp_path, "two").stayed_up
    booted(tmp_path, "two").recovered()
    assert not booted(tmp_path, "").stayed_up
    booted(tmp_path, "").recovered()
    assert not booted(tmp_path, "").stayed_up


# Damage


def test_partitions_without_their_meta_file_are_not_started_on(tmp_path: Path) -> None:
    (tmp_path / "orders-0").mkdir()
    with pytest.raises(DamagedFolder, match=r"orders-0.*no server\.meta"):
        start(tmp_path)


@pytest.mark.parametrize(
    "contents",
    [
        "",
        "{",
        "[]",
        "null",
        "{}",
        '{"version": 2}',
        '{"version": 1, "cluster_id": "x", "start_epoch": 1}',
        "[" * 100_000,
    ],
)
def test_a_meta_file_that_cannot_be_read_stops_the_start_and_is_left_as_it_is(tmp_path: Path, contents: str) -> None:
    (tmp_path / "server.meta").write_text(contents)
    with pytest.raises(DamagedFolder, match=r"server\.meta"):
        start(tmp_path)
    assert (tmp_path / "server.meta").read_text() == contents


@pytest.mark.parametrize(
    "values",
    [
        {"next_pids": {"leased": 0, "kafka": 2**32}},
        {"next_pids": {"leased": 1, "kafka": 5}},
        {"next_pids": {"leased": "1", "kafka": 2**32}},
        {"start_epoch": -1},
        {"cluster_id": ""},
        {"cluster_id": 5},
        {"lease_periods": [{"first_pid": 5, "end_pid": 5, "age_ms": 0}]},
        {"lease_periods": [{"first_pid": 5, "end_pid": 6, "age_ms": -1}]},
        {"lease_periods": 3},
        {"written_wall_ms": None},
    ],
)
def test_impossible_values_stop_the_start(tmp_path: Path, values: dict[str, object]) -> None:
    start(tmp_path).close()
    change_meta(tmp_path, **values)
    with pytest.raises(DamagedFolder):
        start(tmp_path)


def test_no_damage_of_the_meta_file_changes_what_is_known(tmp_path: Path) -> None:
    cluster = start(tmp_path)
    cluster.take_pids(PidKind.LEASED, 100)
    cluster.take_pids(PidKind.KAFKA, 100)
    cluster.close()
    path = tmp_path / "server.meta"
    written = path.read_bytes()
    for position in range(len(written)):
        for bit in range(8):
            damaged = bytearray(written)
            damaged[position] ^= 1 << bit
            path.write_bytes(damaged)
            try:
                again = start(tmp_path)
            except DamagedFolder:
                continue  # a blank between two values may become another one
            assert again.cluster_id == cluster.cluster_id
            assert again.start_epoch == cluster.start_epoch + 1
            assert again.take_pids(PidKind.LEASED, 1).first_pid == 101
            assert again.take_pids(PidKind.KAFKA, 1).first_pid == 2**32 + 100


# The ages of leases


def restarted(folder: Path, wall_ms: int, monotonic_ms: int = 0) -> tuple[FileCluster, ManualClock]:
    clock = ManualClock(wall_ms, monotonic_ms)
    return start(folder, clock), clock


def test_a_lease_outlives_a_restart_and_ages_by_the_wall_clock_meanwhile(tmp_path: Path) -> None:
    clock = ManualClock(monotonic_ms=5 * DAY_MS)
    cluster = start(tmp_path, clock)
    pid = granted(cluster)
    clock.advance(DAY_MS // 2)
    cluster.close()

    cluster, later = restarted(tmp_path, clock.now().wall_ms + DAY_MS)
    assert cluster.may_be_new(pid, later.now())
    assert cluster.may_be_new(pid, later.advance(DAY_MS // 2 - 1))
    assert not cluster.may_be_new(pid, later.advance(1))


def test_a_lease_outlives_a_kill_too(tmp_path: Path) -> None:
    clock = ManualClock()
    pid = granted(start(tmp_path, clock))
    cluster, later = restarted(tmp_path, clock.now().wall_ms + DAY_MS)
    assert cluster.may_be_new(pid, later.now())
    assert not cluster.may_be_new(pid, later.advance(DAY_MS))


def test_a_wall_clock_set_back_while_nobody_ran_makes_no_lease_younger(tmp_path: Path) -> None:
    clock = ManualClock()
    pid = granted(start(tmp_path, clock))
    cluster, later = restarted(tmp_path, clock.now().wall_ms - 1)
    assert not cluster.may_be_new(pid, later.now())
    fresh = granted(cluster)
    assert fresh > pid
    assert cluster.may_be_new(fresh, later.now())


def test_a_wall_clock_that_is_set_while_it_runs_does_not_matter(tmp_path: Path) -> None:
    clock = ManualClock(wall_ms=1_700_000_000_000)
    cluster = start(tmp_path, clock)
    pid = granted(cluster)
    clock.advance(DAY_MS)
    set_back = clock.set_wall(1_600_000_000_000)
    cluster.take_pids(PidKind.LEASED, 100)
    cluster, later = restarted(tmp_path, set_back.wall_ms)
    assert cluster.may_be_new(pid, later.advance(DAY_MS - 1))
    assert not cluster.may_be_new(pid, later.advance(1))


def test_leases_from_before_two_lifetimes_are_not_kept_in_the_file(tmp_path: Path) -> None:
    clock = ManualClock()
    cluster = start(tmp_path, clock)
    for _ in range(500):
        cluster.take_pids(PidKind.LEASED, 100)
        clock.advance(DAY_MS // 24)
    assert len(meta_of(tmp_path)["lease_periods"]) <= 49


def test_that_records_are_lacking_is_noted_until_they_are_there(tmp_path: Path) -> None:
    first = booted(tmp_path, "a")
    first.note_lack()
    first.close()
    again = booted(tmp_path, "a")
    assert (again.lacks_records, again.stayed_up) == (True, False)
    again.recovered()
    again.close()
    last = booted(tmp_path, "a")
    assert (last.lacks_records, last.stayed_up) == (False, True)
