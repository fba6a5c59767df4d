"""The process that serves a tree, and how the processes of its clients end, stand still and come back."""

import asyncio
import signal
import struct
import sys
from asyncio.subprocess import PIPE, Process, create_subprocess_exec
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from oncelog.clock import ManualClock, SystemClock
from oncelog.cluster.tree import ABSENT, MOST_SESSIONS, SESSION_TIMEOUT_MS, Node, Put, PutEphemeral, Refused, Unsure
from oncelog.cluster.tree_frames import MOST_ANSWER_BYTES, MOST_REQUEST_BYTES, Frame, encode, encode_changes, read
from oncelog.cluster.tree_server import TreeServer
from oncelog.cluster.tree_socket import SocketTree
from oncelog.cluster.tree_store import TreeStore
from tests.cluster.trees import NEVER_S, Told, turns_until
from tests.log.memory_disk import MemoryDisk
from tests.repo.tree import ROOT

CONFIG, LIVE, OTHER = "/config", "/live/1", "/live/2"


class Served:
    def __init__(self, path: Path) -> None:
        self.path = str(path)
        # As the clocks of all processes of a machine: what is sent now is in time.
        self.clock = ManualClock(monotonic_ms=SystemClock().now().monotonic_ms)
        self.disk = MemoryDisk()
        self._trees: list[SocketTree] = []

    async def start(self, timeout_ms: int = SESSION_TIMEOUT_MS) -> None:
        self.store = TreeStore.open(self.disk, "tree", self.clock)
        self.server = TreeServer(self.path, self.store, self.clock, session_timeout_ms=timeout_ms, look_s=NEVER_S)
        await self.server.start()

    async def stop(self) -> None:
        await self.server.stop()
        await self.store.close()

    async def end(self) -> None:
        for tree in self._trees:
            await tree.close()
        await self.stop()

    async def session(self) -> SocketTree:
        tree = SocketTree(self.path, self.clock)
        self._trees.append(tree)
        await tree.begin_session()
        return tree

    async def time_out(self, *staying: SocketTree) -> None:
        self.clock.advance(SESSION_TIMEOUT_MS)
        self.server.look()
        for tree in staying:
            await tree.get(CONFIG)
        self.server.look()


@pytest_asyncio.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    made = Served(tmp_path / "tree")
    await made.start()
    yield made
    await made.end()


async def started(served: Served) -> Process:
    process = await create_subprocess_exec(
        sys.executable, "-m", "tests.cluster.tree_client", served.path, LIVE, cwd=ROOT, stdin=PIPE, stdout=PIPE
    )
    assert await line_of(process) == b"made\n"
    return process


async def line_of(process: Process) -> bytes:
    assert process.stdout is not None
    async with asyncio.timeout(60):
        return await process.stdout.readline()


async def test_the_session_of_a_killed_process_is_over_at_once(served: Served) -> None:
    tree = await served.session()
    told = Told(tree)
    process = await started(served)
    assert await tree.get(LIVE) == Node(b"", 0)
    told.paths.clear()
    process.kill()
    await told.until(LIVE)
    assert await tree.get(LIVE) is None
    await process.wait()


async def test_the_session_of_a_stopped_process_is_over_after_its_timeout_and_it_learns_of_that(served: Served) -> None:
    tree = await served.session()
    process = await started(served)
    process.send_signal(signal.SIGSTOP)
    served.clock.advance(SESSION_TIMEOUT_MS - 1000)
    served.server.look()
    served.server.look()
    assert await tree.get(LIVE) == Node(b"", 0)
    told = Told(tree)
    await served.time_out(tree)
    await told.until(LIVE)
    assert await tree.get(LIVE) is None
    process.send_signal(signal.SIGCONT)
    assert await line_of(process) == b"lost\n"
    process.kill()
    await process.wait()


