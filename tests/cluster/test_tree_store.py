"""What the brokers agree on survives a kill and a power failure: all of a change or nothing of it, in order."""

import asyncio
import errno
from collections.abc import Mapping
from functools import partial
from itertools import count

import pytest

from oncelog.clock import ManualClock
from oncelog.cluster.tree import (
    ABSENT,
    MOST_NODES,
    MOST_TREE_BYTES,
    Change,
    Node,
    Outdated,
    Put,
    PutEphemeral,
    Refused,
    Remove,
    Unsure,
)
from oncelog.cluster.tree_store import DamagedTree, TreeStore
from tests.log.memory_disk import Died, MemoryDisk
from tests.log.support import seed

State = Mapping[str, Node]
SESSION = 7
A, B, LIVE = "/topics/a", "/topics/b", "/live/1"


def opened(disk: MemoryDisk) -> TreeStore:
    return TreeStore.open(disk, "data/tree", ManualClock())


def state_of(store: TreeStore) -> State:
    return {path: stored.node for path, stored in store.nodes.items()}


async def change(store: TreeStore, *changes: Change, session: int = SESSION) -> None:
    await store.change(changes, session, lambda: True)


async def test_a_restart_finds_every_node_as_it_was_with_its_session() -> None:
    disk = MemoryDisk()
    store = opened(disk)
    await change(store, Put(A, b"1", ABSENT), PutEphemeral(LIVE, b""), Put(B, b"", ABSENT))
    await change(store, Put(A, b"2", 0), Remove(B, 0))
    before = state_of(store)
    assert before == {A: Node(b"2", 1), LIVE: Node(b"", 0)}
    again = opened(disk.crash(keep_all=True))
    assert state_of(again) == before
    assert again.sessions == {SESSION}
    await again.end(SESSION)
    assert state_of(again) == {A: Node(b"2", 1)}
    await again.close()


async def test_many_changes_share_a_flush_and_none_is_seen_before_it() -> None:
    disk = MemoryDisk()
    store = opened(disk)
    await change(store, Put(A, b"", ABSENT))
    seen: list[int] = []
    store.on_written = lambda writes: seen.append(len(writes))
    before = disk.operations
    answers = [store.change([Put(f"/topics/{n}", b"", ABSENT)], SESSION, lambda: True) for n in range(500)]
    again = store.change([Put("/topics/7", b"", ABSENT)], SESSION, lambda: True)
    assert state_of(store) == {A: Node(b"", 0)}
    await asyncio.gather(*answers)
    with pytest.raises(Outdated):
        await again
    assert seen == [500]
    assert disk.operations - before < 10
    await store.close()


def versions(disk: MemoryDisk, told: list[State]) -> None:
    """A life of many changes, each of two nodes that say the same. `told` is what was answered, in order."""

    async def live() -> None:
        store = opened(disk)
        at = {path: stored.node.version for path, stored in store.nodes.items()}
        told.append(state_of(store))
        for number in range(12):
            value = b"%d" % number * 40_000
            changes: list[Change] = [Put(path, value, at.get(path, ABSENT)) for path in (A, B)]
            if number % 4 == 0:
                changes.append(Put("/gone/x", value[:5], ABSENT))
            if number % 4 == 2:
                changes.append(Remove("/gone/x", 0))
            await change(store, *changes)
            at = {path: stored.node.version for path, stored in store.nodes.items()}
            told.append(state_of(store))
        await store.close()

    asyncio.run(live())


@pytest.mark.parametrize("keep_all", [True, False], ids=["kill", "power"])
def test_after_a_crash_at_any_step_each_change_is_there_or_not_and_none_that_was_answered_is_lost(
    keep_all: bool,
) -> None:
    everything: list[State] = []
    versions(MemoryDisk(), everything)
    for step in count():
        disk = MemoryDisk(seed() * 1000 + step)
        disk.die_at(step)
        told: list[State] = []
        try:
            versions(disk, told)
        except Died:
            pass
        else:
            break
        found = asyncio.run(read_back(disk.crash(keep_all=keep_all)))
        may_be = everything[max(len(told) - 1, 0) : len(told) + 1]
        assert found in may_be, f"step {step} of {disk.trace[-1]}, seed {seed()}"
    assert step > 30


