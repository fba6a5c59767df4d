"""The flusher, beside partitions that are closed and opened again while a flush of theirs is under way."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from oncelog.log.disk import Disk
from oncelog.log.partition import Fate, PartitionLog
from oncelog.producers import ProducerMap
from oncelog.server.flusher import Flusher
from oncelog.server.local_topics import LocalTopics
from oncelog.server.settings_reading import read_settings
from oncelog.server.topics import Partition
from tests.log.memory_disk import MemoryDisk
from tests.server.topics_support import NOW, append

Told = list[dict[str, Any]]


class Threads:
    """Those of the flusher, which come to their work when the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._loop = asyncio.get_running_loop()
        self._due: list[tuple[asyncio.Future[Any], Callable[[], Any]]] = []
        monkeypatch.setattr(self._loop, "run_in_executor", self._take)

    def _take(self, _: object, work: Callable[..., Any], *arguments: Any) -> "asyncio.Future[Any]":
        future: asyncio.Future[Any] = self._loop.create_future()
        self._due.append((future, lambda: work(*arguments)))
        return future

    def come(self) -> None:
        future, work = self._due.pop(0)
        try:
            future.set_result(work())
        except Exception as failure:
            future.set_exception(failure)

    async def do_it_all(self) -> None:
        while self._due:
            self.come()
            await told()


async def told() -> None:
    """The loop has heard of what the threads did."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


@pytest.fixture
def disk() -> Disk:
    return MemoryDisk(1)


@pytest.fixture
def partition(disk: Disk) -> Partition:
    settings = read_settings(["log.dir=/data", "oncelog.flush=every"])
    return LocalTopics(settings, disk, ProducerMap, NOW).create("t", 1, {}, NOW).partitions[0]


@pytest.fixture
async def wrong() -> AsyncIterator[Told]:
    """What the loop was told that went wrong."""
    wrong: Told = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: wrong.append(context))
    yield wrong


@pytest.mark.parametrize("is_early", [True, False], ids=["before it is closed", "when it is closed"])
async def test_what_comes_after_a_partition_is_opened_again_is_flushed(
    disk: Disk, partition: Partition, wrong: Told, monkeypatch: pytest.MonkeyPatch, is_early: bool
) -> None:
    flusher, threads = Flusher(), Threads(monkeypatch)
    append(partition)
    flusher.request(partition)
    if is_early:
        threads.come()
    log = partition.close()
    log.abandon()
    if not is_early:
        threads.come()
    partition.open(PartitionLog.open(disk, log.folder, log.config, ProducerMap(), NOW))
    partition.leads = True
    append(partition)
    flusher.request(partition)
    await told()
    await threads.do_it_all()
    assert partition.fate(partition.log.end) is Fate.SAFE
    assert not wrong
    await flusher.close()


@pytest.mark.parametrize("fails", [False, True])
async def test_a_partition_that_is_closed_is_flushed_no_more(
    partition: Partition, wrong: Told, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    flusher, threads = Flusher(), Threads(monkeypatch)

    def sync(*_: str) -> None:
        raise OSError(5, "Input/output error")

    if fails:
        monkeypatch.setattr(partition.log.flusher, "sync", sync)
    append(partition)
    flusher.request(partition)
    append(partition)
    if not fails:
        flusher.request(partition)  # again, then
    partition.close().abandon()
    flusher.request(partition)
    await threads.do_it_all()
    assert not wrong
    await flusher.close()