async def test_time_in_which_the_server_stood_still_ends_no_session(served: Served) -> None:
    tree = await served.session()
    await tree.change(PutEphemeral(LIVE, b""))
    served.clock.advance(10 * SESSION_TIMEOUT_MS)
    served.server.look()
    assert await tree.get(LIVE) == Node(b"", 0)  # which was on its way all the time
    served.server.look()
    assert await tree.get(LIVE) == Node(b"", 0)


async def greeted(served: Served) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_unix_connection(served.path)
    writer.write(encode(("hello", 0)))
    assert (await answer(reader)).head[0] == "welcome"
    return reader, writer


async def answer(reader: asyncio.StreamReader) -> Frame:
    async with asyncio.timeout(60):
        return await read(reader, MOST_ANSWER_BYTES)


GARBAGE = {
    "no frame": b"GET / HTTP/1.1\r\n\r\n",
    "no JSON": struct.pack(">II", 4, 0) + b"[1, ",
    "deep": struct.pack(">II", 200_000, 0) + b"[" * 200_000,
    "no list": struct.pack(">II", 2, 0) + b"{}",
    "too long": struct.pack(">II", MOST_REQUEST_BYTES, 1),
    "unknown": encode(("dance", 1)),
    "no path": encode(("get", 1, "/")),
    "no folder": encode(("children", 1, "/config")),
    "no change": encode(("change", 1, 2**40, [["put", CONFIG]])),
    "a value that is not there": encode(("change", 1, 2**40, [["put", CONFIG, -1, 7]]), [b"short"]),
    "a negative size": encode(("change", 1, 2**40, [["put", CONFIG, -1, -7]]), [b"short"]),
    "another greeting": encode(("hello", 0)),
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
async def test_what_cannot_be_read_ends_its_connection_alone_and_no_session(
    served: Served, garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    tree = await served.session()
    reader, writer = await greeted(served)
    writer.write(encode_changes(1, served.clock.now().monotonic_ms + 60_000, [PutEphemeral(LIVE, b"")]))
    while (await answer(reader)).head != ["done", 1]:
        pass
    writer.write(garbage)
    async with asyncio.timeout(60):
        assert await reader.read() == b""
    writer.close()
    assert "a connection to the tree is closed" in caplog.text
    assert await tree.get(LIVE) == Node(b"", 0), "its client may be sure of it still"
    told = Told(tree)
    await served.time_out(tree)
    await told.until(LIVE)
    assert await tree.get(LIVE) is None


async def test_a_stream_that_ends_before_its_greeting_does_no_harm(served: Served) -> None:
    for data in b"", b"\0\0", encode(("beat", 1)), encode(("hello", 12345)), encode(("hello", "you")):
        reader, writer = await asyncio.open_unix_connection(served.path)
        writer.write(data)
        writer.write_eof()
        async with asyncio.timeout(60):
            await reader.read()
        writer.close()
    tree = await served.session()
    await tree.change(Put(CONFIG, b"", ABSENT))


async def test_a_change_that_arrives_too_late_is_not_done(served: Served) -> None:
    tree = await served.session()
    reader, writer = await greeted(served)
    writer.write(encode_changes(1, served.clock.now().monotonic_ms, [Put(CONFIG, b"", ABSENT)]))
    assert (await answer(reader)).head == ["unsure", 1, "it came too late, and was not done"]
    assert await tree.get(CONFIG) is None
    writer.close()


async def test_what_is_asked_behind_the_end_of_a_session_is_not_done(served: Served) -> None:
    tree = await served.session()
    reader, writer = await greeted(served)
    late = encode_changes(2, served.clock.now().monotonic_ms + 60_000, [PutEphemeral(LIVE, b"")])
    writer.write(encode(("close", 1)) + late)
    assert [(await answer(reader)).head[:2] for _ in range(2)] == [["done", 1], ["unsure", 2]]
    assert await tree.get(LIVE) is None
    writer.close()


async def test_sessions_outlive_the_server_and_clients_come_back_to_them(served: Served) -> None:
    one, other = await served.session(), await served.session()
    lost = asyncio.Event()
    one.on_lost(lost.set)
    await one.change(PutEphemeral(LIVE, b""))
    await other.change(PutEphemeral(OTHER, b""))
    await other.close()
    told = Told(one)
    await served.stop()
    await turns_until(lambda: not one.is_connected)
    sure_until_ms = one.sure_until_ms()
    assert sure_until_ms == served.clock.now().monotonic_ms + SESSION_TIMEOUT_MS
    await served.start()
    await told.until("")
    assert await one.get(LIVE) == Node(b"", 0)
    assert await one.get(OTHER) is None
    await one.change(Put(CONFIG, b"", ABSENT))
    assert not lost.is_set()


async def test_who_does_not_come_back_to_another_start_has_its_timeout_counted_from_there(served: Served) -> None:
    old = await served.session()
    await old.change(PutEphemeral(LIVE, b""))
    await served.stop()
    await turns_until(lambda: not old.is_connected)
    served.clock.advance(10 * SESSION_TIMEOUT_MS)
    served.path += "-elsewhere"
    await served.start()
    new = await served.session()
    served.clock.advance(SESSION_TIMEOUT_MS - 1)
    for _ in range(2):
        await new.get(CONFIG)
        served.server.look()
    assert await new.get(LIVE) == Node(b"", 0)
    told = Told(new)
    await served.time_out(new)
    await told.until(LIVE)
    assert await new.get(LIVE) is None


async def test_a_heartbeat_that_is_answered_makes_a_broker_sure_for_longer(tmp_path: Path) -> None:
    served = Served(tmp_path / "tree")
    await served.start(timeout_ms=30)
    tree = await served.session()
    before_ms = tree.sure_until_ms()
    served.clock.advance(20)
    await turns_until(lambda: tree.sure_until_ms() == before_ms + 20)
    await served.end()


async def test_the_number_of_sessions_has_a_bound(served: Served) -> None:
    sessions = [await served.session() for _ in range(MOST_SESSIONS)]
    with pytest.raises(Refused):
        await served.session()
    await sessions[0].close()
    await served.session()


async def test_a_client_that_takes_nothing_is_told_once_that_anything_may_have_changed(served: Served) -> None:
    tree = await served.session()
    reader, writer = await greeted(served)
    name = "x" * 240
    for number in range(60):
        await tree.change(*(Put(f"/gone/{name}{n}", b"", number - 1) for n in range(100)))
    heads: list[list[object]] = []
    while not heads or heads[-1] != ["told", ""]:
        heads.append((await answer(reader)).head)
    assert len(heads) < 6_000
    await tree.change(Put(CONFIG, b"", ABSENT))
    assert (await answer(reader)).head == ["told", CONFIG]
    writer.close()


async def test_a_lost_session_is_never_gone_on_with(served: Served) -> None:
    tree = await served.session()
    lost = asyncio.Event()
    tree.on_lost(lost.set)
    await served.time_out()
    async with asyncio.timeout(60):
        await lost.wait()
    assert (tree.is_connected, tree.sure_until_ms()) == (False, 0)
    with pytest.raises(Unsure):
        await tree.change(Put(CONFIG, b"", ABSENT))
    await tree.begin_session()
    await tree.change(Put(CONFIG, b"", ABSENT))


async def test_a_client_that_ends_a_stream_which_it_cannot_read_is_sure_of_nothing(tmp_path: Path) -> None:
    greeted = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read(reader, MOST_REQUEST_BYTES)
        if not greeted.is_set():
            greeted.set()
            writer.write(encode(("welcome", 7, SESSION_TIMEOUT_MS)))
            writer.write(encode(("garbage",)))

    server = await asyncio.start_unix_server(serve, str(tmp_path / "tree"))
    tree = SocketTree(str(tmp_path / "tree"), SystemClock())
    await tree.begin_session()
    assert tree.sure_until_ms() > 0
    await turns_until(lambda: not tree.is_connected)
    assert tree.sure_until_ms() == 0
    await tree.close()
    server.close()