async def read_back(disk: MemoryDisk) -> State:
    store = opened(disk)
    found = state_of(store)
    await store.close()
    return found


async def test_old_versions_are_compacted_away() -> None:
    disk = MemoryDisk()
    store = opened(disk)
    await change(store, Put(B, b"kept", ABSENT))
    for version in range(60):
        await change(store, Put(A, bytes(900_000), version - 1))
    before = state_of(store)
    await store.close()
    size_bytes = sum(disk.size(f"data/tree/{name}") for name in disk.listdir("data/tree"))
    assert size_bytes < 20_000_000
    assert await read_back(disk) == before


async def test_what_a_flush_does_not_bring_to_the_disk_is_unsure_and_nothing_builds_on_it() -> None:
    disk = MemoryDisk()
    store = opened(disk)
    await change(store, Put(A, b"", ABSENT))
    disk.fail("fdatasync", errno.EIO, times=1)
    with pytest.raises(Unsure):
        await change(store, Put(A, b"x", 0))
    assert "cannot be brought to the disk" in store.failure
    assert state_of(store) == {A: Node(b"", 0)}
    with pytest.raises(Unsure):
        await change(store, Put(B, b"y", ABSENT))
    await store.close()


async def test_nobody_waits_for_what_went_wrong_in_a_way_that_nobody_expected() -> None:
    store = opened(MemoryDisk())

    def broken(writes: object) -> None:
        raise ZeroDivisionError

    store.on_written = broken
    with pytest.raises(ZeroDivisionError):
        await change(store, Put(A, b"", ABSENT))
    assert store.failure
    with pytest.raises(Unsure):
        await change(store, Put(B, b"", ABSENT))


async def test_a_full_disk_refuses_and_goes_on_once_there_is_room() -> None:
    disk = MemoryDisk()
    store = opened(disk)
    await change(store, Put(A, b"", ABSENT))
    disk.fail("pwritev", errno.ENOSPC, times=1)
    with pytest.raises(Unsure):
        await change(store, Put(A, b"x", 0), Put(B, b"", ABSENT))
    await change(store, Put(A, b"y", 0))
    assert state_of(store) == {A: Node(b"y", 1)}
    await store.close()
    assert await read_back(disk) == {A: Node(b"y", 1)}


async def test_a_damaged_tree_does_not_start_and_says_what_to_do() -> None:
    disk = MemoryDisk()
    store = opened(disk)
    await change(store, Put(A, b"x" * 1000, ABSENT))
    await change(store, Put(A, b"y", 0))
    await store.close()
    (path,) = [f"data/tree/{name}" for name in disk.listdir("data/tree") if name.endswith(".log")]
    disk.flip(path, 500)
    with pytest.raises(DamagedTree, match=r"Restore the files in data/tree from a copy"):
        opened(disk)


async def test_the_number_of_nodes_and_their_size_have_bounds() -> None:
    disk = MemoryDisk()
    store = opened(disk)
    names = iter(range(MOST_NODES + 1))
    for _ in range(MOST_NODES // 1000):
        await change(store, *(Put(f"/gone/{next(names)}", b"", ABSENT) for _ in range(1000)))
    with pytest.raises(Refused, match="nodes"):
        await change(store, Put(f"/gone/{next(names)}", b"", ABSENT))
    await change(store, Remove("/gone/0", 0), Put("/gone/another", b"", ABSENT))
    large = partial(Put, value=bytes(1_000_000))
    for number in range(MOST_TREE_BYTES // 1_000_000):
        await change(store, large(f"/gone/{number + 1}", version=0))
    with pytest.raises(Refused, match="bytes"):
        await change(store, large("/gone/9000", version=0))
    await change(store, Put("/gone/9000", b"small", 0))
    await store.close()
