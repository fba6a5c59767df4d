"""Thousands of connections are not all watched by the loop, and each is served as if it were."""

import asyncio
import select
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from oncelog.embedded import Server
from oncelog.server import sleepers
from oncelog.server.sleepers import Sleepers
from tests.raw import RawConnection, ServerClosed, batch
from tests.server.tls_support import World, new_world
from tests.waiting import until

AWAKE, WOKEN, MANY = 4, 2, 20


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sleepers, "MOST_AWAKE", AWAKE)
    monkeypatch.setattr(sleepers, "WOKEN_AT_A_TIME", WOKEN)


class One:
    """A connection as the sleepers see it, at one end of a pair of sockets."""

    def __init__(self, of: Sleepers, woken: list["One"]) -> None:
        self.here, self.there = socket.socketpair()
        self.active_ms = 0
        self.may_sleep = self.is_awake = True
        self._of, self._woken = of, woken
        of.came(self)

    def fall_asleep(self) -> int:
        self.is_awake = False
        return self.here.fileno()

    def wake_up(self) -> None:
        self.is_awake = True
        self._woken.append(self)

    def close(self) -> None:
        self._of.forget(self)
        self.here.close()
        self.there.close()


class Crowd:
    def __init__(self) -> None:
        self.of = Sleepers()
        self.every: list[One] = []
        self.woken: list[One] = []

    def come(self, count: int) -> None:
        self.every += [One(self.of, self.woken) for _ in range(count)]

    @property
    def awake(self) -> list[int]:
        return [number for number, each in enumerate(self.every) if each.is_awake]


@pytest.fixture
async def crowd() -> AsyncIterator[Crowd]:
    crowd = Crowd()
    yield crowd
    for each in crowd.every:
        each.close()
    crowd.of.close()


async def test_those_sleep_that_have_been_silent_for_longest(crowd: Crowd) -> None:
    for number in range(10):
        crowd.come(1)
        crowd.every[0].active_ms = number + 1
    assert crowd.awake == [0, 7, 8, 9]
    crowd.every[8].may_sleep = False
    crowd.come(5)
    assert crowd.awake == [8, 12, 13, 14]


async def test_no_more_wake_in_a_round_than_take_no_time_and_all_do_in_the_end(crowd: Crowd) -> None:
    crowd.come(MANY)
    asleep = [each for each in crowd.every if not each.is_awake]
    for each in asleep:
        each.there.sendall(b"x")
    most = 0
    while len(crowd.woken) < len(asleep):
        before = len(crowd.woken)
        await asyncio.sleep(0)
        most = max(most, len(crowd.woken) - before)
    assert most <= WOKEN
    assert set(crowd.woken) == set(asleep)
    assert len(crowd.of) == MANY - AWAKE


async def test_who_cannot_be_watched_stays_awake(crowd: Crowd, monkeypatch: pytest.MonkeyPatch) -> None:
    def full() -> None:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(select, "epoll", full)
        crowd.come(MANY)
    assert (len(crowd.awake), len(crowd.of)) == (MANY, 0)
    crowd.come(1)
    assert (len(crowd.awake), len(crowd.of)) == (MANY, 1)


async def test_who_ends_asleep_is_forgotten_and_its_number_may_be_anothers(crowd: Crowd) -> None:
    crowd.come(MANY)
    for each in crowd.every:
        each.close()
    assert len(crowd.of) == 0
    crowd.every.clear()
    crowd.come(MANY)
    assert len(crowd.of) == MANY - AWAKE
    crowd.every[0].there.sendall(b"x")
    while not crowd.woken:
        await asyncio.sleep(0)
    assert crowd.woken == [crowd.every[0]]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return new_world(tmp_path_factory.mktemp("world"))


@dataclass(frozen=True)
class Door:
    server: Server
    tls: ssl.SSLContext | None

    def knock(self) -> RawConnection:
        return RawConnection(self.server.bootstrap_servers, tls=self.tls)

    def asleep(self) -> int:
        return int(self.server.call(lambda: len(self.server.service.connections.sleepers)))

    def open(self) -> int:
        return int(self.server.call(lambda: len(self.server.service.connections)))


@pytest.fixture(params=["plain", "TLS"])
def door(request: pytest.FixtureRequest, world: World) -> Iterator[Door]:
    is_tls = request.param == "TLS"
    with world.serve() if is_tls else Server() as server:
        yield Door(server, world.context() if is_tls else None)


def test_each_of_many_is_served_whoever_sleeps(door: Door) -> None:
    with ExitStack() as stack:
        many = [stack.enter_context(door.knock()) for _ in range(MANY)]
        many[0].create_topic("t", 1)
        for turn in range(3):
            for number, each in enumerate(many):
                each.produce("t", 0, batch([f"{turn}-{number}".encode()] * 1000))
            for each in many:
                each.ask("metadata", 9, topics=[])
            for each in many:
                assert each.answer().brokers
        assert door.asleep() == MANY - AWAKE


def test_a_frame_may_come_in_pieces_between_which_its_connection_sleeps(door: Door) -> None:
    with ExitStack() as stack:
        many = [stack.enter_context(door.knock()) for _ in range(MANY)]
        first = many[0]
        first.create_topic("t", 1)
        first.ask("metadata", 9, topics=None)
        assert "t" in {each.name for each in first.answer().topics}
        for piece in (struct.pack(">i", 2**31 - 1)[:2], struct.pack(">i", 2**31 - 1)[2:]):
            for each in many[1:]:
                each.call("metadata", 9, topics=[])
            first.socket.sendall(piece)
        with pytest.raises((ServerClosed, OSError)):
            first.receive_bytes()


def test_who_hangs_up_asleep_is_noticed(door: Door) -> None:
    with ExitStack() as stack:
        for _ in range(MANY):
            stack.enter_context(door.knock()).call("metadata", 9, topics=[])
        assert door.open() == MANY
    until(lambda: door.open() == 0, "their ends to be seen")
    assert door.asleep() == 0
