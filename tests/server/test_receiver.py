"""How large frames are received: in pieces, into buffers that grow by a little at a time, some in each round."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from oncelog.server.connections import Connections
from oncelog.server.memory import FRESH_BYTES, Memory
from oncelog.server.receiver import AHEAD, LARGE_FRAME_BYTES, Receiver
from oncelog.server.sleepers import Sleepers
from oncelog.wire.frames import SIZE


class Whole:
    """Takes the frames that are whole."""

    is_closing = is_serving = False
    active_ms = 0

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.receiver: Receiver | None = None

    def serve(self, buffer: bytearray, at: int, end: int) -> None:
        assert self.receiver is not None
        if end - at > LARGE_FRAME_BYTES:
            self.frames.append(bytes(buffer[at:end]))
        else:
            self.receiver.keep(buffer, at, end)

    def is_held(self) -> bool:
        return False

    def may_serve(self, key: int, size: int) -> bool:
        return True


class Reading:
    """A transport, as far as it is told to read."""

    def __init__(self) -> None:
        self.reads = True

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def get_extra_info(self, name: str, default: object = None) -> object:
        return default


def receiving(memory: Memory, serving: Whole) -> tuple[Receiver, Reading]:
    broker: Any = SimpleNamespace(
        memory=memory,
        metrics=SimpleNamespace(bytes_received=0),
        settings=SimpleNamespace(socket_request_max_bytes=2**27),
        clock=SimpleNamespace(now=lambda: SimpleNamespace(monotonic_ms=0)),
    )
    shared = SimpleNamespace(broker=broker, receive_buffer=bytearray(LARGE_FRAME_BYTES), sleepers=Sleepers())
    receiver = serving.receiver = Receiver(cast(Connections, shared), serving)
    reading = Reading()
    receiver.begin(cast(asyncio.Transport, reading))
    return receiver, reading


async def test_no_frame_is_received_or_moved_in_large_pieces() -> None:
    memory, serving = Memory(2**30), Whole()
    receiver, reading = receiving(memory, serving)
    body = bytes(range(256)) * (40 * 2**12)
    frame = SIZE.pack(len(body)) + body
    at, had, moved_bytes = 0, 0, 0
    buffer: object = None
    while at < len(frame):
        while not reading.reads:
            await asyncio.sleep(0)
        view = receiver.get_buffer()
        if at and view.obj is not buffer:
            moved_bytes += at
        assert len(view) <= 2**20
        assert not had or len(cast(bytearray, view.obj)) - had <= 2**22
        had, buffer = len(cast(bytearray, view.obj)) if at else 0, view.obj
        size = min(len(view), len(frame) - at)
        view[:size] = frame[at : at + size]
        at += size
        del view
        receiver.buffer_updated(size)
    assert serving.frames == [frame]
    assert moved_bytes < 2**20
    assert memory.unserved.held_bytes == 0


FIRST_BYTES = AHEAD * LARGE_FRAME_BYTES
IN_A_ROUND = FRESH_BYTES // FIRST_BYTES


def begin_large(receiver: Receiver) -> None:
    """The first bytes of a large frame have come."""
    view = receiver.get_buffer()
    view[: SIZE.size] = SIZE.pack(2**20)
    del view
    receiver.buffer_updated(LARGE_FRAME_BYTES)


def has_room(receiver: Receiver) -> bool:
    return len(cast(bytearray, receiver.get_buffer().obj)) == FIRST_BYTES


async def test_of_many_large_frames_some_get_their_memory_in_each_round_as_they_came() -> None:
    memory = Memory(2**30)
    crowd = [receiving(memory, Whole()) for _ in range(3 * IN_A_ROUND)]
    for receiver, _ in crowd[:-1]:
        begin_large(receiver)

    def begun() -> list[bool]:
        return [reading.reads and has_room(receiver) for receiver, reading in crowd]

    assert begun() == [each < IN_A_ROUND for each in range(len(crowd))]
    assert memory.unserved.held_bytes == FIRST_BYTES * (len(crowd) - 1), "those that wait, too, have their part of it"
    crowd[IN_A_ROUND][0].drop()  # its client hangs up
    assert memory.unserved.held_bytes == FIRST_BYTES * (len(crowd) - 2)
    await asyncio.sleep(0)
    begin_large(crowd[-1][0])  # a newcomer, in the round of those who waited
    assert begun()[IN_A_ROUND + 1 :] == [each < IN_A_ROUND for each in range(2 * IN_A_ROUND - 1)]
    await asyncio.sleep(0)
    assert all(begun()[IN_A_ROUND + 1 :])
    for receiver, _ in crowd:
        receiver.drop()
    assert memory.unserved.held_bytes == 0


async def test_a_large_frame_that_finds_a_buffer_used_before_waits_for_no_round() -> None:
    memory = Memory(2**30)
    memory.fresh.take(FRESH_BYTES)
    memory.large_buffers.give_back(bytearray(FIRST_BYTES))
    receiver, reading = receiving(memory, Whole())
    begin_large(receiver)
    assert reading.reads and has_room(receiver)


async def test_a_frame_grows_no_further_in_a_round_in_which_enough_was_made() -> None:
    memory, serving = Memory(2**30), Whole()
    receiver, reading = receiving(memory, serving)
    begin_large(receiver)
    memory.fresh.take(FRESH_BYTES)
    receiver.buffer_updated(FIRST_BYTES - LARGE_FRAME_BYTES)
    assert not reading.reads
    assert memory.unserved.held_bytes == 2 * FIRST_BYTES
    await asyncio.sleep(0)
    assert reading.reads
    while not serving.frames:
        receiver.buffer_updated(len(receiver.get_buffer()))
    assert len(serving.frames[0]) == SIZE.size + 2**20
    assert memory.unserved.held_bytes == 0
