"""Brokers that are down, or have lost a part of what they had: what is made meanwhile, and who leads."""

import errno
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from oncelog.log.disk import RealDisk, RealFile
from oncelog.log.notes import Opened, write_opened
from oncelog.log.room import AGAIN_MS
from oncelog.records.header import Buffer
from oncelog.server.errors import ErrorCode
from oncelog.server.folders import owner_of
from tests.cluster.brokers import Brokers
from tests.raw import batch


async def without(cluster: Brokers, node: int) -> None:
    await cluster.kill(node)
    await cluster.until(lambda: all(node not in each.broker.cluster.members for each in cluster.brokers.values()))


async def create(cluster: Brokers, assignments: dict[int, list[int]], *, validate_only: bool = False) -> Any:
    assigned = [{"partition_index": index, "broker_ids": brokers} for index, brokers in assignments.items()]
    topic = {"name": "orders", "num_partitions": -1, "replication_factor": -1, "assignments": assigned, "configs": []}
    asked: dict[str, Any] = {"topics": [topic], "timeout": 20_000, "validate_only": validate_only}
    return (await cluster.ask(1, "create_topics", 5, **asked)).topics[0]


# Made while one of them is down


async def test_what_is_made_while_a_broker_is_down_gets_to_it_once_it_is_back(cluster: Brokers) -> None:
    await without(cluster, 2)
    assert await cluster.create() is ErrorCode.none
    states = cluster.tree.leaderships("orders")
    assert [sorted(state.replicas) for state in states] == [[1, 2, 3]] * 3
    assert [(sorted(state.in_sync), state.eligible) for state in states] == [([1, 3], ())] * 3
    assert {state.replicas[0] for state in states} == {1, 3}, "who is up is to lead"
    assert (await cluster.produce(batch([b"a"]))).error_code is ErrorCode.none
    await cluster.start(2)
    await cluster.settled()
    assert cluster.next_offset(2) == 1


async def test_what_groups_are_kept_in_has_all_its_copies_though_a_broker_is_down(cluster: Brokers) -> None:
    await without(cluster, 3)
    await cluster.ask(1, "find_coordinator", 3, key="billing", key_type=0)
    await cluster.until(lambda: cluster.tree.document("__consumer_offsets") is not None)
    (state,) = cluster.tree.leaderships("__consumer_offsets")
    assert sorted(state.replicas) == [1, 2, 3]


async def test_a_partition_may_be_given_to_a_broker_that_is_down_but_not_to_it_alone(cluster: Brokers) -> None:
    await without(cluster, 2)
    refused = await create(cluster, {0: [1, 2], 1: [2]}, validate_only=True)
    assert refused.error_code is ErrorCode.invalid_replica_assignment
    assert "previous partitions" in refused.error_message
    for validate_only in (True, False):
        refused = await create(cluster, {0: [1], 1: [2]}, validate_only=validate_only)
        assert refused.error_code is ErrorCode.invalid_replica_assignment
        assert refused.error_message.endswith("for partition 1 are down or stopping.")
    assert "no such broker" in (await create(cluster, {0: [1, 4]})).error_message
    made = await create(cluster, {0: [2, 1]})
    assert made.error_code is ErrorCode.none
    (state,) = cluster.tree.leaderships("orders")
    assert (state.replicas, state.leader, state.in_sync) == ((2, 1), 1, (1,))


async def test_more_copies_than_brokers_that_belong_to_the_cluster_are_refused(cluster: Brokers) -> None:
    await without(cluster, 2)
    topic = {"name": "orders", "num_partitions": 1, "replication_factor": 4, "assignments": [], "configs": []}
    asked: dict[str, Any] = {"topics": [topic], "timeout": 20_000, "validate_only": False}
    (refused,) = (await cluster.ask(1, "create_topics", 5, **asked)).topics
    assert refused.error_code is ErrorCode.invalid_replication_factor
    assert "only 3 brokers are registered" in refused.error_message


