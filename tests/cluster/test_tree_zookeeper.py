"""What only ZooKeeper and kazoo can do to a tree; what they promise like every tree is in `test_tree_promises.py`."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import ClassVar

import pytest
import pytest_asyncio
from kazoo.client import KazooClient, KazooState, TransactionRequest

from oncelog.clock import BoottimeClock
from oncelog.cluster.tree import ABSENT, Node, Put, PutEphemeral, Unsure
from oncelog.cluster.tree_zookeeper import ZooKeeperTree
from tests.cluster.trees import Told, turns_until
from tests.cluster.zookeeper import TICK_MS, ZooKeeper, running_zookeeper
from tests.waiting import until

pytestmark = pytest.mark.peers
CONFIG, LIVE, TIMEOUT_MS = "/config", "/live/1", 2_000
CLOCK = BoottimeClock()


@pytest_asyncio.fixture
async def tree(request: pytest.FixtureRequest) -> AsyncIterator[ZooKeeperTree]:
    made = tree_of(running_zookeeper(), request.node.name)
    await made.begin_session()
    yield made
    await made.close()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[ZooKeeper]:
    """That may be killed. The one of all other tests is asked for first, as that says what is missing."""
    running_zookeeper()
    server = ZooKeeper(tmp_path)
    try:
        server.start()
        yield server
    finally:
        server.kill()


def tree_of(server: ZooKeeper, name: str, timeout_ms: int = TIMEOUT_MS) -> ZooKeeperTree:
    return ZooKeeperTree(f"127.0.0.1:{server.port}", f"/tests/{name}", CLOCK, session_timeout_ms=timeout_ms)


async def test_the_session_of_a_broker_whose_loop_hangs_is_over(tree: ZooKeeperTree) -> None:
    lost, gone = asyncio.Event(), threading.Event()
    tree.on_lost(lost.set)
    other = KazooClient(f"127.0.0.1:{running_zookeeper().port}")
    await asyncio.to_thread(other.start)
    await tree.change(PutEphemeral(LIVE, b""))
    assert other.exists(tree.folder + LIVE, watch=lambda event: gone.set())
    assert gone.wait(30), "kazoo's own pings went on"  # here, on the loop
    assert tree.sure_until_ms() <= CLOCK.now().monotonic_ms
    other.stop()
    other.close()
    async with asyncio.timeout(30):
        await lost.wait()
    assert (tree.is_connected, tree.sure_until_ms()) == (False, 0)


async def test_a_loop_that_works_is_sure_of_its_session_for_longer_with_each_answer() -> None:
    tree = tree_of(running_zookeeper(), "works", 60_000)
    await tree.begin_session()
    for _ in range(3):
        began_ms = tree.sure_until_ms()
        async with asyncio.timeout(30):
            while tree.sure_until_ms() <= began_ms:
                await tree.get(CONFIG)
    assert tree.is_connected
    await tree.close()


async def test_a_broker_is_sure_for_as_long_as_the_server_has_granted() -> None:
    tree = tree_of(running_zookeeper(), "granted", 60_000)
    await tree.begin_session()
    assert tree.sure_until_ms() <= CLOCK.now().monotonic_ms + 20 * TICK_MS
    await tree.close()


@pytest.mark.thorough
async def test_a_session_goes_on_when_the_server_was_killed_and_what_was_asked_in_that_moment_is_not_sent_later(
    own_server: ZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = own_server
    commit = TransactionRequest.commit_async

    def killed_meanwhile(transaction: TransactionRequest) -> object:
        server.kill()
        until(lambda: not transaction.client.connected, "the loss of the connection")
        return commit(transaction)

    one, other = tree_of(server, "again", 20_000), tree_of(server, "again", 20_000)
    lost = asyncio.Event()
    one.on_lost(lost.set)
    await one.begin_session()
    await other.begin_session()
    await one.change(PutEphemeral(LIVE, b""), Put(CONFIG, b"", ABSENT))
    with monkeypatch.context() as patched:
        patched.setattr(TransactionRequest, "commit_async", killed_meanwhile)
        with pytest.raises(Unsure):
            await one.change(Put(CONFIG, b"late", 0))
    await turns_until(lambda: not one.is_connected and not other.is_connected)
    told, also = Told(one), Told(other)
    await asyncio.get_running_loop().run_in_executor(None, server.start)  # a loop that hangs has no session
    await told.until("")
    await also.until("")
    assert await one.get(LIVE) == Node(b"", 0)
    assert await one.get(CONFIG) == Node(b"", 0)
    await other.change(Put(CONFIG, b"new", 0))
    await told.until(CONFIG)
    assert not lost.is_set()
    await one.close()
    await other.close()


class SlowToStop:
    """A client that loses its session before it has one, and stops when it is let go."""

    made: ClassVar[list["SlowToStop"]] = []
    let_go = threading.Event()

    def __init__(self, **options: object) -> None:
        self.client_id = None
        self.is_stopping = self._is_stopped = False
        self.made.append(self)

    def add_listener(self, told: Callable[[str], None]) -> None:
        self._told = told

    def start_async(self) -> None:
        self._told(KazooState.LOST)

    def stop(self) -> None:
        if not self.is_stopping:
            self.is_stopping = True
            self.let_go.wait(30)
            self._is_stopped = True

    def close(self) -> None:
        if not self._is_stopped:
            raise Exception("Cannot close connection until it is stopped")


async def test_a_session_that_is_lost_and_given_up_is_ended_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oncelog.cluster.tree_zookeeper.KazooClient", SlowToStop)
    monkeypatch.setattr("oncelog.cluster.tree_zookeeper.BEGIN_S", 0.01)
    beginning = asyncio.create_task(tree_of(running_zookeeper(), "ended-once").begin_session())
    await turns_until(lambda: any(each.is_stopping for each in SlowToStop.made))
    await asyncio.wait([beginning], timeout=0.3)
    SlowToStop.let_go.set()
    await turns_until(lambda: len(SlowToStop.made) > 1 or beginning.done())
    assert not beginning.done(), beginning.exception()
    beginning.cancel()
    await asyncio.wait([beginning])