async def test_a_partition_that_is_moved_to_a_broker_that_is_down_gets_there_once_it_is_back(cluster: Brokers) -> None:
    await create(cluster, {0: [1, 2]})
    await cluster.settled()
    assert (await cluster.produce(batch([b"a"]))).error_code is ErrorCode.none
    await without(cluster, 3)
    assert await cluster.move("orders", 0, [1, 3], at=1) is ErrorCode.none
    assert await cluster.move("orders", 0, [1, 9], at=1) is ErrorCode.invalid_replica_assignment
    assert cluster.tree.leaderships("orders")[0].adding == (3,)
    await cluster.start(3)
    await cluster.until(lambda: cluster.tree.leaderships("orders")[0].replicas == (1, 3))
    await cluster.settled()
    assert cluster.next_offset(3) == 1


# Disks


async def test_a_leader_whose_disk_fails_gives_way_to_who_has_all_of_it(cluster: Brokers) -> None:
    await cluster.create(partitions=1)
    assert (await cluster.produce(batch([b"a"]))).error_code is ErrorCode.none
    before = cluster.leader("orders")
    cluster.known(before, "orders").partitions[0].log.go_offline("its disk fails")
    await cluster.until(lambda: cluster.leader("orders") not in (before, -1))
    await cluster.until(lambda: cluster.known(cluster.leader("orders"), "orders").partitions[0].leads)
    assert (await cluster.produce(batch([b"b"]))).error_code is ErrorCode.none
    assert before not in cluster.tree.leaderships("orders")[0].in_sync
    await cluster.kill(before)
    await cluster.start(before)
    await cluster.settled()
    assert cluster.next_offset(before) == 2


async def test_a_leader_whose_disk_is_full_gives_way_and_is_in_sync_again_once_it_has_room(
    cluster: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.create(partitions=1)
    assert (await cluster.produce(batch([b"a"]))).error_code is ErrorCode.none
    before = cluster.leader("orders")
    full = [str(cluster.folder / str(before) / "orders-0")]
    pwritev = RealFile.pwritev

    def refused(self: RealFile, buffers: Sequence[Buffer], position: int) -> int:
        if any(self.path.startswith(folder) for folder in full):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)
        return pwritev(self, buffers, position)

    monkeypatch.setattr(RealFile, "pwritev", refused)
    assert (await cluster.produce(batch([b"b"]), at=before)).error_code is ErrorCode.kafka_storage_error
    await cluster.until(lambda: cluster.leader("orders") not in (before, -1))
    await cluster.until(lambda: cluster.known(cluster.leader("orders"), "orders").partitions[0].leads)
    assert (await cluster.produce(batch([b"b"]))).error_code is ErrorCode.none
    assert before not in cluster.tree.leaderships("orders")[0].in_sync
    full.clear()
    cluster.clock.ms += AGAIN_MS
    await cluster.settled()
    assert cluster.next_offset(before) == 2


async def kept_by_the_one_that_ended_last(cluster: Brokers) -> int:
    """One record that all of them have. They are down now, and this one alone is in sync."""
    await cluster.create(partitions=1)
    assert (await cluster.produce(batch([b"a"]))).error_code is ErrorCode.none
    last = cluster.leader("orders")
    for node in sorted({1, 2, 3} - {last}):
        await cluster.kill(node)
        await cluster.settled()
    await cluster.kill(last)
    assert cluster.tree.leaderships("orders")[0].in_sync == (last,)
    return last


def _removed(folder: Path) -> None:
    shutil.rmtree(folder)


def _emptied(folder: Path) -> None:
    _removed(folder)
    folder.mkdir()


def _another_topics(folder: Path) -> None:
    write_opened(RealDisk(), str(folder), Opened(0, owner_of(UUID(int=9), 0)))


def _no_folder(folder: Path) -> None:
    _removed(folder)
    folder.touch()


@pytest.mark.parametrize("harm", [_removed, _emptied, _another_topics, _no_folder])
async def test_a_broker_that_lost_a_partitions_folder_leads_by_nothing_that_it_lacks(
    cluster: Brokers, harm: Callable[[Path], None]
) -> None:
    last = await kept_by_the_one_that_ended_last(cluster)
    harm(cluster.folder / str(last) / "orders-0")
    await cluster.start(last)
    other = max({1, 2, 3} - {last})  # which left last, so it is eligible
    await cluster.start(other)
    await cluster.until(lambda: cluster.leader("orders") == other)
    await cluster.until(lambda: cluster.known(other, "orders").partitions[0].leads)
    assert cluster.next_offset(other) == 1
